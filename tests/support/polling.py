"""Waiting, in a test without an event loop, for what tells nobody that it has happened."""

import time
from collections.abc import Callable

LOOK_EVERY_S = 0.2


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds; fail at the deadline, and say what was missing."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come after {timeout_s:.0f} s")
        time.sleep(LOOK_EVERY_S)
