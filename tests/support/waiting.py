"""Waiting for what tells nobody that it has happened."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

Made = TypeVar("Made")
Given = TypeVarTuple("Given")

DEADLINE_S = 20.0
LOOK_EVERY_S = 0.005


async def until(condition: Callable[[], bool], timeout_s: float = DEADLINE_S, what: str = "this") -> None:
    """Wait until a condition of any kind holds; fail at the deadline, and say what was missing."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - any condition, not only one that sets an event
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(f"{what} has not come true after {timeout_s:.0f} s") from None


class NothingLeft(selectors.DefaultSelector):
    """A selector that does not wait for a timer: it says how much time it has skipped instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0
        self.outside = 0
        """How much outside the loop, in threads, is worked on."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        own_pipe_only = len(self.get_map()) == 1
        if not timeout or timeout < 0 or self.outside or not own_pipe_only:
            return super().select(timeout)
        if not (ready := super().select(0)):
            self.skipped_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing is left to do before it.

    Deadlines and pauses keep their order and cost no time. It waits as any other loop does for sockets,
    subprocesses and threads of its own.
    """

    def __init__(self) -> None:
        self._virtual = NothingLeft()
        super().__init__(self._virtual)

    def time(self) -> float:
        return super().time() + self._virtual.skipped_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Given], Made], *args: *Given
    ) -> asyncio.Future[Made]:
        future = super().run_in_executor(executor, func, *args)
        self._virtual.outside += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: asyncio.Future[Any]) -> None:
        self._virtual.outside -= 1
