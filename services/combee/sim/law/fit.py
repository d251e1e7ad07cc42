"""Fitting the overload law to what naive ACE leaves per update, and judging the fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from combee.sim.law.law import LAW, Law
from combee.sim.law.naive import Call, run_naive
from combee_schemas.reflection import Reflection

WANTED: Mapping[int, float] = {1: 0.53, 5: 1.99, 10: 2.4, 20: 3.9, 50: 4.7, 100: 4.2}
"""Batch size → entries per update of naive ACE on 500 Formula samples (method.md section 1)."""
WORST_ALLOWED = 0.35
MEAN_ALLOWED = 0.20
ROUNDS = 4
"""The playbook's growth depends on the law and the law's tokens on the playbook: repeat until it settles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One column of the row: what a simulated update call did on average beside what it should do."""

    batch_size: int
    wanted: float
    updates: int
    distinct: float
    tokens: float
    entries: float

    @property
    def error(self) -> float:
        """How far off, as a signed fraction of what is wanted."""
        return self.entries / self.wanted - 1


Runs = Mapping[int, Sequence[Call]]


def run_all(reflections: Sequence[Reflection], *, seeds: Sequence[int], law: Law = LAW) -> Runs:
    """Run naive aggregation at every batch size of the row, once per seed."""
    return {
        size: [call for seed in seeds for call in run_naive(reflections, size, seed=seed, law=law)[0]]
        for size in WANTED
    }


def points(runs: Runs) -> tuple[Point, ...]:
    """Return the row as the stand-in reproduces it."""
    return tuple(_point(size, calls) for size, calls in runs.items())


def _point(size: int, calls: Sequence[Call]) -> Point:
    return Point(
        batch_size=size,
        wanted=WANTED[size],
        updates=len(calls),
        distinct=sum(call.distinct for call in calls) / len(calls),
        tokens=sum(call.tokens for call in calls) / len(calls),
        entries=sum(call.entries for call in calls) / len(calls),
    )


def within_bounds(row: Sequence[Point]) -> bool:
    """Say whether the law reproduces the row: 35 % at each point, 20 % on average."""
    errors = [abs(point.error) for point in row]
    return max(errors) <= WORST_ALLOWED and sum(errors) / len(errors) <= MEAN_ALLOWED


def fit(reflections: Sequence[Reflection], *, seeds: Sequence[int], start: Law = LAW) -> Law:
    """Return the law with the least mean squared logarithmic error over the row."""
    law = start
    for _ in range(ROUNDS):
        runs = run_all(reflections, seeds=seeds, law=law)
        law = _search(lambda candidate, runs=runs: _loss(candidate, runs), law)  # type: ignore[misc]
    return law


def _loss(law: Law, runs: Runs) -> float:
    """Judge a law on the calls as they were read, without running them again."""
    total = 0.0
    for size, calls in runs.items():
        expected = sum(call.distinct * law.keep_fraction(call.tokens) for call in calls) / len(calls)
        total += math.log(expected / WANTED[size]) ** 2
    return total / len(runs)


def _search(loss: Callable[[Law], float], law: Law) -> Law:
    """Walk down on both constants with steps that halve: two smooth dimensions need no more."""
    step, best = 0.5, loss(law)
    while step > 1e-3:  # noqa: PLR2004  (a tenth of a per cent of either constant)
        neighbours = [
            replace(law, half_tokens=law.half_tokens * math.exp(a), steepness=law.steepness * math.exp(b))
            for a in (-step, 0, step)
            for b in (-step, 0, step)
        ]
        score, nearest = min(
            ((loss(neighbour), neighbour) for neighbour in neighbours), key=lambda pair: pair[0]
        )
        if score < best:
            best, law = score, nearest
        else:
            step /= 2
    return law
