"""The settings of verbs that work on the deployment of this machine."""

from dataclasses import replace

from combee.adapters.ports import ConfigurationError
from combee.assembly.local.keys import known_here
from combee.cli.shared.console import remark
from combee.process.running import Running, running, sole, user_data_dir
from combee.process.settings.loading import Settings, environment, load_settings

GATEWAY_URL = "COMBEE_GATEWAY_URL"
REMEDY = "name one with COMBEE_DATA_DIR, COMBEE_TOPIC_PREFIX or COMBEE_GATEWAY_URL"


def deployed_settings(**flags: object) -> Settings:
    """Return the settings of ``of_running``, with what proves sources here, and tell which deployment was found.

    Raises
    ------
    ConfigurationError
        If a setting is wrong, or several deployments run and none is named.
    """
    settings, found = of_running(load_settings(**flags))
    if found is not None:
        remark(f"using {found.named}")
    return replace(settings, sources=known_here(settings))


def of_running(settings: Settings) -> tuple[Settings, Running | None]:
    """Return the settings for the ``combee up`` that runs on this machine, and it if they named no other one.

    Brokers, a data directory or a prefix that are set name it, else the gateway's address; else it is the only one.

    Raises
    ------
    ConfigurationError
        If several run and none is named, none has the gateway's address, or the one on a cluster still starts.
    """
    kafka, worker = settings.kafka, settings.worker
    if kafka.bootstrap_servers is not None:
        return settings, None
    environ = environment()
    prefix = kafka.topic_prefix if "topic_prefix" in kafka.model_fields_set else None
    found = running(worker.data_dir, environ, prefix=prefix)
    url = environ.get(GATEWAY_URL, "").rstrip("/")
    named = tuple(one for one in found if url and _same_here(one.http) == _same_here(url))
    if url and found and not named and worker.data_dir is None and prefix is None:
        there = "; ".join(one.named for one in found)
        raise ConfigurationError(
            f"{GATEWAY_URL} is {url}, but no deployment on this machine has this address: {there}; correct or"
            " unset it, or name one with COMBEE_DATA_DIR or COMBEE_TOPIC_PREFIX"
        )
    chosen = sole(named or found, REMEDY)
    if chosen is None:
        return settings, None
    if not chosen.embedded and not chosen.is_up:  # its brokers are not known yet
        raise ConfigurationError(f"{chosen.named} is not up yet: try again when it says so")
    is_here = chosen.data_dir.resolve() == (worker.data_dir or user_data_dir(environ)).resolve()
    if is_here and chosen.embedded and chosen.prefix == kafka.topic_prefix:
        return settings, None
    servers = None if chosen.embedded else chosen.bootstrap_servers
    return replace(
        settings,
        kafka=kafka.model_copy(update={"topic_prefix": chosen.prefix, "bootstrap_servers": servers}),
        worker=worker if is_here else worker.model_copy(update={"data_dir": chosen.data_dir}),
    ), chosen


def _same_here(url: str) -> str:
    """Return a gateway's address with one spelling of this machine."""
    return url.replace("//localhost:", "//127.0.0.1:")
