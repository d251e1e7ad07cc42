"""The deployment that runs on this machine; commands use the same model."""

import asyncio
import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from combee.adapters.openai.names import Azure, resolve_model
from combee.adapters.ports import ConfigurationError
from combee.assembly.local.preflight import SIMULATED
from combee.assembly.local.stack_file import stack_file, stack_is_running
from combee.process.running import state_of
from combee.process.settings.loading import Settings

ANY_KEY = "any"
ANY_AZURE = Azure(endpoint="https://any", version="any")
WORKER_TIMEOUT_S = 2.0
BATCH_FLAGS = frozenset({"method", "batch_size", "copies"})
CHOSEN = "chosen by its controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A running ``combee up``, as its file describes it."""

    bootstrap_servers: str
    model: str
    base_url: str | None = None
    workers: Mapping[str, str] = field(default_factory=dict)
    """Name → address of its health and metrics."""
    batch: Mapping[str, Any] = field(default_factory=dict)
    """The settings of its batches for which commands have flags (``BATCH_FLAGS``); None: no size is fixed."""

    @property
    def model_named(self) -> str:
        """Its model for people: the name, and the address if given."""
        return _named(self.model, self.base_url)


def deployment(settings: Settings) -> Deployment | None:
    """Return the ``combee up`` of this user that serves the brokers and prefix of these settings, if one runs."""
    wanted = settings.kafka.bootstrap_servers
    embedded = replace(settings, kafka=settings.kafka.model_copy(update={"bootstrap_servers": None}))
    for served in (settings, embedded):
        state = _state(served)
        if state and wanted in {None, state["bootstrap_servers"]}:
            return Deployment(**{attribute.name: state[attribute.name] for attribute in fields(Deployment)})
    return None


def _state(settings: Settings) -> dict[str, Any] | None:
    try:
        state = state_of(stack_file(settings)) if stack_is_running(settings) else {}
    except (OSError, ModuleNotFoundError):  # there is no folder for it
        return None
    return state if state.keys() >= {attribute.name for attribute in fields(Deployment)} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaints:
    """A worker's problems: red conditions, and conditions that it waits for although it is ready."""

    red: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


async def complaints(workers: Mapping[str, str]) -> dict[str, Complaints]:
    """Ask every worker (name → address) whether it is ready."""
    answers = await asyncio.gather(*(asyncio.to_thread(_complaints, address) for address in workers.values()))
    return dict(zip(workers, answers, strict=True))


def _complaints(address: str) -> Complaints:
    where = urlsplit(address)
    connection = http.client.HTTPConnection(
        where.hostname or "", where.port or None, timeout=WORKER_TIMEOUT_S
    )
    try:
        connection.request("GET", "/readyz")
        lines = connection.getresponse().read().decode(errors="replace").splitlines()
    except (OSError, http.client.HTTPException) as error:
        return Complaints(red=(f"it does not answer ({type(error).__name__})",))
    finally:
        connection.close()
    return Complaints(
        red=tuple(line.removeprefix("RED ") for line in lines if line.startswith("RED ")),
        waits=tuple(line.removeprefix("WAIT ") for line in lines if line.startswith("WAIT ")),
    )


def beside(
    running: Deployment | None,
    settings: Settings,
    *,
    model: str | None = None,
    base_url: str | None = None,
    **batch: str | int | None,
) -> Settings:
    """Return the settings with the running deployment's model and batch options; the other arguments are flags.

    Raises
    ------
    ConfigurationError
        If a flag differs from the deployment's value.
    """
    if running is None:
        return settings
    theirs = resolve_model(running.model, running.base_url, ANY_KEY, ANY_AZURE)
    if resolve_model(model or running.model, base_url or running.base_url, ANY_KEY, ANY_AZURE) != theirs:
        flags = f"--{SIMULATED}" if model == SIMULATED else _named(model or running.model, base_url)
        raise ConfigurationError(
            f"'combee up' runs with the model {running.model_named}, not {flags}: leave the flag out, or stop"
            f" 'combee up' and start it with that model"
        )
    for name, wanted in batch.items():
        if wanted not in {None, running.batch[name]}:
            raise ConfigurationError(
                f"'combee up' runs with {name.replace('_', ' ')} {running.batch[name] or CHOSEN}, and"
                f" --{name.replace('_', '-')} {wanted} is another: leave the flag out, or stop 'combee up'"
                f" and start it with COMBEE_{name.upper()}={wanted}"
            )
    update: dict[str, object] = {"model": running.model, "base_url": running.base_url}
    if running.model == SIMULATED:
        update["api_key"] = SecretStr(SIMULATED)
    return replace(
        settings,
        model=settings.model.model_copy(update=update),
        batch=settings.batch.model_copy(
            update={name: theirs for name, theirs in running.batch.items() if theirs is not None}
        ),
    )


def _named(model: str, base_url: str | None) -> str:
    if not base_url:
        return model
    there = urlsplit(base_url)
    # An address may hold a password.
    return f"{model} at {there._replace(netloc=there.netloc.rpartition('@')[2]).geturl()}"
