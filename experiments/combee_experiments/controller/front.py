"""The Pareto front of delay and accuracy over the seeds, and what keeps a choice off it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from combee_experiments.running.cells import Spread

NOISE = 2.0
"""A difference of fewer standard errors is not told from none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One number minus another on the same seeds."""

    mean: float
    error: float
    """Of the mean; infinite where there is one seed only."""

    @classmethod
    def of(cls, one: Spread, other: Spread) -> "Difference":
        """Return it seed by seed; both have the same seeds in the same order."""
        pairs = [a - b for a, b in zip(one.values, other.values, strict=True)]
        error = stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.inf
        return cls(mean=fmean(pairs), error=error)

    @property
    def is_clear(self) -> bool:
        """Whether it is larger than the noise, or the same on every seed."""
        return abs(self.mean) > NOISE * self.error or self.error == 0

    def told(self, digits: int) -> str:
        """Return it with its sign, and its standard error where that is more than nothing."""
        error = round(self.error, digits) if self.error < math.inf else 0
        return f"{self.mean:+,.{digits}f}" + (f" ± {error:,.{digits}f}" if error else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one batch size costs and gives."""

    name: str
    """The batch size, as tables print it."""
    delay_s: Spread
    accuracy: Spread

    def beats(self, other: "Point") -> bool:
        """Return whether this is no worse in both means and better in one."""
        mine, its = (self.delay_s.mean, self.accuracy.mean), (other.delay_s.mean, other.accuracy.mean)
        return mine != its and mine[0] <= its[0] and mine[1] >= its[1]

    def __str__(self) -> str:
        return f"batch size {self.name}, {self.delay_s.told(0)} s, accuracy {self.accuracy.told(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A batch size that beats a choice, or may."""

    name: str
    delay_s: Difference
    accuracy: Difference
    beats: bool
    """On the means; otherwise it is clearly better in one, and what it lacks in the other is noise."""

    @property
    def is_clear(self) -> bool:
        """Whether it beats the choice beyond the noise, in both."""
        return self.beats and self.delay_s.is_clear and self.accuracy.is_clear

    def __str__(self) -> str:
        return f"{self.name} ({self.delay_s.told(0)} s, accuracy {self.accuracy.told(3)})"


def rivals(choice: Point, points: Sequence[Point]) -> tuple[Rival, ...]:
    """Return the points that beat a choice, and those that may: none of the former if it lies on the front."""
    compared = (
        Rival(
            name=point.name,
            delay_s=Difference.of(point.delay_s, choice.delay_s),
            accuracy=Difference.of(point.accuracy, choice.accuracy),
            beats=point.beats(choice),
        )
        for point in points
    )
    return tuple(one for one in compared if one.beats or _may_beat(one))


def _may_beat(rival: Rival) -> bool:
    gains = ((-rival.delay_s.mean, rival.delay_s), (rival.accuracy.mean, rival.accuracy))
    is_better = any(gain > 0 and one.is_clear for gain, one in gains)
    return is_better and all(gain >= -NOISE * one.error for gain, one in gains)


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that none beats on the means, fastest first."""
    best = (point for point in points if not any(other.beats(point) for other in points))
    return tuple(sorted(best, key=lambda one: one.delay_s.mean))
