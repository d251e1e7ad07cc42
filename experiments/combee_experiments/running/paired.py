"""Differences between arms that had the same luck: paired by seed, with an interval that assumes no distribution."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import fmean

DRAWS = 4_000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean difference over the seeds, and its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    def told(self, digits: int = 1) -> str:
        """Return ``mean (low to high, n pairs)``."""
        mean, low, high = (f"{number:+,.{digits}f}" for number in (self.mean, self.low, self.high))
        return f"{mean} ({low} to {high}, {self.pairs} pairs)"


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference:
    """Return ours − theirs over the seeds that both have: a percentile bootstrap of the mean.

    Raises
    ------
    ValueError
        If no seed is in both.
    """
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not differences:
        raise ValueError("no seed was measured with both arms")
    drawing = Random(len(differences))  # noqa: S311 - reproducible, not secret
    means = sorted(fmean(drawing.choices(differences, k=len(differences))) for _ in range(DRAWS))
    outside = round(DRAWS * (1 - CONFIDENCE) / 2)
    return Difference(
        mean=fmean(differences), low=means[outside], high=means[-1 - outside], pairs=len(differences)
    )
