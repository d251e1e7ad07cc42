"""Paired comparison: the ratio of two sides that took turns, with an interval that assumes no distribution."""

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import exp, log
from statistics import median

LEAST_PAIRS = 6
"""Fewer cannot give an interval of 95 %."""
TAIL = 0.025


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio: Wilcoxon's signed ranks of the logarithms, exact.

    Raises
    ------
    ValueError
        If there are too few pairs.
    """
    if len(ratios) < LEAST_PAIRS:
        raise ValueError(f"{len(ratios)} pairs are too few: {LEAST_PAIRS} at least")
    averages = _averages(ratios)
    outside = _outside(len(ratios))
    return exp(averages[outside]), exp(averages[-1 - outside])


def estimate(ratios: Sequence[float]) -> float:
    """Return the ratio that belongs to the interval (Hodges and Lehmann)."""
    return exp(median(_averages(ratios)))


def exceeds(ratios: Sequence[float], limit: float) -> bool:
    """Whether the whole interval lies above ``limit``: noise alone rarely does that."""
    return interval(ratios)[0] > limit


def _averages(ratios: Sequence[float]) -> list[float]:
    """Return the averages of all pairs of logarithms, each with itself too, in order."""
    return sorted((a + b) / 2 for a, b in combinations_with_replacement(map(log, ratios), 2))


def _outside(count: int) -> int:
    """Return how many averages lie beyond each end of the interval."""
    ways = [1]  # of each sum of ranks, over all assignments of signs
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    outside, below = 0, ways[0]
    while below + ways[outside + 1] <= TAIL * 2**count:
        outside += 1
        below += ways[outside]
    return outside
