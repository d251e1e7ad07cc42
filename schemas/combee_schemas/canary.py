"""Canary: the terms on which a share of callers is shown a candidate, and the results of their runs so far."""

from typing import Annotated, ClassVar

from pydantic import Field

from combee_schemas.base import Message, PlaybookName, Sparse, Value
from combee_schemas.marks import ThroughOutcomes, Word

Count = Annotated[int, Field(ge=0)]
CallerHash = Annotated[int, Field(ge=0, lt=1 << 64)]
"""Hash of a caller under one canary's salt; names are not kept."""


class CanaryTerms(Value):
    """Terms of a canary, fixed when it begins."""

    candidate: Annotated[int, Field(ge=1)]
    """The version under trial."""
    control: Count
    """The version that production shows meanwhile."""
    share: Annotated[float, Field(gt=0, le=0.5)]
    """Share of the callers that are shown the candidate."""
    salt: Word = ""
    margin: Annotated[float, Field(gt=0, lt=1)]
    """A candidate that is worse by this margin, or more, must not be accepted."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    """Error probability: accepting a candidate that is worse by the margin, or rejecting one that is as good."""
    opened_at_ms: int = 0
    deadline_ms: int
    """A candidate that is not accepted by this time stays closed."""


class CanaryArm(Sparse):
    """The callers of one arm."""

    UNWRITTEN = ("callers", "runs", "unscored", "counted", "total", "shares", "share_squares")

    callers: Count = 0
    runs: Count = 0
    unscored: Count = 0
    """Runs without a score, part of ``runs``."""
    counted: Count = 0
    """Callers with a scored run, part of ``callers``."""
    total: float = 0.0
    """Sum of the counted callers' scores."""
    shares: float = 0.0
    """Sum over the counted callers of the share of their runs that were unscored."""
    share_squares: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean score of the counted callers."""
        return self.total / self.counted if self.counted else None


class CanaryCapital(Sparse):
    """State of the test; see ``core/gate/betting.py``."""

    UNWRITTEN = ("n", "total", "squares", "acceptance", "rejection")

    n: Count = 0
    total: float = 0.0
    squares: float = 0.0
    acceptance: float = 0.0
    """Natural logarithm of the capital; the candidate is accepted at ln(1/alpha)."""
    rejection: float = 0.0


class CanaryStatistics(Message):
    """Results of a playbook's last canary, up to an offset; key: playbook + ``#canary``."""

    type: ClassVar[str] = "canary-statistics"

    playbook: PlaybookName
    terms: CanaryTerms
    candidate: CanaryArm = CanaryArm()
    control: CanaryArm = CanaryArm()
    capital: CanaryCapital = CanaryCapital()
    waiting: tuple[tuple[CallerHash, Count], ...] = ()
    """Callers not counted yet, as none of their runs is scored: hash, runs."""
    counted: tuple[CallerHash, ...] = ()
    """Callers already counted."""
    unproven: Count = 0
    """Outcomes ignored because their source is not proven."""
    misplaced: Count = 0
    """Runs ignored because they were shown a version of the other arm."""
    turned_away: Count = 0
    """Runs ignored because the maximum number of callers was reached."""
    through_offset: ThroughOutcomes = -1
    """Offset in ``outcomes`` up to which outcomes are counted."""
    updated_at_ms: int = 0
