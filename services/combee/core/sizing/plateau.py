"""The paper's controller: a power law through profiled batch sizes, and where it has flattened."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TAU_SHARE = 0.016
"""τ as a share of the steepest slope, which a power law has at the smallest candidate (the paper's 1.6 %)."""
FEWEST = 2
EPOCH = 1000
"""Reflections per epoch where there are no epochs. It scales A and τ alike and cancels in every choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """T(b) = A · b^(−α), and how well it fits."""

    a: float
    alpha: float
    r_squared: float

    def at(self, batch_size: float) -> float:
        """Return T(b)."""
        return self.a * math.pow(batch_size, -self.alpha)

    def delay_s(self, batch_size: float, samples: int = EPOCH) -> float:
        """Return the delay of one iteration."""
        return self.at(batch_size) * batch_size / samples


def epoch_s(batch_size: int, delay_s: float, samples: int = EPOCH) -> float:
    """Return T(b) = d(b) · N / b: how long an epoch over ``samples`` takes."""
    return delay_s * samples / batch_size


def fit_power_law(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Fit T(b) by least squares in log–log; ``points`` are (b, T).

    None if there is no fit: fewer than two batch sizes, or something that is not positive and finite.
    """
    if len({b for b, _ in points}) < FEWEST or not all(0 < x < math.inf for point in points for x in point):
        return None
    x, y = [math.log(b) for b, _ in points], [math.log(t) for _, t in points]
    slope, intercept = statistics.linear_regression(x, y)
    mean = statistics.fmean(y)
    spread = sum((one - mean) ** 2 for one in y)
    missed = sum((one - intercept - slope * at) ** 2 for at, one in zip(x, y, strict=True))
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
