"""The one place where time is read."""

import time


class SystemClock:
    """The ``Clock`` port on this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
