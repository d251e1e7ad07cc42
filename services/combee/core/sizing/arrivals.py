"""How many reflections arrive per second, from what each version says about its batch."""

from dataclasses import dataclass

from combee.core.sizing.policy import Iteration
from combee_schemas.control import BatchSize

MEMORY = 100
"""Arrivals that the estimate remembers: it is about one part in √(2 · MEMORY) off by chance."""
LONGEST = 3
"""A silence counts for at most this many times the remembered time: it says little about what follows it."""
AT_ONCE = 0.1
"""Share of a delay: batches that close within less of each other are one measurement."""
LEAST_PER_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What is known of the arrivals after a batch."""

    arrivals_per_s: float
    measured_at_ms: int
    arrived: int
    waiting: int


def arrivals_after(state: BatchSize, seen: Iteration) -> Arrivals:
    """Count those that arrived between two closings: the batch itself and what the rest grew by."""
    follows = state.measured_at_ms > 0 and seen.sequence == state.sequence + 1
    arrived = max(0, state.arrived + seen.reflections + seen.waiting - state.waiting) if follows else 0
    passed_s = (seen.closed_at_ms - state.measured_at_ms) / 1000
    if follows and passed_s <= AT_ONCE * max(seen.delay_s, 0.0):
        # A clock that was set back would otherwise hold the estimate until it has caught up.
        since = min(state.measured_at_ms, seen.closed_at_ms)
        return _arrivals(state.arrivals_per_s, since, arrived, seen)
    rate = _rate(state.arrivals_per_s, arrived, passed_s, seen) if follows else state.arrivals_per_s
    return _arrivals(rate, seen.closed_at_ms, 0, seen)


def _arrivals(rate: float, since_ms: int, arrived: int, seen: Iteration) -> Arrivals:
    return Arrivals(
        arrivals_per_s=rate, measured_at_ms=since_ms, arrived=arrived, waiting=max(0, seen.waiting)
    )


def _rate(known: float, arrived: int, passed_s: float, seen: Iteration) -> float:
    """Weigh a measurement against the memory; when a full batch was left behind, believe it if it is more."""
    if not known:
        return arrived / passed_s
    remembered_s = MEMORY / known
    smoothed = (MEMORY + arrived) / (remembered_s + min(passed_s, LONGEST * remembered_s))
    is_behind = seen.waiting >= seen.asked and arrived >= seen.asked
    return max(smoothed, arrived / passed_s if is_behind else 0.0, LEAST_PER_S)
