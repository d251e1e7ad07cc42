"""The Pareto front of delay and accuracy, and whether a choice lies on it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one batch size costs and gives, on average over the seeds."""

    batch_size: float
    delay_s: float
    accuracy: float

    def beats(self, other: "Point") -> bool:
        """Return whether this is no worse in both and better in one."""
        no_worse = self.delay_s <= other.delay_s and self.accuracy >= other.accuracy
        return no_worse and (self.delay_s, self.accuracy) != (other.delay_s, other.accuracy)


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that none beats, fastest first."""
    best = (one for one in points if not any(other.beats(one) for other in points))
    return tuple(sorted(best, key=lambda one: (one.delay_s, one.batch_size)))


def verdict(choice: Point, sweep: Sequence[Point]) -> str:
    """Say in words and numbers whether a choice lies on the front of a sweep, itself included."""
    beaten_by = [one for one in sweep if one.beats(choice)]
    said = f"batch size {choice.batch_size:g}: {choice.delay_s:,.0f} s, accuracy {choice.accuracy:.3f}"
    if not beaten_by:
        return f"met: {said}; no fixed size is as fast and as good"
    worst = max(beaten_by, key=lambda one: (one.accuracy - choice.accuracy, choice.delay_s - one.delay_s))
    return (
        f"missed: {said}; batch size {worst.batch_size:g} takes {worst.delay_s:,.0f} s"
        f" and gives {worst.accuracy:.3f}"
    )
