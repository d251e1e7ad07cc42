"""The file that describes the services running on this machine, and the lock that only one command can hold."""

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
from combee.process.running import UP, announce, is_held, state_of
from combee.process.settings.loading import Settings, environment
from combee.process.trusted_files import check_trusted

POLL_S = 0.1
LOOKED_AT_S = 0.5
"""Maximum seconds for which another command holds the lock to check it."""


def data_dir(settings: Settings) -> Path:
    """Return the folder of this user's embedded broker.

    Raises
    ------
    ConfigurationError
        If others may write in it.
    """
    # Imported here: with a configured Kafka, as in a container, the embedded broker's extra may be missing.
    import platformdirs  # noqa: PLC0415 - an extra

    folder = settings.worker.data_dir or Path(platformdirs.user_data_dir("combee"))
    check_trusted(folder)
    return folder


def stack_file(settings: Settings) -> Path:
    """Return the file of the command that runs services for the brokers of these settings."""
    return data_dir(settings) / f"stack-{of_brokers(settings)}.json"


def of_brokers(settings: Settings) -> str:
    """Return the part of file names that identifies these brokers and the topic prefix."""
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
    """Become the only command that runs services for these brokers; end processes that a killed command left.

    Yields a function that adds to the stack's file. The file holds pid and ``command`` from the start, and only its
    owner can read it, because a model's address may hold a password. Waits up to ``wait_s`` for another command, but
    not for ``combee up``, and calls ``tell``. On a cluster, as in a container, no folder is needed: without one no
    lock is held.

    Raises
    ------
    ConfigurationError
        If another command runs services there.
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
        if ended := await asyncio.to_thread(_end_orphans, state_of(path)):
            tell(ended)
        state: dict[str, object] = {"pid": os.getpid(), "command": command, "folder": str(folder)}

        def add(more: Mapping[str, object]) -> None:
            state.update(more)
            partial = path.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_text(json.dumps(state))
            partial.replace(path)

        add({})
        link = announce(path, environment()) if command == UP else None
        try:
            yield add
        finally:
            for file in (path, link):
                if file is not None:
                    file.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _open_lock(path: Path) -> int:
    """Open the lock of a stack's file; the kernel drops the lock when this process ends, even by kill -9."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _take(lock: int, path: Path, wait_s: float, tell: Callable[[str], None]) -> None:
    deadline = SystemClock().monotonic() + max(wait_s, LOOKED_AT_S)
    is_reported = wait_s <= 0
    while not _locked(lock):
        holder = _holder(path)
        is_up = state_of(path).get("command") == UP
        if SystemClock().monotonic() > deadline or (is_up and wait_s > 0):
            raise ConfigurationError(
                f"{holder} runs the services of {path.parent} already: use it, or stop it first; a deployment of its"
                " own takes another COMBEE_DATA_DIR, or another COMBEE_TOPIC_PREFIX"
            )
        if not is_reported and state_of(path):
            tell(f"waiting for {holder}, which runs the services of {path.parent} until it is done")
            is_reported = True
        await asyncio.sleep(POLL_S)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    """Return the command that runs services there, for people."""
    state = state_of(path)
    where = state.get("http") or state.get("bootstrap_servers") or "still starting"
    return f"{state.get('command', 'another command')} (process {state.get('pid', 'unknown')}, {where})"


def _end_orphans(state: Mapping[str, Any]) -> str:
    """End the processes of a stack whose command was killed, and tell the user; they survive it like any crash."""
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
    """Return the address of a running ``combee up``'s embedded broker; None: there is none."""
    state = state_of(stack_file(settings)) if stack_is_running(settings) else {}
    servers = state.get("bootstrap_servers")
    return servers if isinstance(servers, str) else None


def stack_is_running(settings: Settings) -> bool:
    """Return whether ``combee up`` serves the brokers of these settings."""
    path = stack_file(settings)
    return state_of(path).get("command") == UP and is_held(path)
