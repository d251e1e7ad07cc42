"""A clock that stands still until a test moves it."""


class ManualClock:
    """The ``Clock`` port; wall and monotonic time move together."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._elapsed_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed_s += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, as an operator or NTP does; monotonic time does not notice."""
        self._wall_ms += int(seconds * 1000)

    def now_ms(self) -> int:
        return self._wall_ms + int(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s
