"""The context-overload law: what fraction of the distinct lessons it reads an aggregator keeps."""

import math
from dataclasses import dataclass

from combee.sim.counting import Counting, in_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """f(T) = 1 / (1 + (T / half_tokens)^steepness): nothing read, nothing lost; beyond, a power law."""

    half_tokens: float
    steepness: float
    count: Counting = in_steps

    def keep_fraction(self, tokens: float) -> float:
        """Return what fraction of the distinct lessons is kept after reading ``tokens``."""
        return 1.0 / (1.0 + math.pow(tokens / self.half_tokens, self.steepness))


LAW = Law(half_tokens=1_430.0, steepness=0.775)
"""Both constants fitted by benchmarks/fit_overload.py to what naive ACE leaves per update (method.md
section 1) and to nothing else. The row does not settle what is to be counted: docs/design/simulation.md says
what hangs on that."""
