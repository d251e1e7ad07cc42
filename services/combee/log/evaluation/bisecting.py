"""Finding the version that lowered accuracy on held-out questions, by evaluating few versions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from combee.core.evaluation.intervals import Interval, paired
from combee.log.evaluation.evaluator import Evaluated

Worth = Callable[[int], Awaitable[Evaluated]]
"""Evaluates a version by its number."""


@dataclass(slots=True, kw_only=True)
class Bisected:
    """The result of a bisection."""

    ends: Interval
    """The last version minus the first."""
    evaluated: dict[int, Evaluated] = field(default_factory=dict)
    """All evaluated versions, by number."""
    good: int = 0
    bad: int = 0
    """The version after ``good``; 0: the ends do not differ enough to search."""

    @property
    def step(self) -> Interval:
        """The bad version minus the version before; after a gradual fall the difference may be within chance."""
        return paired(self.evaluated[self.bad].points, self.evaluated[self.good].points)


async def bisect(first: int, last: int, worth: Worth) -> Bisected:
    """Return the version at which the score fell below the middle of both ends: O(log versions) evaluations.

    If it fell more than once, one of the falls is returned.
    """
    evaluated = {first: await worth(first), last: await worth(last)}
    ends = paired(evaluated[last].points, evaluated[first].points)
    bisected = Bisected(ends=ends, evaluated=evaluated)
    if not ends.is_significant or ends.mean > 0:
        return bisected
    middle = (evaluated[first].score.mean + evaluated[last].score.mean) / 2
    good, bad = first, last
    while bad - good > 1:
        between = (good + bad) // 2
        evaluated[between] = await worth(between)
        if evaluated[between].score.mean >= middle:
            good = between
        else:
            bad = between
    bisected.good, bisected.bad = good, bad
    return bisected
