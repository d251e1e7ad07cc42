"""The only module that reads the time, and that formats it for people."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The ``Clock`` port on this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


LAST_MS = 253_402_300_799_000
"""The end of the year 9999; producers' clocks and settings may be beyond it."""


def moment(at_ms: int | None, separator: str = " ") -> str:
    """Return a time in UTC, to the second; empty where none was recorded."""
    if not at_ms or at_ms < 0:
        return ""
    return f"{datetime.fromtimestamp(min(at_ms, LAST_MS) / 1000, tz=UTC):%Y-%m-%d{separator}%H:%M:%S}"
