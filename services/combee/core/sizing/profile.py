"""Profiling: one full batch per candidate, and the fit through what they took."""

import math

from combee.core.sizing.plateau import PowerLaw, epoch_s, fit_power_law
from combee.core.sizing.policy import Iteration
from combee_schemas.control import BatchSize, Observation

PATIENCE = 3
"""Batches in a row that may be no fair measurement of a candidate before it is given up, and larger ones too."""
MEMORY = 0.9
"""Weight of what is known of the slowness against a new delay."""
CLIP = 8.0
"""One delay counts as at most so many times slower or faster: an outage is not a new normal."""
DRIFT = 2.0
"""Beyond this factor, times what the fit itself misses by (at most as much again), delays have drifted."""
QUIET = 20
"""Batches that a new profile stands before drift can start another one."""


def fitted(state: BatchSize) -> PowerLaw | None:
    """Return the fit through the observations."""
    points = [(one.batch_size, epoch_s(one.batch_size, one.delay_s)) for one in state.observations]
    return fit_power_law(points)


def observed(state: BatchSize, seen: Iteration) -> tuple[Observation, ...]:
    """Return the observations with this one, if it is the first fair one of a candidate."""
    known = {one.batch_size for one in state.observations}
    if not seen.is_fair or seen.asked not in state.candidates or seen.asked in known:
        return state.observations
    made = Observation(batch_size=seen.asked, delay_s=seen.delay_s)
    return tuple(sorted((*state.observations, made), key=lambda one: one.batch_size))


def missing(state: BatchSize) -> list[int]:
    """Return the candidates without an observation."""
    known = {one.batch_size for one in state.observations}
    return [one for one in state.candidates if one not in known]


def slowness_after(known: float, fit: PowerLaw | None, seen: Iteration) -> float:
    """Return by how much delays exceed the fit, smoothed, after a batch."""
    if fit is None or not seen.is_fair:
        return known
    ratio = min(CLIP, max(1 / CLIP, seen.delay_s / fit.delay_s(seen.asked)))
    return float(known**MEMORY * ratio ** (1 - MEMORY))


def profile_again(state: BatchSize, fit: PowerLaw | None) -> str:
    """Return why the observations are no longer believed; empty if they are."""
    if fit is None or state.settled_for < QUIET:
        return ""
    if has_drifted(state, fit):
        slow = state.slowness
        factor = f"{slow:.1f} times" if slow > 1 else f"{100 * slow:.0f} % of"
        return f"profiling again: delays have drifted to {factor} what the fit says"
    if fit.alpha <= 0 and state.waiting >= state.candidates[-1]:
        return f"profiling again: {state.waiting} wait, and larger batches took no less time when measured"
    return ""


def has_drifted(state: BatchSize, fit: PowerLaw) -> bool:
    """Return whether delays are no longer what the fit says, beyond what it missed from the start."""
    missed = max(abs(math.log(one.delay_s / fit.delay_s(one.batch_size))) for one in state.observations)
    return abs(math.log(state.slowness)) > math.log(DRIFT) + min(missed, math.log(DRIFT))
