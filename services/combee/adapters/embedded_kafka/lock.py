"""A lock file between processes, awaited with a deadline (filelock)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from combee.adapters.embedded_kafka.errors import DirectoryInUseError
from combee.adapters.embedded_kafka.waiting import until


@asynccontextmanager
async def held(path: Path, timeout_s: float, *, what: str) -> AsyncIterator[None]:
    """Hold the lock file ``path``. DirectoryInUseError: another process kept it for ``timeout_s``."""
    lock = FileLock(path, thread_local=False)
    if not await until(lambda: _taken(lock), timeout_s):
        raise DirectoryInUseError(
            f"Another process has held {what} for {timeout_s:.0f} s ({path}). "
            "Wait until it is done, or end it, and try again."
        )
    try:
        yield
    finally:
        lock.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True
