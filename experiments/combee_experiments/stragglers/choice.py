"""How the two constants were chosen: many batches, drawn times, the product's dealing and time-out, no services.

Quantiles are the distribution's own here; the product learns them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from math import isqrt

from combee.core.batching import shuffle
from combee.core.batching.stragglers import lateness_in_s
from combee_experiments.arms.tails import Tail
from combee_experiments.running.cells import Numbers
from combee_sim.chance import draw

REFLECTIONS = 100
GROUPS = isqrt(REFLECTIONS)
DEALINGS = 20
BATCHES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a combine goes on, and when it is made again."""

    late: float | None
    """Times the median of the siblings; None: it waits for all."""
    quantile: float
    """Of a combine's durations; 1: never."""


def simulate(tail: Tail, rule: Rule, seed: int) -> Numbers:
    """Return mean and 95th percentile of a batch's time, groups left out and hedges per batch."""
    draws = [
        [tail.seconds(draw("stragglers", seed, batch, call)) for call in range(GROUPS + 2)]
        for batch in range(BATCHES)
    ]
    runs = [_batch(times, rule, tail, _dealt(n % DEALINGS)) for n, times in enumerate(draws)]
    seconds = [seconds for seconds, _, _ in runs]
    return {
        "mean_s": sum(seconds) / BATCHES,
        "p95_s": p95(seconds),
        "left_out": sum(left for _, left, _ in runs) / BATCHES,
        "hedges": sum(hedged for _, _, hedged in runs) / BATCHES,
    }


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return nsmallest(int(0.95 * len(values)) + 1, values)[-1]


@lru_cache(maxsize=DEALINGS)
def _dealt(seed: int) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, shuffle.deal(REFLECTIONS, 2, GROUPS, seed)))


def _batch(
    times: Sequence[float], rule: Rule, tail: Tail, groups: Sequence[frozenset[int]]
) -> tuple[float, int, bool]:
    *own, combine, again = times
    in_order = sorted(zip(own, groups, strict=True), key=lambda pair: pair[0])
    start, present = in_order[-1][0], GROUPS
    for count in range(1, GROUPS):
        covered = frozenset[int]().union(*(group for _, group in in_order[:count]))
        if rule.late is not None and len(covered) == REFLECTIONS:
            took = [seconds for seconds, _ in in_order[:count]]
            start = min(start, took[-1] + lateness_in_s(took, rule.late))
            present = sum(seconds <= start for seconds in own)
            break
    slow_s = tail.seconds(rule.quantile) if rule.quantile < 1 else float("inf")
    return start + min(combine, slow_s + again), GROUPS - present, combine > slow_s
