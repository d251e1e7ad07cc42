"""Processes of this machine (psutil): brokers, orphans, and who listens on a port."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from combee.adapters.embedded_kafka.waiting import until

KILL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """A broker's process: the one with id ``pid`` and ``word`` among its arguments.

    The word is the path of the node's own configuration: another process that gets the same id does not have it. A
    creation time would also tell them apart, but it moves when the system's clock is set.
    """

    pid: int
    word: str

    def alive(self) -> bool:
        """Return whether it runs; a zombie does not."""
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # it is no child of this process
            return self._is_listed()

    def _is_listed(self) -> bool:
        try:
            return self.word in psutil.Process(self.pid).cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it still runs."""
        if self.alive():
            with suppress(ProcessLookupError):  # it may have ended meanwhile
                os.kill(self.pid, number)

    async def stop(self, timeout_s: float) -> None:
        """Ask it to stop, kill it after ``timeout_s``, return when it is gone."""
        self.signal(signal.SIGTERM)
        # A paused process handles the request only once it continues.
        self.signal(signal.SIGCONT)
        if not await self.wait_ended(timeout_s):
            self.signal(signal.SIGKILL)
            await self.wait_ended(KILL_TIMEOUT_S)

    async def wait_ended(self, timeout_s: float) -> bool:
        """Wait until it is gone; return False if it still runs after ``timeout_s``."""
        return await until(lambda: not self.alive(), timeout_s)


def listener(port: int) -> str | None:
    """Return which process listens on a port; None if this user may not know."""
    with suppress(OSError, psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                # Without its arguments, which may hold a secret.
                return f"{psutil.Process(connection.pid).name()}, process {connection.pid}, listens there"
    return None


def end_orphans(variable: str, folder: Path) -> int:
    """End, with kill -9, every process whose environment names a file below ``folder``; return how many."""
    orphans = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and folder in Path(process.environ().get(variable, "")).parents:
                process.kill()
                orphans.append(process)
    psutil.wait_procs(orphans, KILL_TIMEOUT_S)
    return len(orphans)
