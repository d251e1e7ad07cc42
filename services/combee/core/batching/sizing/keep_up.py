"""Keep-up: the smallest batch size at which the pipeline keeps up with arrivals, changed with hysteresis."""

import math
from dataclasses import dataclass

from combee.core.batching.sizing.plateau import EPOCH, PowerLaw
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_schemas.control import BatchSize

HEADROOM = 1.5
"""Times the arrival rate that batches should manage: arrivals that come by half faster need no other size."""
DRAIN = 5
"""Iterations within which a backlog should be gone."""
FEW = 2
"""Batches that may wait without being a backlog."""
SLACK = 2.0
"""Smaller only where this many times what is needed could be managed."""
CALM = 5
"""Smaller only after so many batches in a row for which much less would have done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What the pipeline manages."""

    fit: PowerLaw
    slowness: float
    in_flight: int

    def capacity_per_s(self, batch_size: int) -> float:
        """Return the throughput in reflections per second: batches in flight · b / d(b)."""
        return self.in_flight * EPOCH / (self.slowness * self.fit.at(batch_size))

    def smallest_for(self, per_s: float, *, least: int, most: int) -> int:
        """Return the smallest size that manages a rate, between two bounds."""
        if self.fit.alpha <= 0 or per_s <= self.capacity_per_s(least):
            return least
        if per_s >= self.capacity_per_s(most):
            return most
        times = per_s / self.capacity_per_s(least)
        # In logarithms: a power of 1/α overflows for an α near 0.
        exact = math.log(least) + math.log(times) / self.fit.alpha
        return most if exact >= math.log(most) else max(least, math.ceil(math.exp(exact)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What arrives, and what waits already."""

    arrivals_per_s: float
    drain_per_s: float

    @property
    def needed_per_s(self) -> float:
        """What the pipeline should manage, head-room included."""
        return HEADROOM * self.arrivals_per_s + self.drain_per_s

    @property
    def tight_per_s(self) -> float:
        """Below this, half of the head-room is gone."""
        return (1 + HEADROOM) / 2 * self.arrivals_per_s + self.drain_per_s


MEASURED = 4
"""Sizes to measure at least: with three noisy ones sizes turn back three times as often."""


def measured_keeps_up(state: BatchSize, policy: SizingPolicy, *, below: int) -> bool:
    """Return whether a smaller size than ``below`` was measured to manage what arrives, with its head-room."""
    if not state.arrivals_per_s or len(state.observations) < MEASURED:
        return False
    return any(
        policy.in_flight * observation.batch_size / observation.delay_s >= HEADROOM * state.arrivals_per_s
        and state.waiting <= FEW * observation.batch_size
        for observation in state.observations
        if observation.batch_size < below
    )


def demand(pipeline: Pipeline, arrivals_per_s: float, *, waiting: int, size: int) -> Demand:
    """Return the demand on a pipeline with ``waiting`` reflections left behind by a batch of ``size``."""
    backlog = max(0, waiting - FEW * size)
    drain_s = DRAIN * pipeline.slowness * pipeline.fit.delay_s(size)
    return Demand(arrivals_per_s=arrivals_per_s, drain_per_s=backlog / drain_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next size, and for how many batches much less would have done."""

    size: int
    calm: int


def step(pipeline: Pipeline, wanted: Demand, *, standing: int, calm: int, least: int, most: int) -> Step:
    """Return the next size: larger at once when it gets tight, smaller only after a calm while."""
    size = pipeline.smallest_for(wanted.needed_per_s, least=least, most=most)
    if standing > most:
        return Step(size=size, calm=0)
    capacity = pipeline.capacity_per_s(standing)
    if size > standing:
        return Step(size=size if capacity < wanted.tight_per_s else standing, calm=0)
    is_roomy = size < standing and capacity > SLACK * wanted.needed_per_s
    if not is_roomy:
        return Step(size=standing, calm=0)
    return Step(size=size, calm=0) if calm + 1 >= CALM else Step(size=standing, calm=calm + 1)


MEMORY = 100
"""Arrivals that the estimate remembers: it is about one part in √(2 · MEMORY) off by chance."""
AT_ONCE = 0.1
"""Share of a delay: batches that close within less of each other are one measurement."""
SURPRISE = 5.0
"""Standard deviations above what chance explains at which a jump is believed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Arrivals per second, and the number of arrivals that this rests on."""

    per_s: float
    remembered: int


def arrivals_after(state: BatchSize, seen: Iteration) -> dict[str, float]:
    """Return the fields of the decision that tell of arrivals, after a batch.

    Between two closings arrived what the batch took and what the rest grew by.
    """
    follows = state.measured_at_ms > 0 and seen.sequence == state.sequence + 1
    arrived = max(0, state.arrived + seen.reflections + seen.waiting - state.waiting) if follows else 0
    passed_s = (seen.closed_at_ms - state.measured_at_ms) / 1000
    rate, since_ms = Rate(per_s=state.arrivals_per_s, remembered=state.remembered), seen.closed_at_ms
    if follows and passed_s <= AT_ONCE * max(seen.delay_s, 0.0):
        # A clock that was set back would otherwise hold the estimate until it has caught up.
        since_ms = min(state.measured_at_ms, seen.closed_at_ms)
    elif follows:
        rate, arrived = _after(rate, arrived, passed_s), 0
    return {
        "arrivals_per_s": rate.per_s,
        "remembered": rate.remembered,
        "measured_at_ms": since_ms,
        "arrived": arrived,
        "waiting": max(0, seen.waiting),
    }


def _after(known: Rate, arrived: int, passed_s: float) -> Rate:
    """Weigh a measurement against the memory; forget all that was before a jump."""
    measured = Rate(per_s=arrived / passed_s, remembered=min(MEMORY, arrived))
    if not known.remembered:
        return measured
    expected = known.per_s * passed_s
    if arrived - expected > SURPRISE * math.sqrt(expected):
        return measured
    smoothed = (known.remembered + arrived) / (known.remembered / known.per_s + passed_s)
    return Rate(per_s=smoothed, remembered=min(MEMORY, known.remembered + arrived))
