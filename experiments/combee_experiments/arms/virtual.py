"""Virtual time: an event loop whose clock jumps to its next timer as soon as nothing else is left to do."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingLeftError(RuntimeError):
    """Everybody waits for somebody else: no timer is set, so time could never go on."""


class _Jumping(selectors.SelectSelector):
    """Never waits: what a real selector would sleep, the clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise NothingLeftError("virtual time stands still: no timer is set and nobody is ready")
        self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; threads and sockets have no place in it."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._jumping.now_s


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
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
