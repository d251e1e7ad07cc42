"""Rates: how fast an offset grows."""

from collections import deque

SPAN_MS = 10_000


class Rate:
    """Counts seen over the last 10 s."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def add(self, count: int, at_ms: int) -> None:
        """Note a count that only grows."""
        self._seen.append((at_ms, count))
        while len(self._seen) > 2 and self._seen[1][0] <= at_ms - SPAN_MS:  # noqa: PLR2004 - a rate has two ends
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        """Growth per second between the oldest and the newest count; 0 with one alone."""
        if not self._seen:
            return 0.0
        (first_ms, first), (last_ms, last) = self._seen[0], self._seen[-1]
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else 0.0
