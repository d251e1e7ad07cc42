"""Playbook: the learned context, one immutable version at a time; and labels that point at versions."""

from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from combee_schemas.base import NOTHING_SPENT, Holds, Id, LineName, Message, Part, Usage, Value
from combee_schemas.canary import CanaryTerms
from combee_schemas.gate import Judge, Verdict
from combee_schemas.marks import (
    FromReflections,
    Hash,
    ManifestOffset,
    Name,
    ReflectionOffset,
    Text,
    ThroughCommands,
    ThroughReflections,
    VersionOffset,
    Word,
)
from combee_schemas.plan import Branch, Plan, Trust

EVIDENCE_KEPT = 20
"""Maximum number of evidence ids a snapshot keeps per entry; the full lineage is in ``updates``."""

ACE_SECTIONS = (
    "STRATEGIES & INSIGHTS",
    "FORMULAS & CALCULATIONS",
    "CODE SNIPPETS & TEMPLATES",
    "COMMON MISTAKES TO AVOID",
    "PROBLEM-SOLVING HEURISTICS",
    "CONTEXT CLUES & INDICATORS",
    "OTHERS",
)


SOURCES_KEPT = 10
"""Maximum number of source names kept per entry."""

EntryState = Literal["active", "proposed", "probation", "quarantined", "retired"]
"""active: shown to agents; proposed: kept, and shown only on request, until enough reflections support it. No service
writes the other states yet; entries in them are not shown."""


class Entry(Value):
    """One line of knowledge with a stable id, counters and lineage (ACE: bullet)."""

    id: Id
    section: Text
    content: Text
    helpful: int = 0
    harmful: int = 0
    evidence_count: int = 0
    evidence: tuple[Name, ...] = ()
    """The last 20 reflection ids that the entry rests on."""
    sources: tuple[Name, ...] = ()
    """Last names of sources (`Source`) whose reflections support the entry, newest last."""
    recognised: tuple[Name, ...] = ()
    """Last names of sources in whose lessons only a model recognises the entry: they are no support, and nobody else
    takes from them alone what stands for their lessons. ``unproven``: those behind it whose names are not known."""
    harmed: tuple[Name, ...] = ()
    """Last names of sources whose runs found the entry harmful, newest last; each source's last word counts."""
    helped: tuple[Name, ...] = ()
    """The same of those that found it helpful."""
    by_hand: bool = False
    """Whether a person wrote, kept or imported this text: changing or removing it takes three sources."""
    state: EntryState = "active"
    support: tuple[Name, ...] = ()
    """In a proposed entry: reflections that count for its promotion, those of ``evidence`` that say its text."""
    replaces: tuple[Name, ...] = ()
    """In a proposed entry: the entries whose place it takes once as much supports it as stands behind them."""
    rivals: tuple[Name, ...] = ()
    """In a proposed entry: the entries that it contradicts; it is shown next to them once as much supports it."""
    unsupported_batches: int = 0
    """In a proposed entry: number of batches since the last one that supported it."""
    created_version: int = 0
    """The version that added the entry, or gave it the words of another lesson: what came before is not about it."""
    updated_version: int = 0

    @property
    def is_active(self) -> bool:
        """Whether agents are shown the entry."""
        return self.state == "active"


ChangeKind = Literal[
    "add",
    "update",
    "merge",
    "remove",
    "duplicate",
    "echo",
    "superseded",
    "conflict",
    "evict",
    "promote",
    "expire",
    "dropped",
    "import",
    "rollback",
    "adopt",
    "delete",
]
"""echo: agents repeated what they had been shown; superseded: an operation gave way to one with more sources or newer
evidence; conflict: two entries that differ only in figures or a negation, both kept; promote, expire: a proposed
entry became active, or was removed for lack of support; dropped: an operation that no longer applied."""


class Change(Value):
    """One difference between this version and the one before."""

    kind: ChangeKind
    entry_id: Name = ""
    detail: Text = ""


MAX_BUDGET_TOKENS = 80_000
"""Maximum token budget: with longer entries than a sentence, what a record has room for."""
BudgetTokens = Annotated[int, Field(ge=0, le=MAX_BUDGET_TOKENS)]

RETIRED_KEPT = 50


class Retired(Value):
    """An entry that left the playbook: agents that were still shown it cannot bring it back by repeating it."""

    entry_id: Name
    content: Text
    since: int = 0
    """The version since which it said this: who read an earlier one repeats nothing."""


REJECTED_KEPT = 200


class Rejected(Value):
    """A change of a candidate that a person rejected: the entry, its content, and the last reflections behind it."""

    entry_id: Name
    said: Hash = ""
    """Digest of the wording, or of the very words where agents read that wording: no large text displaces others.
    Empty: agents read these words, or the removal of the entry was rejected."""
    evidence: tuple[Name, ...] = ()


class Spend(Value):
    """Cost of a playbook's model calls on one day (UTC); a batch counts on the day of its version."""

    day: int = 0
    """Days since 1970-01-01."""
    tokens: int = 0
    cost: float = 0.0
    """In the currency of the price table."""
    tokens_each: float = 0.0
    """Tokens per reflection in the last batch."""
    cost_each: float = 0.0
    cap_tokens: int | None = None
    """The daily cap at that time; None: no cap."""
    cap_cost: float | None = None


class PauseOrder(Value):
    """A person's order that a playbook learns nothing for a while; its agents go on reading it."""

    since_ms: int
    until_ms: int
    by_retention: bool = False
    """Whether the topics' retention set the end: what waits must be read before it expires."""
    issued_by: Name = ""


class Audit(Value):
    """Number of a batch's reflections per effect on the playbook, and of those that the model's result says.

    ``new``, ``known``, ``dropped`` and ``omitted`` add up to the reflections that got through; dead letters are not
    counted.
    """

    new: int = 0
    """Reflections behind a change of this version."""
    known: int = 0
    """Reflections that count for an entry with the same content."""
    dropped: int = 0
    """Reflections that the model left out by name, and is believed."""
    omitted: int = 0
    """Reflections with none of these effects."""
    said: int = 0
    """Reflections that the model's answer names: as a source, as known, or as dropped."""
    verified: int = 0
    """Reflections that the model's own result says, witnessed by words or meaning, or checked."""
    carried: int = 0
    """Reflections that are in the result only because code put them there."""

    @property
    def reflections(self) -> int:
        """Number of reflections that got through."""
        return self.kept + self.dropped + self.omitted

    @property
    def kept(self) -> int:
        """Number of reflections that are new or known."""
        return self.new + self.known


class AppliedBatch(Value):
    """The batch that made a version, and its results."""

    plan: Plan
    degraded: bool = False
    audit: Audit | None = None
    """None: no reflection got through, or the batch had none."""
    sources: dict[Name, int] = Field(default_factory=dict)
    """Number of reflections per source, for the 20 largest sources."""
    usage: Usage = Usage()
    """Usage of the scan; ``plan.reflect_usage`` is the usage of reflecting."""


SOURCES_COUNTED = 200


class TaughtBy(Value):
    """A source, and the number of this playbook's batches that it has taught."""

    name: Name
    batches: int = Field(ge=1)
    reflections: int = Field(0, ge=0)
    """Its reflections in these batches."""


class Revocation(Value):
    """Revoked reflections, described by the rule that chose them."""

    rule: Text
    """``source:NAME``, ``id:ID``, ``text:WORDS``, ``since:``, ``until:`` or ``between:``; ``ids:COUNT`` for more ids
    than a snapshot names. Of a rejection at the gate: ``candidate:VERSION``, with a source if it names one, and
    ``batch:ID`` for batches without reflections of their own."""
    retained_from: FromReflections = 0
    """First retained offset of ``reflections`` at that time: earlier bodies had expired and cannot be asked about
    again."""
    version: int = 0
    """The version that the revocation made, which names its issuer, time and reflections (``revoked``)."""


class Asked(Value):
    """A reflection to be asked about again: its offset, and that of its batch's manifest."""

    offset: ReflectionOffset
    manifest_offset: ManifestOffset


class Adopted(Value):
    """The version of a branch whose content a playbook adopted."""

    line: LineName
    version: int
    renamed: dict[Name, Name] = Field(default_factory=dict)
    """Changed entry ids, branch id → playbook id, where the branch's id was not free in the playbook."""


Origin = Literal[
    "empty", "batch", "import", "edit", "rollback", "adopt", "revoke", "reject", "pause", "resume", "delete"
]


def deleted_key(name: str) -> str:
    """Return the key in ``playbooks`` of a deleted playbook's bookkeeping, which has no entries.

    The playbook's own key then has a tombstone. If the name is used again, this record is removed.
    """
    return f"{name}#deleted"


class Playbook(Message):
    """A whole snapshot; key: playbook name (``deleted_key`` for a deleted playbook).

    Offsets are positions in this playbook's partition of the named topic; −1 means none yet. A rollback copies
    ``entries`` and ``sections``, never the bookkeeping.
    """

    type: ClassVar[str] = "playbook"
    version_number: ClassVar[int] = 2
    PLAYBOOK: ClassVar[str] = "name"
    PARTS = MappingProxyType({"entries": Part(kind=Entry, many=True, remembered=16_384)})

    name: LineName
    version: int = Field(ge=0)
    sections: tuple[Text, ...] = ()
    """Section headers in order; sections named only by entries follow."""
    entries: tuple[Entry, ...] = ()
    counters: bool = True
    """Whether ACE text shows ``helpful=X harmful=Y`` (AppWorld's variant does not)."""
    next_id: int = 1
    origin: Origin = "empty"
    changes: tuple[Change, ...] = ()
    method: Word = "ace"
    """Method of the last batch."""
    holds: Holds = "entries"
    budget_tokens: BudgetTokens = 0
    """Token budget that a large import brought; the configured one counts where it is larger. 0: none."""
    batch: AppliedBatch | None = None
    """The batch that made this version; None: it was not made by a batch."""
    batch_sequence: int = 0
    """Sequence of the last applied batch."""
    retention_recent: tuple[float, ...] = ()
    """Share of new and known reflections in each of the last 20 batches with an audit, newest last."""
    omitted_recent: tuple[float, ...] = ()
    """Omitted share in each of these batches."""
    omitted_count: int = 0
    """Number of reflections omitted in the newest of these batches."""
    retired: tuple[Retired, ...] = ()
    """The last 50 entries that left the playbook."""
    rejected: tuple[Rejected, ...] = ()
    """The last 200 rejected entries, which no batch may bring back."""
    spend: Spend = Spend()
    paused: PauseOrder | None = None
    """The last order to pause, unless it was taken back; it may have ended by itself."""
    through_offset: ThroughReflections = -1
    manifest_offset: ManifestOffset = -1
    history_offset: VersionOffset = -1
    command_offset: ThroughCommands = -1
    commands: tuple[Name, ...] = ()
    """Ids of the last executed commands, newest last."""
    branch: Branch | None = None
    """Set in a branch that learns: its origin."""
    adopted: Adopted | None = None
    """The branch whose content this version adopted; None: it was made otherwise."""
    rolled_back_to: int = 0
    """The version whose content this one, a rollback, began with; 0: it is no rollback."""
    counted_offset: ThroughReflections = -1
    """Tags of reflections up to this offset already count: the adopted branch had read them."""
    consolidated_version: int = 0
    """The version that the last consolidation asked about, even if it changed nothing; 0: none yet."""
    issued_by: Name = ""
    """Issuer of the command behind this version (``Command.issued_by``); empty: a batch made it."""
    revoked: tuple[Name, ...] = ()
    """Reflections revoked by this version's rules; later versions keep only the rules."""
    revocations: tuple[Revocation, ...] = ()
    """All revocations, oldest first; later reflections of a revoked source never count."""
    again: tuple[Asked, ...] = ()
    """Reflections that the next batch asks about again, because an operation resting on them and on revoked ones was
    dropped."""
    taught_by: tuple[TaughtBy, ...] = ()
    """Sources that taught in most batches, at most 200; among equals the most recent."""
    trust: Trust | None = None
    """The posture of the last batch; None: there was none."""
    gated: bool = False
    """Whether the playbook had a gate: a reader without a label waits until the label ``production`` is known."""
    created_at_ms: int = 0

    @property
    def usage(self) -> Usage:
        """Usage of the scan of this version's batch; zero if a batch did not make it."""
        return self.batch.usage if self.batch else NOTHING_SPENT

    @property
    def audit(self) -> Audit | None:
        """Audit of this version's batch; None: a batch did not make it, or no reflection got through."""
        return self.batch.audit if self.batch else None

    @property
    def reflections(self) -> int:
        """Number of reflections in this version's batch; zero if a batch did not make it."""
        return self.batch.plan.reflections if self.batch else 0


def label_key(playbook: str, label: str) -> str:
    """Return the key of a label in ``labels``."""
    return f"{playbook}#{label}"


LATEST = "latest"
"""Name of the newest version where a label is expected; no label may have this name."""
NO_LABEL = ""
"""No label requested: ``production`` in a gated playbook, otherwise the newest version."""
PRODUCTION, CANDIDATE = "production", "candidate"
"""In a gated playbook: the label read by default, and the label of the version under judgement."""
LABEL_PATTERN = r"^[A-Za-z][A-Za-z0-9._-]{0,79}$"


class Label(Message):
    """A movable pointer to a version; key: playbook + ``#`` + label."""

    type: ClassVar[str] = "label"

    playbook: LineName
    label: Id
    version: int
    """In ``production`` under a gate, 0 means that no version has been accepted and agents read nothing."""
    command_offset: ThroughCommands = -1
    """The last command that moved the label; commands up to this offset have been executed."""
    commands: tuple[Name, ...] = ()
    """Ids of the last commands that moved the label, newest last."""
    moved_at_ms: int = 0
    issued_by: Name = ""
    """Who moved the label."""
    gate: tuple[Judge, ...] = ()
    """In ``production``: the judges that must accept the next version; empty: no gate."""
    decided_through: int = 0
    """In ``production`` under a gate: the newest version with a decision; only later ones are judged."""
    verdicts: tuple[Verdict, ...] = ()
    """In ``candidate``: the judges' verdicts to date."""
    canary: CanaryTerms | None = None
    """In ``candidate``: the terms of its canary, if that is one of its judges."""
