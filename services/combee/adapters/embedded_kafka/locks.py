"""File locks between processes: a lock with a time-out, and the lease of a process that needs a broker."""

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from combee.adapters.embedded_kafka.errors import DirectoryInUseError
from combee.adapters.embedded_kafka.waiting import until


@asynccontextmanager
async def file_lock(path: Path, timeout_s: float, *, what: str) -> AsyncIterator[None]:
    """Hold the lock file ``path``; raise DirectoryInUseError if another process holds it for ``timeout_s``."""
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


class Lease:
    """A process's lock on a broker's lease file; guard.py stops a broker whose lease nobody holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: int | None = None

    def take(self, *, exclusive: bool) -> bool:
        """Take the lock, or change its kind, without waiting; a failed change also loses the old lock."""
        if self._opened is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._opened = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._opened, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def wait(self, timeout_s: float, *, exclusive: bool) -> None:
        """Take the lock; raise DirectoryInUseError if other processes hold it for ``timeout_s``."""
        if not await until(lambda: self.take(exclusive=exclusive), timeout_s):
            self.release()
            raise DirectoryInUseError(
                f"{self.path.parent} belongs to a broker that another process uses. "
                "Wait until that is done, or choose another directory."
            )

    def release(self) -> None:
        """Release the lock; the guard stops the broker once nobody holds one."""
        if self._opened is not None:
            # Closing alone may not unlock: a forked child may share the open file, and with it the lock.
            fcntl.flock(self._opened, fcntl.LOCK_UN)
            os.close(self._opened)
            self._opened = None
