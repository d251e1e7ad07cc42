"""The paper's controller: profile each batch size, fit a power law, and take the size where it flattens."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from combee.core.batching.sizing.policy import Iteration
from combee_schemas.control import BatchSize, Observation

TAU_SHARE = 0.016
"""τ as a share of the steepest slope, which is at the smallest candidate (the paper's 1.6 %)."""
FEWEST = 2
EPOCH = 1000
"""Reflections per epoch where there are no epochs. It scales A and τ alike and cancels in every choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """T(b) = A · b^(−α), and the quality of the fit."""

    a: float
    alpha: float
    r_squared: float

    def at(self, batch_size: float) -> float:
        """Return T(b)."""
        return self.a * math.pow(batch_size, -self.alpha)

    def delay_s(self, batch_size: float) -> float:
        """Return the delay of one iteration."""
        return self.at(batch_size) * batch_size / EPOCH


def epoch_s(batch_size: int, delay_s: float) -> float:
    """Return T(b) = d(b) · N / b: how long an epoch takes."""
    return delay_s * EPOCH / batch_size


def fit_power_law(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Fit T(b) by least squares in log–log; ``points`` are (b, T).

    None if there is no fit: fewer than two batch sizes, or a value that is not positive and finite.
    """
    if len({b for b, _ in points}) < FEWEST or not all(0 < x < math.inf for point in points for x in point):
        return None
    x, y = [math.log(b) for b, _ in points], [math.log(t) for _, t in points]
    slope, intercept = statistics.linear_regression(x, y)
    mean = statistics.fmean(y)
    spread = sum((value - mean) ** 2 for value in y)
    missed = sum((value - intercept - slope * at) ** 2 for at, value in zip(x, y, strict=True))
    try:
        a = math.exp(intercept)
    except OverflowError:
        return None
    # A flat line has nothing to explain.
    return PowerLaw(a=a, alpha=-slope, r_squared=1 - missed / spread if spread else 1.0) if a else None


def tau(fit: PowerLaw, smallest: int) -> float:
    """Return the slope that counts as flat (seconds of an epoch per unit of batch size)."""
    return TAU_SHARE * fit.alpha * fit.at(smallest) / smallest


def plateau(fit: PowerLaw | None, *, smallest: int, most: int) -> int:
    """Return b* = (αA/τ)^(1/(α+1)), at most ``most``; the smallest candidate if the fit is degenerate.

    With τ relative to the slope at the smallest candidate b0, A cancels: b* = b0 · 62.5^(1/(1+α)).
    """
    if fit is None or fit.alpha <= 0:
        return smallest
    return min(most, round(smallest * math.pow(1 / TAU_SHARE, 1 / (1 + fit.alpha))))


MAX_UNFILLED = 3
"""Maximum number of consecutive unfair measurements before a candidate, and all larger ones, are given up."""
MEMORY = 0.9
"""Weight of the known slowness against a new delay."""
CLIP = 8.0
"""Maximum factor by which one delay counts as slower or faster: an outage is not a new normal."""
DRIFT = 2.0
"""Delays have drifted beyond this factor, times the fit's own error (itself limited to this factor)."""
QUIET = 20
"""Number of batches after a profile before drift can start another one."""


def fitted(state: BatchSize) -> PowerLaw | None:
    """Return the fit through the observations."""
    points = [
        (observation.batch_size, epoch_s(observation.batch_size, observation.delay_s))
        for observation in state.observations
    ]
    return fit_power_law(points)


def observed(state: BatchSize, seen: Iteration) -> tuple[Observation, ...]:
    """Return the observations with this one, if it is a fair one of the smallest unobserved candidate.

    A larger start value is not fair: a playbook's first lessons take longer to write than any later ones.
    """
    if not seen.is_fair or seen.asked not in missing(state)[:1]:
        return state.observations
    made = Observation(batch_size=seen.asked, delay_s=seen.delay_s)
    return tuple(sorted((*state.observations, made), key=lambda observation: observation.batch_size))


def missing(state: BatchSize) -> list[int]:
    """Return the candidates without an observation."""
    known = {observation.batch_size for observation in state.observations}
    return [candidate for candidate in state.candidates if candidate not in known]


def slowness_after(known: float, fit: PowerLaw | None, seen: Iteration) -> float:
    """Return the smoothed factor by which delays exceed the fit, after a batch."""
    if fit is None or not seen.is_fair:
        return known
    ratio = min(CLIP, max(1 / CLIP, seen.delay_s / fit.delay_s(seen.asked)))
    return float(known**MEMORY * ratio ** (1 - MEMORY))


def profile_again(state: BatchSize, fit: PowerLaw | None) -> str:
    """Return why a new profile is needed; empty if the observations still hold."""
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
    """Return whether delays differ from the fit by more than its initial error."""
    missed = max(
        abs(math.log(observation.delay_s / fit.delay_s(observation.batch_size)))
        for observation in state.observations
    )
    return abs(math.log(state.slowness)) > math.log(DRIFT) + min(missed, math.log(DRIFT))
