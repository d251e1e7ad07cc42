"""How long the stand-in takes: a fixed time, or log-normal or Pareto times fixed by the call's own hash."""

import math
from dataclasses import dataclass
from statistics import NormalDist

LONGEST_S = 3_600.0
SECOND = {"lognormal": "sigma", "pareto": "shape"}
"""Name of a law's second parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A median and the standard deviation of its logarithm, or a Pareto ``shape``; with neither a fixed time."""

    median_s: float = 0.0
    sigma: float = 0.0
    shape: float = 0.0

    def seconds(self, chance: float) -> float:
        """Return the time for a draw in [0, 1)."""
        if self.shape:
            return min(self.median_s * math.pow(2.0 * (1.0 - chance), -1.0 / self.shape), LONGEST_S)
        if not self.sigma or not self.median_s:
            return self.median_s
        quantile = NormalDist().inv_cdf(min(max(chance, 1e-9), 1 - 1e-9))
        return min(self.median_s * math.exp(self.sigma * quantile), LONGEST_S)


def parse_latency(text: str) -> Latency:
    """Read ``1.5`` (fixed), ``lognormal:0.8,0.5`` (median in seconds, sigma) or ``pareto:0.8,1.6`` (median, shape).

    Raises
    ------
    ValueError
        If the text is none of these.
    """
    kind, _, rest = text.partition(":")
    try:
        median, second = map(float, rest.split(",")) if kind in SECOND else (float(text), 0.0)
    except ValueError as error:
        raise ValueError(_expected(text)) from error
    if not (0 <= median <= LONGEST_S and 0 <= second <= 5):  # noqa: PLR2004  (more is surely a slip)
        raise ValueError(_expected(text))
    return Latency(median_s=median, **({SECOND[kind]: second} if kind in SECOND else {}))


def _expected(text: str) -> str:
    return (
        f"latency {text!r}: expected seconds such as 1.5, lognormal:MEDIAN_S,SIGMA or pareto:MEDIAN_S,SHAPE"
    )
