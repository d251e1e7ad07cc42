"""When a slow model call is made a second time: above a learned quantile, within a budget, and not while all is slow.

Pure: times are arguments. One worker learns from its own calls, level by level.
"""

from collections import deque
from itertools import count

QUANTILES = (0.95, 0.6)
"""Of a level's durations, above which a call is made again: at level 0, where calls are many, and at those above."""
UNUSUAL = 1.25
"""Nor is it made again before it has taken so many medians: where all calls take alike, nothing is gained."""
SLOW = 0.9
"""Quantile of a level's durations above which a call tells that the server is slow."""
FINISHED = 10
"""Calls just finished that tell it, with those under way."""
LEARNED_FROM = 8
"""Durations of a level that it takes to judge its calls; until then the level below stands in."""
RECENT = 100
"""Durations that are remembered per level."""
SHARE = 0.1
"""Hedges per call, at most."""
MOST_SAVED = 3.0
"""So many hedges can be saved up in quiet times."""


class Hedging:
    """The calls of one worker: which take unusually long, and which of these may be made again."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._under_way: dict[int, tuple[int, float]] = {}
        """Number of a call → its level and when it began."""
        self._were_slow: deque[bool] = deque(maxlen=FINISHED)
        self._saved = 0.0
        self._numbers = count()

    def begin(self, level: int, now: float) -> int:
        """Note a call; return its number."""
        self._saved = min(MOST_SAVED, self._saved + SHARE)
        number = next(self._numbers)
        self._under_way[number] = level, now
        return number

    def end(self, number: int, now: float, *, answered: bool) -> None:
        """Note the end of a call; only an answer's time is learned.

        Where a hedge won, the slow call would have taken longer still: above the quantile it is either way.
        """
        level, began = self._under_way.pop(number)
        if answered:
            self._were_slow.append(self._is_slow(level, now - began))
            self._recent.setdefault(level, deque(maxlen=RECENT)).append(now - began)

    def after_s(self, level: int) -> float | None:
        """Return how long a call of a level takes before it may be made again; None: too little is known."""
        quantile = self._quantile(level, QUANTILES[min(level, 1)])
        median = self._quantile(level, 0.5)
        return None if quantile is None or median is None else max(quantile, UNUSUAL * median)

    def take(self, now: float) -> bool:
        """Return whether a slow call may be made again now; if so, it is taken from the budget."""
        slow = [*self._were_slow, *(self._is_slow(level, now - at) for level, at in self._under_way.values())]
        if self._saved < 1 or 2 * sum(slow) >= len(slow):
            return False
        self._saved -= 1
        return True

    def _is_slow(self, level: int, seconds: float) -> bool:
        slow_s = self._quantile(level, SLOW)
        return slow_s is not None and seconds > slow_s

    def _quantile(self, level: int, quantile: float) -> float | None:
        recent = sorted(self._recent.get(level, ()))
        if len(recent) < LEARNED_FROM:
            return self._quantile(level - 1, quantile) if level else None
        return recent[int(quantile * len(recent))] or None
