"""Plan: what all records of one batch share, and the settings that its prompts and its tree follow from."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from combee_schemas.base import (
    DerivedId,
    Holds,
    LineName,
    PlaybookName,
    Score,
    Sha256,
    SourceNames,
    Sparse,
    Usage,
    Value,
)
from combee_schemas.marks import Name, ThroughReflections, Word

SmallBatches = Literal["paper", "one-call"]
"""What a batch gets whose groups would each hold all of it: the paper's tree, or one call."""
CloseReason = Literal["size", "bytes", "wait", "span", "flush", "consolidate", "branch", "revoke"]
"""consolidate, branch, revoke: no window closed. Somebody asked for entries to be made fewer, or for a branch; or
reflections are asked about again, because what was made of them rested on revoked ones, too."""
Prompts = Literal["full", "small"]
"""For which models prompts are worded; small ones are asked for additions only, with a worked example."""


class Probation(Value):
    """When a learned entry is shown to agents; until then it is only proposed."""

    reflections: int = Field(ge=1)
    """So many have to support it, its near-duplicates counted together."""
    sources: int = Field(1, ge=1)
    """They have to come from so many sources; all without a name are one."""
    batches: int = Field(20, ge=1)
    """After so many in a row that do not support it, it leaves."""


LARGEST_BATCH = 2000
"""Original reflections: their ids fit a manifest."""
BatchSize = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]
Copies = Annotated[int, Field(ge=1, le=8)]
AggregateTokens = Annotated[int, Field(ge=500)]
Scope = Annotated[int, Field(ge=0)]


class BatchOptions(BaseModel):
    """How a batch is made: settings, manifests and variants of a replay have these fields, as they stand here."""

    method: Word = Field("ace", min_length=1, description="ace, gepa or one installed")
    copies: Copies = Field(
        2, description="p: copies of each reflection, 1 to halve the calls; a batch of fewer than 4 has none"
    )
    groups: int = Field(
        0,
        ge=0,
        le=LARGEST_BATCH,
        description="k: groups of a batch, at most one per reflection; 0: the paper's ⌊√n⌋, n reflections",
    )
    carry: bool = Field(
        default=True,
        description="pass on proposals that a combine neither used nor dropped by name (recorded); off: as the paper",
    )
    fan_in: int = Field(
        32, ge=2, description="children per node above level 0; fewer where a combine has too much to read"
    )
    aggregate_tokens: AggregateTokens | None = Field(
        32_000,
        description="reflections or proposals that one call may read; fewer for a small context (tokens)",
    )
    stragglers: bool = Field(
        default=False,
        description="combine without late groups, and ask slow combines again, where single calls are slow",
    )
    small_batches: SmallBatches = Field(
        "one-call",
        description="of 4 to 8 reflections: `one-call`, or the `paper`'s two groups and their combine",
    )
    salt: Word = Field(
        "",
        max_length=80,
        description="any text: who does not know it foresees neither how batches are dealt nor ACE's marks",
    )
    prompts: Prompts = Field("full", description="for small models: additions only, with a worked example")
    scope: Scope = Field(
        0,
        description="entries that a curator reads, the nearest to its items, where a large playbook costs too much;"
        " 0: all",
    )
    sources: SourceNames = Field(
        "declared", description="names of sources that count: as `declared`, or only if `proven`"
    )
    source_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="part of a batch that one source may fill beside others; the rest waits; 1: all",
    )
    source_operations: int = Field(
        0,
        ge=0,
        description="operations of a batch that may rest on one source alone, beside others; 0: any number",
    )
    new_source_batches: int = Field(
        0,
        ge=0,
        description="what a source teaches is proposed until it has taught in so many batches, beside one that has;"
        " 0: off",
    )
    propose_flagged: bool = Field(
        default=False, description="texts like instructions, links, secrets or tool calls are only proposed"
    )


class PlanSettings(BatchOptions, Sparse):
    """Whatever shapes a prompt or a tree, as it stood when the batch was cut.

    Workers go by these, never by their own configuration: they cannot disagree, and a replay is exact.
    """

    UNWRITTEN = (
        *("small_batches", "prompts", "playbook_tokens", "stragglers", "probation", "scope", "groups"),
        *("sources", "source_share", "source_operations", "new_source_batches", "propose_flagged"),
    )

    # These four are the paper's, or unknown, in a record that does not say.
    copies: int = 0
    fan_in: int = 0
    aggregate_tokens: int | None = None
    """None: however much a call has to read."""
    small_batches: SmallBatches = "paper"
    templates: Sha256 = ""
    """SHA-256 of what the method's prompt templates make of a fixed input."""
    holds: Holds = "entries"
    max_levels: int = 0
    group_bytes: int = 0
    """Most bytes of reflections that one aggregator call may get."""
    probation: Probation | None = None
    """None: what is learned is shown at once."""
    playbook_tokens: int = 0
    """The playbook's token budget, which prompts name."""


class BranchSettings(Value):
    """What a branch does in its own way; None: as its playbook does."""

    batch_size: BatchSize | None = None
    """Fixed: the controller's does not count."""
    copies: Copies | None = None
    carry: bool | None = None
    aggregate_tokens: AggregateTokens | None = None
    small_batches: SmallBatches | None = None
    stragglers: bool | None = None
    prompts: Prompts | None = None
    scope: Scope | None = None

    def own(self) -> dict[str, Any]:
        """Return what differs, by the names of the configuration."""
        return self.model_dump(exclude_none=True)


class Branch(Value):
    """Where a line was forked, and how it learns."""

    of: PlaybookName
    version: int
    """It began with this version's content."""
    sequence: int
    """The last batch of ``of`` in that version; what came later is learned on both lines."""
    settings: BranchSettings = BranchSettings()


class Outcomes(Value):
    """What the runs behind a batch came to, as their producers say: means of scores, counts of successes."""

    scores: Score = Field(default_factory=dict)
    """The mean of each named number over the reflections that have it; the ten that most of them have."""
    successes: int = 0
    failures: int = 0


class Plan(Sparse):
    """The header of a batch; it rides on each scan record so that any worker can act alone."""

    UNWRITTEN = ("command_id", "branch")

    batch_id: DerivedId
    playbook: LineName
    sequence: int
    """1, 2, 3 … per playbook, without gaps."""
    sha256: Sha256 = ""
    """Of the canonical manifest: members, seed, tree and settings, without places in the log and times."""
    settings: PlanSettings = PlanSettings()
    widths: tuple[int, ...]
    """Nodes per level, leaves first; the last is 1."""
    base_version: int
    base_sequence: int = 0
    """The last batch that ``base_version`` contains."""
    through_offset: ThroughReflections = -1
    """Every reflection of this playbook at or below this offset is in this batch or an earlier one."""
    reflections: int
    batch_size: int = 0
    """What the controller had asked for; 0: unknown."""
    waiting: int = 0
    """Reflections that stayed in the window: with them, arrivals can be counted from manifests alone."""
    reason: CloseReason = "size"
    command_id: Name = ""
    """Of a consolidation: the command that asked for it, or would have; of a fork: the one that did."""
    branch: Branch | None = None
    """Of a fork, the first batch of a branch: it has no members."""
    automatic: bool = False
    """Of a consolidation: nobody asked, the playbook had grown."""
    left_out: tuple[int, ...] | None = None
    """In a replay: the root's children that it leaves out, as recorded; None: time decides."""
    outcomes: Outcomes = Outcomes()
    reflect_usage: Usage = Usage()
    """What the members' reflections cost; of a consolidation, the embeddings of entries."""
    closed_at_ms: int = 0

    @property
    def staleness(self) -> int:
        """How many batches are applied between the base version and this one."""
        return self.sequence - 1 - self.base_sequence
