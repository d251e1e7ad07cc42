"""All services of one machine as processes; ``combee up``."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.cli.console import remark
from combee.clock import SystemClock
from combee.compose import ROLES
from combee.local.metrics_ports import address, metrics_ports, port_option
from combee.local.supervisor import Process, Supervisor
from combee.ports import ConfigurationError, FatalError
from combee.settings.group import check_trusted, read_trusted
from combee.settings.loading import Settings, environment
from combee.settings.methods import configured_method

READY_TIMEOUT_S = 60.0
STOP_MARGIN_S = 10.0
UP = "combee up"
LOOK_S = 0.1
LOOKED_AT_S = 0.5
"""Others look at the lock by taking it for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What the services of a stack share."""

    settings: Settings
    bootstrap_servers: str
    folder: Path
    simulated: bool = False
    sim_arguments: tuple[str, ...] = ()
    scan_workers: int = 1
    replicas: int = 1
    """Processes of each other service."""
    roles: tuple[str, ...] = tuple(ROLES)


def child_environment(options: StackOptions) -> dict[str, str]:
    """Return the environment of the services: ours, with every setting as it was resolved here."""
    settings = options.settings
    values: dict[str, object] = {}
    groups = (
        settings.kafka,
        settings.model,
        settings.batch,
        settings.sizing,
        settings.playbook,
        settings.spend,
        settings.gateway,
    )
    for group in groups:
        values |= group.model_dump(
            exclude={"sasl_password", "api_key", "gateway_keys"}
        )  # secrets stay where they are
    values |= {"bootstrap_servers": options.bootstrap_servers, "log_level": settings.worker.log_level}
    named = {f"COMBEE_{name.upper()}": _text(value) for name, value in values.items() if value is not None}
    return environment() | named


def _text(value: object) -> str:
    """Return a setting as the environment holds it."""
    return json.dumps(value) if isinstance(value, dict) else str(value)


@asynccontextmanager
async def stack(
    options: StackOptions, on_line: Callable[[str, str], None] | None = None
) -> AsyncIterator[Supervisor]:
    """Run the services (and the stand-in model, if simulated) while the context is open.

    Raises
    ------
    FatalError
        If a service cannot run; the message ends with what it said last.
    """
    configured_method(options.settings.batch)  # refused here rather than by each process
    options.folder.mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(options.folder, SystemClock(), on_line)
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
        yield Process(
            name=name,
            arguments=("worker", role, "--slot", str(slot), *port_option(port)),
            env=env,
            ready_file=options.folder / f"{name}.ready",
            address=address(worker.metrics_host, port),
        )


async def _stand_in(supervisor: Supervisor, options: StackOptions) -> dict[str, str]:
    """Start the stand-in model; return the settings that point at it."""
    ready = options.folder / "sim.ready"
    process = Process(
        name="sim", arguments=("sim", "serve", *options.sim_arguments), env=environment(), ready_file=ready
    )
    await supervisor.start(process)
    await supervisor.wait_ready(READY_TIMEOUT_S)
    url = ready.read_text().strip()
    if not url:
        raise FatalError("the stand-in model gave no address")
    return {
        "COMBEE_MODEL": "simulated",
        "COMBEE_BASE_URL": url,
        "COMBEE_API_KEY": "simulated",
    }


def model_environment(supervisor: Supervisor) -> dict[str, str]:
    """Return where the stand-in of a running stack listens."""
    return {"base_url": (supervisor.folder / "sim.ready").read_text().strip()}


def data_dir(settings: Settings) -> Path:
    """Return the folder of this user's embedded broker.

    Raises
    ------
    SettingsError
        If others may write in it.
    """
    # Only here: where Kafka is given, as in a container, what the embedded one needs may be missing.
    import platformdirs  # noqa: PLC0415

    folder = settings.worker.data_dir or Path(platformdirs.user_data_dir("combee"))
    check_trusted(folder)
    return folder


def stack_file(settings: Settings) -> Path:
    """Return where whoever runs services for the brokers of these settings says so."""
    servers = settings.kafka.bootstrap_servers
    cluster = f"@{hashlib.sha256(servers.encode()).hexdigest()[:16]}" if servers else ""
    return data_dir(settings) / f"stack-{settings.kafka.topic_prefix}{cluster}.json"


@asynccontextmanager
async def sole_stack(
    settings: Settings, command: str, folder: Path, *, wait_s: float = 0.0
) -> AsyncIterator[Callable[[Mapping[str, object]], None]]:
    """Be the one that runs services here for the brokers of these settings; what a killed one left behind is ended.

    Yields what adds to the stack's file, which holds pid and ``command`` from the start and is for its owner alone:
    a model's address may hold a password. Waits up to ``wait_s`` for another command, but not for ``combee up``. On a
    cluster, such as in a container, nothing needs a folder here: without one nothing is held.

    Raises
    ------
    ConfigurationError
        If somebody else runs services there.
    """
    try:
        path = stack_file(settings)
        lock = _open_lock(path)
    except (OSError, ModuleNotFoundError):
        if settings.kafka.bootstrap_servers is None:
            raise
        yield lambda _: None
        return
    try:
        await _take(lock, path, wait_s)
        await asyncio.to_thread(_end_orphans, stack_state(path))
        state: dict[str, object] = {"pid": os.getpid(), "command": command, "folder": str(folder)}

        def add(more: Mapping[str, object]) -> None:
            state.update(more)
            partial = path.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_text(json.dumps(state))
            partial.replace(path)

        add({})
        try:
            yield add
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _open_lock(path: Path) -> int:
    """Open the lock beside a stack's file; the kernel drops what is taken when this process ends, however it ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _take(lock: int, path: Path, wait_s: float) -> None:
    deadline = SystemClock().monotonic() + max(wait_s, LOOKED_AT_S)
    told = wait_s <= 0
    while not _locked(lock, fcntl.LOCK_EX):
        holder = _holder(path)
        is_up = stack_state(path).get("command") == UP
        if SystemClock().monotonic() > deadline or (is_up and wait_s > 0):
            raise ConfigurationError(
                f"{holder} runs the services of {path.parent} already: use it, or stop it first; a deployment of its"
                " own takes another COMBEE_DATA_DIR, or another COMBEE_TOPIC_PREFIX"
            )
        if not told and stack_state(path):
            remark(f"waiting for {holder}, which runs the services of {path.parent} until it is done")
            told = True
        await asyncio.sleep(LOOK_S)


def _locked(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def stack_state(path: Path) -> dict[str, Any]:
    """Return what a stack's file says; empty without a readable one."""
    try:
        found = json.loads(read_trusted(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder(path: Path) -> str:
    """Return who runs services there, for people."""
    state = stack_state(path)
    where = state.get("http") or state.get("bootstrap_servers") or "still starting"
    return f"{state.get('command', 'another command')} (process {state.get('pid', 'unknown')}, {where})"


def _end_orphans(state: Mapping[str, Any]) -> None:
    """End the processes of a stack whose command was killed: a crash that they survive like any other."""
    folder = str(state.get("folder") or "")
    if not folder:
        return
    # Only here: where Kafka is given, as in a container, what the embedded one needs may be missing.
    from combee.adapters.embedded_kafka.process import end_orphans  # noqa: PLC0415

    ended = end_orphans("COMBEE_READY_FILE", Path(folder))
    shutil.rmtree(folder, ignore_errors=True)
    if ended:
        remark(f"ended what a killed {state.get('command', UP)} had left running ({ended} processes)")


def stack_is_running(settings: Settings) -> bool:
    """Return whether ``combee up`` serves the brokers of these settings."""
    path = stack_file(settings)
    if stack_state(path).get("command") != UP:
        return False
    lock = _open_lock(path)
    try:
        return not _locked(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)
