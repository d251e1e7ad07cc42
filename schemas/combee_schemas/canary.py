"""Canary: the terms on which a candidate is shown to a share of callers, and what their runs say of it so far."""

from typing import Annotated, ClassVar

from pydantic import Field

from combee_schemas.base import Message, PlaybookName, Sparse, Value
from combee_schemas.marks import Name, ThroughOutcomes, Word

Count = Annotated[int, Field(ge=0)]
CallerHash = Annotated[int, Field(ge=0, lt=1 << 64)]
"""Of a caller under one canary's salt: no name is kept."""


class CanaryTerms(Value):
    """What stands fixed from the moment a canary begins."""

    candidate: Annotated[int, Field(ge=1)]
    """The version that is tried."""
    control: Count
    """The version that production is shown meanwhile."""
    share: Annotated[float, Field(gt=0, le=0.5)]
    """Of the callers: those that are shown the candidate."""
    salt: Word = ""
    margin: Annotated[float, Field(gt=0, lt=1)]
    """A candidate that is worse by so much, or more, is not to be accepted."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    """How often a candidate may be accepted that is so much worse; and one rejected that is as good."""
    runs: Annotated[int, Field(ge=1)]
    """A caller counts once so many of its runs are scored, with their mean."""
    score: Name = ""
    """The score that counts where success is not said."""
    opened_at_ms: int = 0
    deadline_ms: int
    """Whoever is not accepted by then stays closed."""


class CanaryArm(Sparse):
    """The callers of one arm."""

    UNWRITTEN = ("callers", "runs", "unscored", "counted", "total", "shares", "share_squares")

    callers: Count = 0
    runs: Count = 0
    unscored: Count = 0
    """Of ``runs``: those of which no score is known."""
    counted: Count = 0
    """Of ``callers``: those of which enough runs are scored."""
    total: float = 0.0
    """Of the scores of those that are counted."""
    shares: float = 0.0
    """Of those that are counted: the shares of their runs that were unscored, summed."""
    share_squares: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean score of the callers that are counted."""
        return self.total / self.counted if self.counted else None


class CanaryCapital(Sparse):
    """What the test knows; see ``core/gate/betting.py``."""

    UNWRITTEN = ("n", "total", "squares", "acceptance", "rejection")

    n: Count = 0
    total: float = 0.0
    squares: float = 0.0
    acceptance: float = 0.0
    """The natural logarithm of the capital; acceptance takes ln(1/alpha)."""
    rejection: float = 0.0


class CanaryStatistics(Message):
    """All that outcomes say of a playbook's last canary, up to an offset; key: playbook + ``#canary``."""

    type: ClassVar[str] = "canary-statistics"

    playbook: PlaybookName
    terms: CanaryTerms
    candidate: CanaryArm = CanaryArm()
    control: CanaryArm = CanaryArm()
    capital: CanaryCapital = CanaryCapital()
    waiting: tuple[tuple[CallerHash, Count, Count, float], ...] = ()
    """Callers that are not counted yet: their runs, those of them that are scored, the scores' sum."""
    counted: tuple[CallerHash, ...] = ()
    """Callers that are."""
    unproven: Count = 0
    """Outcomes that were passed over because nothing proves their source."""
    misplaced: Count = 0
    """Runs that were passed over because they were shown another version than their caller's arm is."""
    turned_away: Count = 0
    """Runs that were passed over because their callers are more than are kept."""
    through_offset: ThroughOutcomes = -1
    """Of ``outcomes``: up to here all are counted."""
    updated_at_ms: int = 0
