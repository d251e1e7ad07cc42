"""The file by which whoever runs services on this machine says so, beside a lock that only one can hold."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from combee.adapters.clock import SystemClock
from combee.adapters.ports import ConfigurationError
from combee.process.settings.group import check_trusted, read_trusted
from combee.process.settings.loading import Settings

UP = "combee up"
LOOK_S = 0.1
LOOKED_AT_S = 0.5
"""Others look at the lock by taking it for a moment."""


def data_dir(settings: Settings) -> Path:
    """Return the folder of this user's embedded broker.

    Raises
    ------
    SettingsError
        If others may write in it.
    """
    # Only here: where Kafka is given, as in a container, what the embedded one needs may be missing.
    import platformdirs  # noqa: PLC0415 - an extra

    folder = settings.worker.data_dir or Path(platformdirs.user_data_dir("combee"))
    check_trusted(folder)
    return folder


def stack_file(settings: Settings) -> Path:
    """Return where whoever runs services for the brokers of these settings says so."""
    return data_dir(settings) / f"stack-{of_brokers(settings)}.json"


def of_brokers(settings: Settings) -> str:
    """Return what the files about a topic prefix on these brokers have in their names."""
    servers = settings.kafka.bootstrap_servers
    cluster = f"@{hashlib.sha256(servers.encode()).hexdigest()[:16]}" if servers else ""
    return f"{settings.kafka.topic_prefix}{cluster}"


@asynccontextmanager
async def sole_stack(
    settings: Settings,
    command: str,
    folder: Path,
    *,
    wait_s: float = 0.0,
    tell: Callable[[str], None],
) -> AsyncIterator[Callable[[Mapping[str, object]], None]]:
    """Be the one that runs services here for the brokers of these settings; what a killed one left behind is ended.

    Yields what adds to the stack's file, which holds pid and ``command`` from the start and is for its owner alone:
    a model's address may hold a password. Waits up to ``wait_s`` for another command, but not for ``combee up``;
    ``tell`` hears of that. On a cluster, such as in a container, nothing needs a folder here: without one nothing
    is held.

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
        await _take(lock, path, wait_s, tell)
        if ended := await asyncio.to_thread(_end_orphans, stack_state(path)):
            tell(ended)
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


async def _take(lock: int, path: Path, wait_s: float, tell: Callable[[str], None]) -> None:
    deadline = SystemClock().monotonic() + max(wait_s, LOOKED_AT_S)
    is_reported = wait_s <= 0
    while not _locked(lock, fcntl.LOCK_EX):
        holder = _holder(path)
        is_up = stack_state(path).get("command") == UP
        if SystemClock().monotonic() > deadline or (is_up and wait_s > 0):
            raise ConfigurationError(
                f"{holder} runs the services of {path.parent} already: use it, or stop it first; a deployment of its"
                " own takes another COMBEE_DATA_DIR, or another COMBEE_TOPIC_PREFIX"
            )
        if not is_reported and stack_state(path):
            tell(f"waiting for {holder}, which runs the services of {path.parent} until it is done")
            is_reported = True
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
        state = json.loads(read_trusted(path))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _holder(path: Path) -> str:
    """Return who runs services there, for people."""
    state = stack_state(path)
    where = state.get("http") or state.get("bootstrap_servers") or "still starting"
    return f"{state.get('command', 'another command')} (process {state.get('pid', 'unknown')}, {where})"


def _end_orphans(state: Mapping[str, Any]) -> str:
    """End the processes of a stack whose command was killed, and say so; a crash that they survive like any other."""
    folder = str(state.get("folder") or "")
    if not folder:
        return ""
    from combee.adapters.embedded_kafka.process import end_orphans  # noqa: PLC0415 - an extra

    ended = end_orphans("COMBEE_READY_FILE", Path(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return (
        f"ended what a killed {state.get('command', UP)} had left running ({ended} processes)"
        if ended
        else ""
    )


def stack_servers(settings: Settings) -> str | None:
    """Return where the embedded broker of a ``combee up`` that runs answers; None where there is none."""
    state = stack_state(stack_file(settings)) if stack_is_running(settings) else {}
    servers = state.get("bootstrap_servers")
    return servers if isinstance(servers, str) else None


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
