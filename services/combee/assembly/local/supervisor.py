"""Processes of one machine: started, watched, restarted, stopped; none is left behind."""

import asyncio
import ctypes
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from combee.adapters.ports import Clock, ConfigurationError, FatalError

logger = structlog.get_logger()

RESTART_S = 0.2
QUICK_DEATH_S = 5.0
QUICK_DEATHS_LIMIT = 5
MISCONFIGURED = ConfigurationError.exit_code
"""Exit code of a process that needs an operator: it is not restarted."""
KILLED_S = 5.0
"""Seconds for a killed process to end; processes that it started may hold its output open longer."""
PR_SET_PDEATHSIG = 1
TAIL_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process to run: ``command`` with arguments; it creates ``ready_file`` when it is ready."""

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    ready_file: Path
    address: str = ""
    """Address of its health and metrics; empty: none."""
    command: tuple[str, ...] = (sys.executable, "-P", "-m", "combee.cli")


@dataclass(slots=True)
class _Child:
    process: Process
    running: asyncio.subprocess.Process
    started_at: float
    deaths: int = 0
    ends: int = 0
    ends_expected: int = 0
    """Number of ends of the process after the last signal's effect."""
    watch: asyncio.Task[None] | None = None

    def has_ended(self) -> bool:
        return self.ends >= self.ends_expected

    def is_back(self) -> bool:
        return self.has_ended() and self.process.ready_file.exists()


class Supervisor:
    """Owns child processes by pid. ``folder`` takes their logs and ready files."""

    def __init__(self, folder: Path, clock: Clock, on_line: Callable[[str, str], None] | None = None) -> None:
        self.folder = folder
        self._clock = clock
        self._on_line = on_line
        self._children: dict[str, _Child] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = False

    async def start(self, process: Process) -> None:
        """Start a process and keep it running."""
        process.ready_file.unlink(missing_ok=True)
        running = await self._spawn(process)
        child = _Child(process, running, self._clock.monotonic())
        self._children[process.name] = child
        child.watch = asyncio.create_task(self._watch(child))

    async def _spawn(self, process: Process) -> asyncio.subprocess.Process:
        command = (*process.command, *process.arguments, "--die-with-parent")
        with self.log_file(process.name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                env={**process.env, "COMBEE_READY_FILE": str(process.ready_file)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.PIPE if self._on_line else log,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops in order
            )

    def log_file(self, name: str) -> Path:
        """Return the file of a process's output."""
        return self.folder / f"{name}.log"

    async def _watch(self, child: _Child) -> None:
        while True:
            await self._copy_lines(child)
            code = await child.running.wait()
            child.ends += 1
            if self._stopping:
                return
            quick = self._clock.monotonic() - child.started_at < QUICK_DEATH_S
            child.deaths = child.deaths + 1 if quick else 1
            name = child.process.name
            why = {"said": self.tail(name, 1)} if code > 0 else {}
            logger.warning("process_ended", process=name, code=code, deaths=child.deaths, **why)
            # Not after it was ready: a cluster may withdraw a right for a moment.
            refused = code == MISCONFIGURED and not child.process.ready_file.exists()
            if refused or (code in {1, MISCONFIGURED} and child.deaths >= QUICK_DEATHS_LIMIT):
                self._fail(f"{child.process.name} cannot run:\n{self.tail(child.process.name)}")
                return
            child.process.ready_file.unlink(missing_ok=True)
            await asyncio.sleep(RESTART_S)
            if self._stopping:
                return
            child.running = await self._spawn(child.process)
            if self._stopping:  # it did not exist yet when all processes were told to end
                _signal(child, signal.SIGTERM)
            child.started_at = self._clock.monotonic()

    async def _copy_lines(self, child: _Child) -> None:
        if self._on_line is None or child.running.stderr is None:
            return
        with self.log_file(child.process.name).open("ab") as log:
            async for line in child.running.stderr:
                log.write(line)
                self._on_line(child.process.name, line.decode(errors="replace").rstrip())

    def _fail(self, message: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(FatalError(message))

    def tail(self, name: str, count: int = TAIL_LINES) -> str:
        """Return the last lines a process wrote."""
        path = self.log_file(name)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-count:])

    def addresses(self) -> dict[str, str]:
        """Return the addresses of health and metrics, by process."""
        return {
            name: child.process.address for name, child in self._children.items() if child.process.address
        }

    def pid(self, name: str) -> int:
        """Return the pid of a running process."""
        return self._children[name].running.pid

    def send(self, name: str, sign: signal.Signals) -> None:
        """Send a signal to a process (the supervisor restarts it if it ends)."""
        child = self._children[name]
        child.ends_expected = child.ends + 1
        child.running.send_signal(sign)

    async def ended(self, name: str, timeout_s: float) -> None:
        """Wait until a process that was sent a signal has ended."""
        await self._until(self._children[name].has_ended, timeout_s, f"{name} has not ended")

    async def restarted(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until processes that were sent a signal have ended and are ready again."""
        for name in names:
            child = self._children[name]
            await self._until(child.is_back, timeout_s, f"{name} is not ready again")

    async def _until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = self._clock.monotonic() + timeout_s
        while not done():
            self.check()
            if self._clock.monotonic() > deadline:
                raise FatalError(f"{what} after {timeout_s:.0f} s")
            await asyncio.sleep(0.02)

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until every process has been ready once.

        Raises
        ------
        FatalError
            If one cannot run, or the time is over.
        """
        try:
            await self._until(lambda: not self._waiting(), timeout_s, "not every service is ready")
        except FatalError as error:
            tails = "\n".join(f"--- {name}\n{self.tail(name)}" for name in self._waiting())
            raise FatalError(f"{error}\n{tails}") from error

    def _waiting(self) -> list[str]:
        return [c.process.name for c in self._children.values() if not c.process.ready_file.exists()]

    def check(self) -> None:
        """Raise FatalError if a process cannot run."""
        if self._failure.done():
            self._failure.result()

    async def failed(self) -> None:
        """Wait until a process cannot run; raises FatalError then."""
        await asyncio.shield(self._failure)

    async def stop(self, timeout_s: float) -> None:
        """SIGTERM all, then SIGKILL what is left after ``timeout_s``."""
        self._stopping = True
        for child in self._children.values():
            _signal(child, signal.SIGTERM)
        # Each watch ends with its process; a process being restarted is waited for, too.
        watches = [child.watch for child in self._children.values() if child.watch]
        if watches:
            _, late = await asyncio.wait(watches, timeout=timeout_s)
            for child in self._children.values() if late else ():
                _signal(child, signal.SIGKILL)
            _, stuck = await asyncio.wait(watches, timeout=KILLED_S)
            for watch in stuck:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        self._failure.cancel()


def _signal(child: _Child, sign: signal.Signals) -> None:
    if child.running.returncode is None:
        child.running.send_signal(sign)


def die_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent ends, even by kill -9; on other systems do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
