"""Waiting for what tells nobody that it has happened."""

import asyncio
import time
from collections.abc import Callable

DEADLINE_S = 20.0
LOOK_EVERY_S = 0.002
LOOK_SELDOM_S = 0.2


async def until(condition: Callable[[], object], timeout_s: float = DEADLINE_S, what: str = "this") -> None:
    """Wait until a condition of any kind holds; fail at the deadline, and say what was missing."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - any condition, not only one that sets an event
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(f"{what} has not come true after {timeout_s:.0f} s") from None


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Do the same without an event loop, for conditions that take a process or a request to look at."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what} has not come after {timeout_s:.0f} s"
        time.sleep(LOOK_SELDOM_S)
