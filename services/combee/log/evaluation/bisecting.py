"""After which version a playbook got worse: held-out questions asked about few of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from combee.core.evaluation.intervals import Interval, paired
from combee.log.evaluation.evaluator import Evaluated

Worth = Callable[[int], Awaitable[Evaluated]]
"""From a version's number to what it is worth."""


@dataclass(slots=True, kw_only=True)
class Bisected:
    """What was found."""

    ends: Interval
    """The last version minus the first."""
    evaluated: dict[int, Evaluated] = field(default_factory=dict)
    """Every version that was asked about."""
    good: int = 0
    bad: int = 0
    """The version after ``good``; 0: the ends do not differ enough to look any further."""

    @property
    def step(self) -> Interval:
        """The bad version minus the one before: where a score fell little by little it may be within chance."""
        return paired(self.evaluated[self.bad].points, self.evaluated[self.good].points)


async def bisect(first: int, last: int, worth: Worth) -> Bisected:
    """Return the version at which the score fell below the middle of both ends: O(log versions) evaluations.

    Where it fell more than once, it is one of the falls.
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
