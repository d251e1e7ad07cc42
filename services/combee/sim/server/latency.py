"""How long the stand-in takes: a fixed time, or log-normal times fixed by the call's own hash."""

import math
from dataclasses import dataclass
from statistics import NormalDist

LONGEST_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A median and the standard deviation of its logarithm; ``sigma`` 0 is a fixed time."""

    median_s: float = 0.0
    sigma: float = 0.0

    def seconds(self, chance: float) -> float:
        """Return the time for a draw in [0, 1)."""
        if not self.sigma or not self.median_s:
            return self.median_s
        quantile = NormalDist().inv_cdf(min(max(chance, 1e-9), 1 - 1e-9))
        return min(self.median_s * math.exp(self.sigma * quantile), LONGEST_S)


def parse_latency(text: str) -> Latency:
    """Read ``1.5`` (fixed seconds) or ``lognormal:0.8,0.5`` (median in seconds, sigma).

    Raises
    ------
    ValueError
        If it is neither.
    """
    kind, _, rest = text.partition(":")
    try:
        if kind == "lognormal":
            median, sigma = (float(part) for part in rest.split(","))
        else:
            median, sigma = float(text), 0.0
    except ValueError as error:
        raise ValueError(_expected(text)) from error
    if not (0 <= median <= LONGEST_S and 0 <= sigma <= 5):  # noqa: PLR2004  (more is surely a slip)
        raise ValueError(_expected(text))
    return Latency(median_s=median, sigma=sigma)


def _expected(text: str) -> str:
    return f"latency {text!r}: expected seconds such as 1.5, or lognormal:MEDIAN_S,SIGMA"
