"""Virtual time: an event loop whose clock jumps to the next timer. Experiments and tests run on it."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Given = TypeVarTuple("Given")


class NothingLeftError(RuntimeError):
    """Everybody waits for somebody else: no timer is set, so time could never go on."""


class _Jumping(selectors.DefaultSelector):
    """Does not wait for a timer: it says how much time it has skipped instead."""

    def __init__(self, *, alone: bool) -> None:
        super().__init__()
        self.skipped_s = 0.0
        self.threads = 0
        """How many threads of the loop's executor are at work."""
        self._alone = alone

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        own_pipe_only = len(self.get_map()) == 1
        if self.threads or not own_pipe_only:
            return super().select(timeout)
        if timeout is None and not self._alone:
            return super().select()
        if ready := super().select(0):
            return ready
        if timeout is None:
            raise NothingLeftError("virtual time stands still: no timer is set and nobody is ready")
        self.skipped_s += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing is left to do before it.

    Deadlines and pauses keep their order and cost no time. It waits as any other loop does for sockets,
    subprocesses and threads of its own.

    ``alone``: it has no sockets and no threads. Then time begins at 0 and only timers move it, so that two runs have
    the same times, and to wait without any timer is an error.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._jumping = _Jumping(alone=alone)
        self._alone = alone
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return seconds: those skipped, and those that passed unless the loop is alone."""
        return self._jumping.skipped_s + (0.0 if self._alone else super().time())

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Given], T], *args: *Given
    ) -> asyncio.Future[T]:
        """Run in a thread, which is waited for in real time."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1

    async def shutdown_default_executor(self, *limits: float) -> None:
        """Wait in real time until the threads have ended."""
        self._jumping.threads += 1
        try:
            await super().shutdown_default_executor(*limits)
        finally:
            self._jumping.threads -= 1


class LoopClock:
    """The ``Clock`` port on the running loop, virtual or not."""

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, in no time at all.

    Raises
    ------
    NothingLeftError
        If all of it waits and no timer is set.
    """
    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, alone=True)) as runner:
        return runner.run(work)
