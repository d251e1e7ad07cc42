"""95 % confidence intervals: of a share, of a mean, and of the difference between two versions on the same questions.

Intervals of shares hold for small sets and near 0 and 1, where the textbook's mean ± 1.96 standard errors fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi, sqrt, tan

from combee.core.evaluation.scoring import Points

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution: 95 % lie within ± Z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    n: int
    """Number of questions behind it."""

    @property
    def is_significant(self) -> bool:
        """Whether 0 is outside the interval, i.e. whether a difference is significant."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def share(points: Mapping[str, Points]) -> Interval:
    """Return the share of right places: Wilson's interval (JASA 22, 1927) over the questions.

    The places of one question (labels) are not independent, so questions are counted instead of places. A share
    varies at most as much as right and wrong do, so the interval is conservative.
    """
    n, places = len(points), sum(worth.places for worth in points.values())
    if not places:
        return Interval(mean=0.0, low=0.0, high=1.0, n=0)
    return wilson(sum(worth.right for worth in points.values()) / places, n)


def wilson(share: float, n: int) -> Interval:
    """Return Wilson's interval of a share of ``n``; for n = 0 it is [0, 1]."""
    if not n:
        return Interval(mean=0.0, low=0.0, high=1.0, n=0)
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return Interval(mean=share, low=max(0.0, centre - half), high=min(1.0, centre + half), n=n)


def of_mean(mean: float, m2: float, n: int) -> Interval | None:
    """Return Student's interval of a mean of ``n`` numbers; ``m2``: sum of their squared differences from it.

    None for fewer than two numbers, which show no variance.
    """
    if n < 2:  # noqa: PLR2004 - see the docstring
        return None
    half = _student(n - 1) * sqrt(m2 / (n - 1) / n)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def _student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    It is exact for 1 and 2 degrees of freedom. For more it is Abramowitz and Stegun's 26.7.5, with an error of 0.1 %
    at 3 and less above.
    """
    if freedom == 1:
        return tan(pi * 0.475)
    if freedom == 2:  # noqa: PLR2004 - see the docstring
        return 0.95 * sqrt(2 / (1 - 0.95 * 0.95))
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + float(sum(term / freedom**power for power, term in enumerate(terms, 1)))


def paired(ours: Mapping[str, Points], theirs: Mapping[str, Points]) -> Interval:
    """Return ours − theirs over the questions that both answered.

    The interval is Agresti and Min's (Statistics in Medicine 24, 2005): it adds two pairs, half of each won and lost,
    one even. So ten even pairs do not read as certainty.
    """
    both = sorted(ours.keys() & theirs.keys())
    places = sum(ours[question].places for question in both)
    if not places:
        return Interval(mean=0.0, low=-1.0, high=1.0, n=0)
    n, per_question = len(both), places / len(both)
    differences = [(ours[question].right - theirs[question].right) / per_question for question in both]
    mean, seen = sum(differences) / n, n + 2
    centre = sum(differences) / seen
    squares = sum(difference**2 for difference in differences) + 1
    half = Z * sqrt(max(0.0, squares / seen - centre**2) / seen)
    return Interval(
        mean=mean, low=max(-1.0, min(mean, centre - half)), high=min(1.0, max(mean, centre + half)), n=n
    )
