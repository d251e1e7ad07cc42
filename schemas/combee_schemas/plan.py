"""Plan: the header shared by all records of one batch, with the settings behind its prompts and its tree."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from combee_schemas.base import (
    DerivedId,
    Holds,
    LineName,
    PlaybookName,
    Score,
    Sha256,
    Sparse,
    Usage,
    Value,
)
from combee_schemas.marks import Name, ThroughReflections, Word

SmallBatches = Literal["paper", "one-call", "fewer-copies"]
"""What becomes of a batch so small that each group would hold all of it: the paper's tree, one call, or fewer copies
than groups."""
CloseReason = Literal["size", "bytes", "wait", "span", "flush", "consolidate", "branch", "revoke"]
"""consolidate, branch, revoke: no window closed. A consolidation or a branch was requested, or reflections are asked
about again because an operation had also rested on revoked ones."""
WINDOWLESS: frozenset[CloseReason] = frozenset({"consolidate", "branch", "revoke"})
"""Reasons of the batches for which no window closed."""
Prompts = Literal["full", "small"]
"""Model class for which prompts are worded; small models are asked for additions only, with a worked example."""


class Probation(Value):
    """Conditions for showing a learned entry to agents; until then the entry is only proposed."""

    reflections: int = Field(ge=1)
    """Number of reflections that must support the entry, near-duplicates counted together."""
    batches: int = Field(20, ge=1)
    """Consecutive batches without support after which the entry is removed."""

    @property
    def is_off(self) -> bool:
        """Whether one reflection suffices, so that no entry is only proposed."""
        return self.reflections == 1


LARGEST_BATCH = 2000
"""Maximum number of original reflections in a batch, so that their ids fit a manifest."""
ReflectionsPerBatch = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]
Copies = Annotated[int, Field(ge=1, le=8)]
Trust = Literal["lab", "team", "public"]
"""Posture towards sources. lab: everything counts at once; team: destroying costs as much as building; public: only
proven sources count, and one more of them than may collude must agree."""
Colluders = Annotated[int, Field(ge=1, le=9)]
AggregateTokens = Annotated[int, Field(ge=500)]


class BatchOptions(BaseModel):
    """Options of a batch: settings, manifests and variants of a replay inherit these fields."""

    method: Word = Field("ace", min_length=1, description="learning method: ace, gepa or an installed one")
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
        description="check the result against the batch's reflections and carry what it lacks; off, only in the"
        " posture `lab`: the paper's way",
    )
    fan_in: int = Field(
        32, ge=2, description="children per node above level 0; fewer where a combine has too much to read"
    )
    aggregate_tokens: AggregateTokens | None = Field(
        32_000,
        description="maximum input of one call in tokens of reflections or proposals; lower it for a small context",
    )
    stragglers: bool = Field(
        default=False,
        description="combine without late groups and repeat slow combine calls",
    )
    small_batches: SmallBatches = Field(
        "fewer-copies",
        description="batches with as many copies as groups (4 to 8 reflections): `fewer-copies`, `one-call` for a"
        " third of the calls, or the `paper`'s two groups that hold the same",
    )
    salt: Word = Field(
        "",
        max_length=80,
        description="text that makes the dealing of batches and ACE's marks unpredictable for those who do not read"
        " the log; better in a file that COMBEE_SALT_FILE names",
    )
    prompts: Prompts = Field(
        "full", description="`small`, for small models: additions only, with a worked example"
    )


class PlanSettings(BatchOptions, Sparse):
    """All settings that shape a prompt or a tree, recorded when the batch was cut.

    Workers use these instead of their own configuration, so they cannot disagree, and a replay is exact.
    """

    UNWRITTEN = (
        *("small_batches", "prompts", "playbook_tokens", "stragglers", "probation", "groups"),
        *("trust", "colluders", "embeddings"),
    )

    # Records without these four fields use the paper's values, or unknown ones.
    copies: int = 0
    fan_in: int = 0
    aggregate_tokens: int | None = None
    """Token limit of one call's input; None: no limit."""
    small_batches: SmallBatches = "paper"
    templates: Sha256 = ""
    """SHA-256 of the method's prompt templates, rendered with a fixed input."""
    holds: Holds = "entries"
    max_levels: int = 0
    group_bytes: int = 0
    """Maximum bytes of reflections in one aggregator call."""
    probation: Probation | None = None
    """None: one reflection suffices."""
    trust: Trust = "lab"
    colluders: int = 0
    """Sources that may collude, in ``public``."""
    playbook_tokens: int = 0
    """The playbook's token budget, which prompts state."""
    embeddings: Word = ""
    """The embedding model by which texts are compared, and its threshold (MODEL@0.9); empty: by words alone."""


class BranchSettings(Value):
    """Settings of a branch that differ from its playbook's; None: the same."""

    batch_size: ReflectionsPerBatch | None = None
    """Fixed batch size, which overrides the controller's."""
    copies: Copies | None = None
    carry: bool | None = None
    aggregate_tokens: AggregateTokens | None = None
    small_batches: SmallBatches | None = None
    stragglers: bool | None = None
    prompts: Prompts | None = None

    def own(self) -> dict[str, Any]:
        """Return the differing settings by their configuration names."""
        return self.model_dump(exclude_none=True)


class Branch(Value):
    """Origin and settings of a branch."""

    of: PlaybookName
    version: int
    """The version whose content the branch began with."""
    sequence: int
    """The last batch of ``of`` in that version; both lines learn from later reflections."""
    settings: BranchSettings = BranchSettings()


class Outcomes(Value):
    """Results of the runs behind a batch, as their producers report them: means of scores, counts of successes."""

    scores: Score = Field(default_factory=dict)
    """Mean per score name over the reflections that report it; the ten most frequent names."""
    successes: int = 0
    failures: int = 0


class Plan(Sparse):
    """The header of a batch; every scan record carries it, so that any worker can act alone."""

    UNWRITTEN = ("command_id", "branch")

    batch_id: DerivedId
    playbook: LineName
    sequence: int
    """1, 2, 3 … per playbook, without gaps."""
    sha256: Sha256 = ""
    """SHA-256 of the canonical manifest: members, seed, tree and settings, without log positions and times."""
    settings: PlanSettings = PlanSettings()
    widths: tuple[int, ...]
    """Nodes per level, leaves first; the last is 1."""
    base_version: int
    base_sequence: int = 0
    """The last batch contained in ``base_version``."""
    through_offset: ThroughReflections = -1
    """Every reflection of this playbook at or below this offset is in this batch or an earlier one."""
    reflections: int
    batch_size: int = 0
    """Batch size requested by the controller; 0: unknown."""
    waiting: int = 0
    """Number of reflections that stayed in the window, so that arrivals can be counted from manifests alone."""
    reason: CloseReason = "size"
    command_id: Name = ""
    """The command that requested the consolidation or fork; an automatic consolidation has a generated id."""
    branch: Branch | None = None
    """Set in a fork, the first batch of a branch, which has no members."""
    automatic: bool = False
    """Whether a consolidation ran because the playbook had grown, without a request."""
    left_out: tuple[int, ...] | None = None
    """In a replay: the root's children left out, as recorded; None: decided by time."""
    outcomes: Outcomes = Outcomes()
    reflect_usage: Usage = Usage()
    """Usage of reflecting on the members; in a consolidation, of the entries' embeddings."""
    closed_at_ms: int = 0

    @property
    def staleness(self) -> int:
        """Return the number of batches applied between the base version and this batch."""
        return self.sequence - 1 - self.base_sequence
