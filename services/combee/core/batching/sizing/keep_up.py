"""Keep-up: the smallest batch size at which the pipeline keeps up with arrivals, changed with hysteresis."""

import math
from dataclasses import dataclass

from combee.core.batching.sizing.plateau import EPOCH, PowerLaw
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_schemas.control import BatchSize

HEADROOM = 1.5
"""Target throughput as a multiple of the arrival rate: arrivals may grow by half without a new size."""
DRAIN = 5
"""Number of iterations within which a backlog should be gone."""
TOLERATED_BATCHES = 2
"""Number of waiting batches that do not yet count as a backlog."""
SLACK = 2.0
"""The size shrinks only if the pipeline could manage this multiple of the needed rate."""
CALM = 5
"""The size shrinks only after this many consecutive batches for which much less would have sufficed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The pipeline's measured capacity."""

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
    """Arrivals and backlog."""

    arrivals_per_s: float
    drain_per_s: float

    @property
    def needed_per_s(self) -> float:
        """The rate that the pipeline should manage, with headroom."""
        return HEADROOM * self.arrivals_per_s + self.drain_per_s

    @property
    def tight_per_s(self) -> float:
        """The rate below which half of the headroom is gone."""
        return (1 + HEADROOM) / 2 * self.arrivals_per_s + self.drain_per_s


MEASURED = 4
"""Minimum number of measured sizes: with three noisy ones, sizes turn back three times as often."""


def measured_keeps_up(state: BatchSize, policy: SizingPolicy, *, below: int) -> bool:
    """Return whether a size below ``below`` was measured to manage the arrivals with headroom."""
    if not state.arrivals_per_s or len(state.observations) < MEASURED:
        return False
    return any(
        policy.in_flight * observation.batch_size / observation.delay_s >= HEADROOM * state.arrivals_per_s
        and state.waiting <= TOLERATED_BATCHES * observation.batch_size
        for observation in state.observations
        if observation.batch_size < below
    )


def demand(pipeline: Pipeline, arrivals_per_s: float, *, waiting: int, size: int) -> Demand:
    """Return the demand on a pipeline with ``waiting`` reflections left behind by a batch of ``size``."""
    backlog = max(0, waiting - TOLERATED_BATCHES * size)
    drain_s = DRAIN * pipeline.slowness * pipeline.fit.delay_s(size)
    return Demand(arrivals_per_s=arrivals_per_s, drain_per_s=backlog / drain_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStep:
    """The next size, and the number of batches for which much less would have sufficed."""

    size: int
    calm: int


def step(pipeline: Pipeline, wanted: Demand, *, standing: int, calm: int, least: int, most: int) -> SizeStep:
    """Return the next size: larger at once when capacity is tight, smaller only after a calm period."""
    size = pipeline.smallest_for(wanted.needed_per_s, least=least, most=most)
    if standing > most:
        return SizeStep(size=size, calm=0)
    capacity = pipeline.capacity_per_s(standing)
    if size > standing:
        return SizeStep(size=size if capacity < wanted.tight_per_s else standing, calm=0)
    is_roomy = size < standing and capacity > SLACK * wanted.needed_per_s
    if not is_roomy:
        return SizeStep(size=standing, calm=0)
    return SizeStep(size=size, calm=0) if calm + 1 >= CALM else SizeStep(size=standing, calm=calm + 1)


MEMORY = 100
"""Number of arrivals in the estimate's memory; its standard error is about one part in √(2 · MEMORY)."""
AT_ONCE = 0.1
"""Share of a delay: batches that close within less than this of each other are one measurement."""
SURPRISE = 5.0
"""Number of standard deviations at which a jump is believed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRate:
    """Arrivals per second, and the number of arrivals behind the estimate."""

    per_s: float
    remembered: int


def arrivals_after(state: BatchSize, seen: Iteration) -> dict[str, float]:
    """Return the decision's fields about arrivals after a batch.

    Arrivals between two closings are the batch's members plus the growth of the rest.
    """
    follows = state.measured_at_ms > 0 and seen.sequence == state.sequence + 1
    arrived = max(0, state.arrived + seen.reflections + seen.waiting - state.waiting) if follows else 0
    passed_s = (seen.closed_at_ms - state.measured_at_ms) / 1000
    rate, since_ms = ArrivalRate(per_s=state.arrivals_per_s, remembered=state.remembered), seen.closed_at_ms
    if follows and passed_s <= AT_ONCE * max(seen.delay_s, 0.0):
        # Otherwise a clock that was set back would freeze the estimate until it has caught up.
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


def _after(known: ArrivalRate, arrived: int, passed_s: float) -> ArrivalRate:
    """Weigh a measurement against the memory; a jump clears the memory."""
    measured = ArrivalRate(per_s=arrived / passed_s, remembered=min(MEMORY, arrived))
    if not known.remembered:
        return measured
    expected = known.per_s * passed_s
    if arrived - expected > SURPRISE * math.sqrt(expected):
        return measured
    smoothed = (known.remembered + arrived) / (known.remembered / known.per_s + passed_s)
    return ArrivalRate(per_s=smoothed, remembered=min(MEMORY, known.remembered + arrived))
