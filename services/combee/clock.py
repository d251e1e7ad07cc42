"""The one place where time is read, and where it is written for people."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The ``Clock`` port on this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def moment(at_ms: int | None, separator: str = " ") -> str:
    """Return a time in UTC, to the second; empty where none was recorded."""
    if not at_ms or at_ms < 0:
        return ""
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d{separator}%H:%M:%S}"
