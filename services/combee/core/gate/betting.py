"""An always-valid test of a candidate against its control: it may be read, and stopped, at any time.

Each caller is dealt to the candidate with probability ``share``, else to control, and counts once, with a score in
[0, 1]. Its *effect* is ``(Z - share) / (share * (1 - share)) * (score - centre)``, Z = 1 for the candidate: whatever
the centre, its expectation is the candidate's advantage for such callers (Howard, Ramdas, McAuliffe and Sekhon,
Annals of Statistics 49, 2021, corollary 2). Because each caller is dealt anew, a drifting base rate is the same for
both arms.

Two gamblers begin with 1 and bet on each effect, no more than they can pay (Waudby-Smith and Ramdas, "Estimating
means of bounded random variables by betting", JRSS B 86, 2024: their aGRAPA bets, truncated at one half, with the
mean that is aimed at instead of an estimate):

- *acceptance* wins unless the candidate is worse by the margin or more (null: effect ≤ -margin);
- *rejection* wins unless the candidate is as good or better (null: effect ≥ 0).

Under its null a capital is a test supermartingale, so it ever reaches 1/α with probability α at most (Ville 1939). A
capital is an e-value. Bets are sized for a candidate that is no different (acceptance), or worse by the margin
(rejection): other sizes would be as valid, but slower in these cases.
"""

from dataclasses import dataclass
from math import log, log1p

LARGEST_BET = 0.5
"""Maximum share of the capital per bet: the paper's truncation ``c``."""


@dataclass(slots=True, kw_only=True)
class Bets:
    """Both capitals, as logarithms, and the statistics that size the next bets."""

    n: int = 0
    total: float = 0.0
    """Sum of the scores."""
    squares: float = 0.0
    """Sum of the squared distances of scores from the centre before them."""
    acceptance: float = 0.0
    rejection: float = 0.0

    @property
    def centre(self) -> float:
        """The expected next score, from the earlier ones."""
        return (0.5 + self.total) / (self.n + 1)

    @property
    def variance(self) -> float:
        """The variance of a score."""
        return (0.25 + self.squares) / (self.n + 1)

    def bet(self, score: float, *, is_candidate: bool, share: float, margin: float) -> None:
        """Bet on one caller's effect."""
        centre = self.centre
        bet = margin / (self.variance / (share * (1 - share)) + margin**2)
        lowest = -max(centre / share, (1 - centre) / (1 - share))
        highest = max((1 - centre) / share, centre / (1 - share))
        effect = (score - centre) * (1 / share if is_candidate else -1 / (1 - share))
        self.acceptance += log1p(min(bet, LARGEST_BET / (-lowest - margin)) * (effect + margin))
        self.rejection += log1p(-min(bet, LARGEST_BET / highest) * effect)
        self.n += 1
        self.total += score
        self.squares += (score - centre) ** 2

    def callers_missing(self, *, alpha: float, share: float, margin: float) -> int:
        """Return about how many more callers acceptance takes if the candidate is no different."""
        growth = margin**2 / (2 * self.variance / (share * (1 - share)))
        return max(0, round((log(1 / alpha) - self.acceptance) / growth))
