"""When a slow model call is made a second time: above a learned quantile, within a budget, and not while all is slow.

Pure: times are arguments. One worker learns from its own calls, level by level.
"""

from collections import deque
from itertools import count

QUANTILES = (0.95, 0.75)
"""Of the durations at level 0, where copies cover a slow call, and above, where nothing does."""
LEARNED_FROM = 8
"""Durations of a level that it takes to judge its calls."""
RECENT = 100
"""Durations that are remembered per level."""
SHARE = 0.1
"""Hedges per call."""
MOST_SAVED = 3.0
"""So many hedges can be saved up in quiet times."""
FINISHED = 5
"""Calls just finished that tell, with those under way, whether everything is slow."""


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
        """Return how long a call of a level takes before it is slow; None: too little is known."""
        recent = sorted(self._recent.get(level, ()))
        if len(recent) < LEARNED_FROM:
            return None
        return recent[int(QUANTILES[min(level, 1)] * len(recent))] or None

    def take(self, now: float) -> bool:
        """Return whether a slow call may be made again now; if so, it is taken from the budget."""
        slow = [*self._were_slow, *(self._is_slow(level, now - at) for level, at in self._under_way.values())]
        if self._saved < 1 or 2 * sum(slow) >= len(slow):
            return False
        self._saved -= 1
        return True

    def _is_slow(self, level: int, seconds: float) -> bool:
        after_s = self.after_s(level)
        return after_s is not None and seconds >= after_s
