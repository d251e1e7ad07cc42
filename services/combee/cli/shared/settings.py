"""The settings of verbs that work on the deployment of this machine."""

from dataclasses import replace

from combee.cli.shared.console import remark
from combee.process.running import Running, running, sole, user_data_dir
from combee.process.settings.loading import Settings, environment, load_settings

GATEWAY_URL = "COMBEE_GATEWAY_URL"
REMEDY = "name one with COMBEE_DATA_DIR, COMBEE_TOPIC_PREFIX or COMBEE_GATEWAY_URL"


def deployed_settings(**flags: object) -> Settings:
    """Return the settings of ``of_running``, and tell which deployment was found.

    Raises
    ------
    ConfigurationError
        If a setting is wrong, or several deployments run and none is named.
    """
    settings, found = of_running(load_settings(**flags))
    if found is not None:
        remark(f"using {found.named}")
    return settings


def of_running(settings: Settings) -> tuple[Settings, Running | None]:
    """Return the settings for the ``combee up`` that runs on this machine, and it if they named no other one.

    Brokers, a data directory or a prefix that are set name it, else the gateway's address; else it is the only one.

    Raises
    ------
    ConfigurationError
        If several run and none is named.
    """
    kafka, worker = settings.kafka, settings.worker
    if kafka.bootstrap_servers is not None:
        return settings, None
    environ = environment()
    prefix = kafka.topic_prefix if "topic_prefix" in kafka.model_fields_set else None
    found = running(worker.data_dir, environ, prefix=prefix)
    url = environ.get(GATEWAY_URL, "").rstrip("/")
    chosen = sole(tuple(one for one in found if url and one.http == url) or found, REMEDY)
    if chosen is None:
        return settings, None
    is_here = chosen.data_dir.absolute() == (worker.data_dir or user_data_dir(environ)).absolute()
    if is_here and chosen.embedded and chosen.prefix == kafka.topic_prefix:
        return settings, None
    servers = None if chosen.embedded else chosen.bootstrap_servers
    return replace(
        settings,
        kafka=kafka.model_copy(update={"topic_prefix": chosen.prefix, "bootstrap_servers": servers}),
        worker=worker if is_here else worker.model_copy(update={"data_dir": chosen.data_dir}),
    ), chosen
