"""Outcome: the result of one run with the version it was shown; and statistics per version and entry."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from combee_schemas.base import (
    KIB,
    Id,
    LineName,
    Message,
    OnErasure,
    PlaybookName,
    Score,
    Shown,
    Source,
    Sparse,
)
from combee_schemas.marks import Name, Text, ThroughOutcomes

MAX_ID, MAX_USED, MAX_CALLER = 80, 200, 200
EntryId = Annotated[Name, StringConstraints(min_length=1, max_length=MAX_ID)]
Count = Annotated[int, Field(ge=0)]


class Outcome(Message):
    """What is known of a run, now or later; key: playbook. Repeats for the same run count once."""

    type: ClassVar[str] = "outcome"
    max_bytes: ClassVar[int] = 256 * KIB
    RUN_IDS: ClassVar[tuple[str, ...]] = ("run_id",)
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    run_id: Id
    """The trace's id if there is a trace; otherwise a name that is unique among the playbook's runs."""
    playbook: PlaybookName
    shown: Shown | None = None
    """The version and line that the run was shown."""
    bullet_ids: tuple[Name, ...] = Field((), max_length=MAX_USED)
    """The entries that the agent reports to have used."""
    score: Score = Field(default_factory=dict)
    success: bool | None = None
    """Without success and score the run counts as unscored until another outcome says more."""
    caller: Annotated[Text, StringConstraints(max_length=MAX_CALLER)] = ""
    """Caller of the run, such as a user or an agent."""
    source: Source | None = None
    created_at_ms: int = 0


class Measure(Sparse):
    """Scores of one name: count, mean, and the sum of squared differences from the mean."""

    UNWRITTEN = ("m2",)

    name: Name
    n: int = Field(ge=1)
    mean: float
    m2: float = 0.0


class Figures(Sparse):
    """Totals of a number of runs."""

    UNWRITTEN = ("successes", "failures", "unscored", "scores")

    runs: Count = 0
    successes: Count = 0
    failures: Count = 0
    unscored: Count = 0
    """Runs with neither score nor success, part of ``runs``."""
    scores: tuple[Measure, ...] = ()


class VersionOutcomes(Sparse):
    """The runs that were shown one version."""

    UNWRITTEN = ()

    version: Count
    figures: Figures
    last_at_ms: int = 0


class EntryOutcomes(Sparse):
    """The runs that were shown one entry, in any version, and those that used it."""

    UNWRITTEN = ("shown", "used")

    entry_id: EntryId
    shown: Count = 0
    used: Figures = Figures()


class OutcomeStatistics(Message):
    """All outcomes of a playbook, or of a branch, up to an offset; key: its name."""

    type: ClassVar[str] = "outcome-statistics"
    PLAYBOOK: ClassVar[str] = "line"

    line: LineName
    versions: tuple[VersionOutcomes, ...] = ()
    """The newest versions, by number."""
    earlier: Figures = Figures()
    """All older versions together."""
    entries: tuple[EntryOutcomes, ...] = ()
    """The entries shown or used last, newest last."""
    unplaced: Count = 0
    """Runs that did not say which version they were shown."""
    through_offset: ThroughOutcomes = -1
    """Offset in ``outcomes`` up to which this playbook's outcomes are counted."""
    updated_at_ms: int = 0
