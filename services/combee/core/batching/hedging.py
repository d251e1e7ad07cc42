"""When a slow model call is made a second time: above a learned quantile, within a budget, and not while all is slow.

Pure: times are arguments. One worker learns from its own calls, level by level.
"""

from collections import deque
from itertools import count

QUANTILES = (0.95, 0.6)
"""Quantiles of a level's durations above which a call is repeated: for level 0, with its many calls, and for higher
levels."""
UNUSUAL = 1.25
"""A call is repeated only after this many medians: where all durations are alike, a repeat gains nothing."""
SLOW = 0.9
"""Quantile of a level's durations above which a call indicates a slow server."""
FINISHED = 10
"""Number of last finished calls that, with those under way, show whether the server is slow."""
LEARNED_FROM = 8
"""Number of durations needed to judge a level's calls; until then the level below is used."""
RECENT = 100
"""Maximum number of durations remembered per level."""
SHARE = 0.1
"""Maximum share of calls that may be hedged."""
MAX_SAVED = 3.0
"""Maximum number of hedges saved up in quiet times."""


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
        self._saved = min(MAX_SAVED, self._saved + SHARE)
        number = next(self._numbers)
        self._under_way[number] = level, now
        return number

    def end(self, number: int, now: float, *, answered: bool) -> None:
        """Note the end of a call; only the duration of an answered call is learned.

        If a hedge won, the slow call would have taken even longer; it is above the quantile in any case.
        """
        level, began = self._under_way.pop(number)
        if answered:
            self._were_slow.append(self._is_slow(level, now - began))
            self._recent.setdefault(level, deque(maxlen=RECENT)).append(now - began)

    def after_s(self, level: int) -> float | None:
        """Return the duration after which a call of a level may be repeated; None: too little is known."""
        quantile = self._quantile(level, QUANTILES[min(level, 1)])
        median = self._quantile(level, 0.5)
        return None if quantile is None or median is None else max(quantile, UNUSUAL * median)

    def spend(self, now: float) -> bool:
        """Return whether a slow call may be repeated now; if so, the budget is charged."""
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
