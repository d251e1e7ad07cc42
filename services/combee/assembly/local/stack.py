"""The services of one machine as processes, for ``combee up`` and for commands that start their own services."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError
from combee.assembly.local.ports import address, metrics_ports, port_option
from combee.assembly.local.supervisor import Process, Supervisor
from combee.process.secret_files import SUFFIX
from combee.process.settings.loading import SET_BY, Settings, environment, secrets
from combee.process.settings.methods import configured_method
from combee.process.settings.worker import SERVICES

SIMULATED_EMBEDDING = "simulated-embedding@0.8"
"""The embedding model of the stand-in, with its threshold: two wordings of a lesson have a cosine of about 0.9."""
READY_TIMEOUT_S = 60.0
STOP_MARGIN_S = 10.0
MODEL_KEYS = (
    *("COMBEE_API_KEY", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"),
    *("COMBEE_AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "COMBEE_AZURE_AD_TOKEN", "AZURE_OPENAI_AD_TOKEN"),
    "AZURE_CLIENT_SECRET",  # Azure's library gets a token with it
)
SECRETS_OF: Mapping[str, Sequence[str]] = {
    "reflect": MODEL_KEYS,
    "scan": MODEL_KEYS,
    "evaluate": (*MODEL_KEYS, "COMBEE_EVAL_API_KEY"),
    "gateway": ("COMBEE_GATEWAY_KEYS",),
}
SECRETS = frozenset(
    {*chain.from_iterable(SECRETS_OF.values()), "COMBEE_EMBEDDING_API_KEY", "COMBEE_SOURCE_SECRET"}
)
"""Keys in the environment that a service gets only by ``SECRETS_OF``; every service gets Kafka's password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Options shared by the services of a stack."""

    settings: Settings
    bootstrap_servers: str
    folder: Path
    simulated: bool = False
    sim_arguments: tuple[str, ...] = ()
    scan_workers: int = 1
    replicas: int = 1
    """Processes of each other service."""
    roles: tuple[str, ...] = SERVICES
    answers_from: str | None = None
    """A topic prefix whose recorded answers scan uses again."""
    gateway_keys: str | None = field(default=None, repr=False)
    """The gateway's keys; None: the keys in this process's environment."""


def child_environment(options: StackOptions) -> dict[str, str]:
    """Return the environment of the services: this process's, with every setting as resolved here."""
    settings = options.settings
    values: dict[str, object] = {}
    groups = (
        settings.kafka,
        settings.model,
        settings.sizing,
        settings.batch,  # after it: both have the batch size, and shuffle's counts
        settings.playbook,
        settings.spend,
        settings.tenants,
        settings.sources,
        settings.evaluation,
        settings.gate,
        settings.gateway,
    )
    for group in groups:
        values |= group.model_dump(
            exclude={*secrets(), "gateway_keys"}
        )  # secrets stay in the environment or files
    worker = settings.worker
    values |= {
        "bootstrap_servers": options.bootstrap_servers,
        "log_level": worker.log_level,
        "otel_endpoint": worker.otel_endpoint,
    }
    named = {f"COMBEE_{name.upper()}": _text(value) for name, value in values.items() if value is not None}
    named[SET_BY] = json.dumps(dict(settings.origins))
    if options.gateway_keys is not None:
        named["COMBEE_GATEWAY_KEYS"] = options.gateway_keys
    # The value takes the place of its file: both would be refused.
    read = {f"{name}{SUFFIX}" for name in named}
    return {name: value for name, value in environment().items() if name.upper() not in read} | named


def environment_of(role: str, env: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the environment of one process, with only the secrets that it uses."""
    needed = set(SECRETS_OF.get(role, ()))
    if role in {"scan", "shuffle"} and settings.model.embedding_model:
        needed |= {*MODEL_KEYS, "COMBEE_EMBEDDING_API_KEY"}
    withheld = {form for name in SECRETS - needed for form in (name, f"{name}{SUFFIX}")}
    return {name: value for name, value in env.items() if name.upper() not in withheld}


def _text(value: object) -> str:
    """Return a setting as the environment holds it."""
    return json.dumps(value) if isinstance(value, dict) else str(value)


@asynccontextmanager
async def stack(
    options: StackOptions,
    on_line: Callable[[str, str], None] | None = None,
    *,
    supervise: type[Supervisor] = Supervisor,
) -> AsyncIterator[Supervisor]:
    """Run the services (and the stand-in model, if simulated) while the context is open.

    Raises
    ------
    FatalError
        If a service cannot run; the message ends with its last output.
    """
    configured_method(options.settings.batch)  # refused here rather than by each process
    options.folder.mkdir(parents=True, exist_ok=True)
    supervisor = supervise(options.folder, SystemClock(), on_line)
    try:
        env = child_environment(options)
        if options.simulated:
            env |= await _stand_in(supervisor, options)
        for process in _workers(options, env):
            await supervisor.start(process)
        await supervisor.wait_ready(READY_TIMEOUT_S)
        yield supervisor
    finally:
        await supervisor.stop(options.settings.model.model_timeout_s + STOP_MARGIN_S)


def _workers(options: StackOptions, env: Mapping[str, str]) -> Iterator[Process]:
    worker = options.settings.worker
    slots = [
        (role, slot)
        for role in options.roles
        for slot in range(options.scan_workers if role == "scan" else options.replicas)
    ]
    ports = metrics_ports(worker.metrics_port, worker.metrics_host, len(slots))
    for (role, slot), port in zip(slots, ports, strict=True):
        name = f"{role}-{slot}" if slot else role
        known = ("--answers-from", options.answers_from) if role == "scan" and options.answers_from else ()
        yield Process(
            name=name,
            arguments=("worker", role, "--slot", str(slot), *port_option(port), *known),
            env=environment_of(role, env, options.settings),
            ready_file=options.folder / f"{name}.ready",
            address=address(worker.metrics_host, port),
        )


async def _stand_in(supervisor: Supervisor, options: StackOptions) -> dict[str, str]:
    """Start the stand-in model; return the settings that point at it."""
    ready = options.folder / "sim.ready"
    process = Process(
        name="sim",
        arguments=("sim", "serve", *options.sim_arguments),
        env=environment_of("sim", environment(), options.settings),
        ready_file=ready,
    )
    await supervisor.start(process)
    await supervisor.wait_ready(READY_TIMEOUT_S)
    url = ready.read_text().strip()
    if not url:
        raise FatalError("the stand-in model gave no address")
    # The stand-in has embeddings, too, so nothing is sent to another server.
    embeddings = {"COMBEE_EMBEDDING_BASE_URL": url, "COMBEE_EMBEDDING_API_KEY": "simulated"}
    embeddings |= {"COMBEE_EMBEDDING_MODEL": SIMULATED_EMBEDDING}
    return {
        "COMBEE_MODEL": "simulated",
        "COMBEE_BASE_URL": url,
        "COMBEE_API_KEY": "simulated",
        **(embeddings if options.settings.model.embedding_model else {}),
    }


def model_environment(supervisor: Supervisor) -> dict[str, str]:
    """Return the environment with the address of a running stack's stand-in."""
    return {"base_url": (supervisor.folder / "sim.ready").read_text().strip()}
