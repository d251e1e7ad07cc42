"""How many reflections arrive per second, from what each version says about its batch."""

import math
from dataclasses import dataclass

from combee.core.sizing.policy import Iteration
from combee_schemas.control import BatchSize

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
