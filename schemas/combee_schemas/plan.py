"""Plan: what all records of one batch share, and the settings that its prompts and its tree follow from."""

from typing import Any, Literal

from pydantic import Field

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


class PlanSettings(Sparse):
    """Whatever shapes a prompt or a tree, as it stood when the batch was cut.

    Workers go by these, never by their own configuration: they cannot disagree, and a replay is exact.
    """

    UNWRITTEN = (
        *("small_batches", "prompts", "playbook_tokens", "stragglers", "probation", "scope", "groups"),
        *("sources", "source_share", "source_operations", "new_source_batches", "propose_flagged"),
    )

    method: Word = "ace"
    templates: Sha256 = ""
    """SHA-256 of what the method's prompt templates make of a fixed input."""
    holds: Holds = "entries"
    copies: int = 0
    """p as it was asked for; a batch of fewer than 4 has no copies."""
    groups: int = 0
    """k as it was asked for, at most one group per reflection; 0: the paper's ⌊√n⌋."""
    carry: bool = True
    """Pass on by code what a combine neither used nor dropped by name."""
    fan_in: int = 0
    """Children per node above level 0."""
    max_levels: int = 0
    group_bytes: int = 0
    """Most bytes of reflections that one aggregator call may get."""
    aggregate_tokens: int | None = None
    """Most tokens of reflections or proposals that one aggregator call should read; None: the paper's shape."""
    probation: Probation | None = None
    """None: what is learned is shown at once."""
    stragglers: bool = False
    """The root's combine may leave out what is late, and slow calls may be asked a second time."""
    small_batches: SmallBatches = "paper"
    salt: Word = ""
    """Goes into the seed of the shuffle and the mark of the playbook in prompts; empty: they follow from the members
    and the playbook's name alone."""
    prompts: Prompts = "full"
    playbook_tokens: int = 0
    """The playbook's token budget, which prompts name."""
    scope: int = 0
    """Of a larger playbook a call reads so many entries, the nearest to its items; 0: every call reads all of it."""
    sources: SourceNames = "declared"
    source_share: float = 1.0
    """Beside other sources one may fill this part of a batch; the rest waits for the next batches."""
    source_operations: int = 0
    """Beside other sources so many operations of a batch may rest on one alone; 0: any number."""
    new_source_batches: int = 0
    """Beside an established source, one that has taught in fewer batches is new; 0: none is."""
    propose_flagged: bool = False
    """Texts that look like instructions, links, secrets or tool calls are only proposed."""


class BranchSettings(Value):
    """What a branch does in its own way; None: as its playbook does."""

    batch_size: int | None = Field(None, ge=1, le=2000)
    """Fixed: the controller's does not count."""
    copies: int | None = Field(None, ge=1, le=8)
    carry: bool | None = None
    aggregate_tokens: int | None = Field(None, ge=500)
    small_batches: SmallBatches | None = None
    stragglers: bool | None = None
    prompts: Prompts | None = None
    scope: int | None = Field(None, ge=0)

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
