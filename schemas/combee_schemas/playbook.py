"""Playbook: the learned context, one immutable version at a time; and labels that point at versions."""

from types import MappingProxyType
from typing import ClassVar, Literal

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
from combee_schemas.plan import Branch, Plan

EVIDENCE_KEPT = 20
"""Evidence ids a snapshot keeps per entry; the full lineage is in ``updates``."""

ACE_SECTIONS = (
    "STRATEGIES & INSIGHTS",
    "FORMULAS & CALCULATIONS",
    "CODE SNIPPETS & TEMPLATES",
    "COMMON MISTAKES TO AVOID",
    "PROBLEM-SOLVING HEURISTICS",
    "CONTEXT CLUES & INDICATORS",
    "OTHERS",
)


SOURCES_KEPT = 5
"""Names of sources that an entry keeps."""

EntryState = Literal["active", "proposed", "probation", "quarantined", "retired"]
"""active: shown to agents; proposed: kept, and shown on request, until enough reflections support it. The others are
reserved: nobody writes them, and agents are not shown them."""


class Entry(Value):
    """One line of knowledge with a stable id, counters and lineage (ACE: bullet)."""

    id: Id
    section: Text
    content: Text
    helpful: int = 0
    harmful: int = 0
    evidence_count: int = 0
    guessed_count: int = 0
    """Of ``evidence_count``: reflections that were named for it, and whose texts do not bear it out."""
    evidence: tuple[Name, ...] = ()
    """The last 20 reflection ids it rests on."""
    sources: tuple[Name, ...] = ()
    """The last names of sources (`Source`) whose reflections bear it out, newest last."""
    harmed: tuple[Name, ...] = ()
    """The last names of sources whose runs found it harmful, newest last."""
    by_hand: bool = False
    """Whether a person wrote, kept or imported it as it stands: it takes three sources to change or remove it."""
    state: EntryState = "active"
    support: tuple[Name, ...] = ()
    """Of a proposed entry: the reflections that count for its promotion, those of ``evidence`` that are no guess."""
    unsupported_batches: int = 0
    """Of a proposed entry: the batches since the last one that supported it."""
    created_version: int = 0
    updated_version: int = 0


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
"""echo: what agents were shown came back, no news; superseded: an operation lost to one of more
sources, or with newer evidence;
conflict: two entries that differ only in figures or a negation, both kept; promote, expire: a proposed entry
became active, or left for want of support; dropped: an operation that no longer applied."""


class Change(Value):
    """One thing that this version did differently from the one before."""

    kind: ChangeKind
    entry_id: Name = ""
    detail: Text = ""


RETIRED_KEPT = 50


class Retired(Value):
    """An entry that left the playbook: said again by agents who were still shown it, it does not come back."""

    entry_id: Name
    content: Text


REJECTED_KEPT = 200


class Rejected(Value):
    """What a person rejected of a candidate: an entry, what it said, and the last reflections that taught it."""

    entry_id: Name
    said: Hash = ""
    """A digest of its wording, so that no large text crowds others out; empty: that it was removed is rejected."""
    evidence: tuple[Name, ...] = ()


class Spend(Value):
    """What a playbook's model calls cost on one day (UTC); a batch counts on the day of its version."""

    day: int = 0
    """Whole days since 1970-01-01."""
    tokens: int = 0
    cost: float = 0.0
    """In the currency of the price table."""
    tokens_each: float = 0.0
    """What the last batch took per reflection."""
    cost_each: float = 0.0
    cap_tokens: int | None = None
    """The cap of a day as it stood then; None: none."""
    cap_cost: float | None = None


class LevelAudit(Value):
    """What became of a batch's reflections at one level of its tree, or in the playbook: how many are what.

    Reflections that are dead letters are none of these.
    """

    new: int = 0
    """An operation rests on it; in the playbook: what this version changed does."""
    known: int = 0
    """It counts for an entry that says it already."""
    dropped: int = 0
    """The model left it out by name."""
    lost: int = 0
    """Neither: nobody said why."""


class AppliedBatch(Value):
    """The batch that made a version, and what became of it."""

    plan: Plan
    degraded: bool = False
    retention: tuple[float, ...] = ()
    """Share of its reflections that were new or known after each level, and in the playbook."""
    audit: tuple[LevelAudit, ...] = ()
    """What became of them at each level, and in the playbook; empty: it had none."""
    carried: int = 0
    """Proposals that code passed on because no combine mentioned them."""
    sources: dict[Name, int] = Field(default_factory=dict)
    """Its reflections by source, of the 20 that have most."""
    usage: Usage = Usage()
    """What its scan cost; ``plan.reflect_usage`` is what its reflections had cost."""


SOURCES_COUNTED = 200


class TaughtBy(Value):
    """A source, and in how many batches of this playbook it has taught."""

    name: Name
    batches: int = Field(ge=1)


class Revocation(Value):
    """Reflections that were taken back, by the rule that chose them."""

    rule: Text
    """``source:NAME``, ``id:ID``, ``text:WORDS``, ``since:``, ``until:`` or ``between:``; ``ids:COUNT`` for more ids
    than a snapshot names."""
    retained_from: FromReflections = 0
    """Of ``reflections``: bodies before this offset had expired, so that no call can be made with them again."""
    version: int = 0
    """The version that it made, which says who asked for it and when, and names what it meant (``revoked``)."""


class Asked(Value):
    """A reflection that is to be asked about again: its place, and that of the manifest of its batch."""

    offset: ReflectionOffset
    manifest_offset: ManifestOffset


class Adopted(Value):
    """The version of a branch whose content a playbook took over."""

    line: LineName
    version: int
    renamed: dict[Name, Name] = Field(default_factory=dict)
    """Ids of entries here → there, where they differ: the branch had given an id that was not free here."""


Origin = Literal["empty", "batch", "import", "edit", "rollback", "adopt", "revoke", "reject", "delete"]


def deleted_key(name: str) -> str:
    """Return the key in ``playbooks`` of what remains of a deleted playbook: its bookkeeping, no entries.

    The playbook's own key has a tombstone then. A name that lives again has no such record.
    """
    return f"{name}#deleted"


class Playbook(Message):
    """A whole snapshot; key: playbook name (of a deleted one ``deleted_key``).

    Offsets are positions in this playbook's partition of the named topic; −1 means none yet.
    A rollback copies ``entries`` and ``sections``, never the bookkeeping.
    """

    type: ClassVar[str] = "playbook"
    version_number: ClassVar[int] = 2
    PLAYBOOK: ClassVar[str] = "name"
    PARTS = MappingProxyType({"entries": Part(kind=Entry, many=True, remembered=16_384)})

    name: LineName
    version: int = Field(ge=0)
    sections: tuple[Text, ...] = ()
    """Section headers in order; sections of entries that are not listed follow."""
    entries: tuple[Entry, ...] = ()
    counters: bool = True
    """Whether ACE text shows ``helpful=X harmful=Y`` (AppWorld's variant does not)."""
    next_id: int = 1
    origin: Origin = "empty"
    changes: tuple[Change, ...] = ()
    method: Word = "ace"
    """Of the last batch."""
    holds: Holds = "entries"
    batch: AppliedBatch | None = None
    """The batch that made this version; None: something else did."""
    batch_sequence: int = 0
    """The last batch applied."""
    retention_recent: tuple[float, ...] = ()
    """The last share of each of the last 20 batches, newest last."""
    lost_recent: tuple[float, ...] = ()
    """Which share was lost of each of the last 20 batches whose audit says so, newest last."""
    lost_count: int = 0
    """How many reflections the newest of these lost."""
    retired: tuple[Retired, ...] = ()
    """The last 50 entries that left."""
    rejected: tuple[Rejected, ...] = ()
    """The last 200 entries that were rejected: no batch brings them back."""
    spend: Spend = Spend()
    through_offset: ThroughReflections = -1
    manifest_offset: ManifestOffset = -1
    history_offset: VersionOffset = -1
    command_offset: ThroughCommands = -1
    commands: tuple[Name, ...] = ()
    """The last command ids executed, newest last."""
    branch: Branch | None = None
    """Of a branch that learns: where it was forked."""
    adopted: Adopted | None = None
    """The branch whose content this version took over; None: something else made it."""
    counted_offset: ThroughReflections = -1
    """Tags of reflections up to this offset count already: the branch that was adopted had read them."""
    consolidated_version: int = 0
    """The version that the last consolidation asked about, also if it changed nothing; 0: there was none."""
    issued_by: Name = ""
    """Who asked for this version (``Command.issued_by``); empty: a batch."""
    revoked: tuple[Name, ...] = ()
    """The reflections that this version took back, as its rules chose them; later versions keep the rules alone."""
    revocations: tuple[Revocation, ...] = ()
    """All rules, oldest first; later reflections of a source that one names never count either."""
    again: tuple[Asked, ...] = ()
    """Reflections that the next batch asks about again: an operation that rested on them and on revoked ones is
    dropped."""
    taught_by: tuple[TaughtBy, ...] = ()
    """The sources that taught in most batches, at most 200; of equals the last ones."""
    gated: bool = False
    """Whether there was a gate: who asks for no label does not read it before the label ``production`` is known."""
    created_at_ms: int = 0

    @property
    def usage(self) -> Usage:
        """What the scan of this version's batch cost; nothing, where something else made it."""
        return self.batch.usage if self.batch else NOTHING_SPENT

    @property
    def reflections(self) -> int:
        """How many reflections this version's batch had; none, where something else made it."""
        return self.batch.plan.reflections if self.batch else 0


def label_key(playbook: str, label: str) -> str:
    """Return the key of a label in ``labels``."""
    return f"{playbook}#{label}"


LATEST = "latest"
"""What the newest version is called where a label may stand; no label has this name."""
NO_LABEL = ""
"""What stands where a reader asks for no label: of a gated playbook ``production``, else the newest version."""
PRODUCTION, CANDIDATE = "production", "candidate"
"""Of a gated playbook: the label that is read without a label, and the one of the version that is being judged."""
LABEL_PATTERN = r"^[A-Za-z][A-Za-z0-9._-]{0,79}$"


class Label(Message):
    """A movable pointer to a version; key: playbook + ``#`` + label."""

    type: ClassVar[str] = "label"

    playbook: LineName
    label: Id
    version: int
    """0, of ``production`` under a gate: no version was accepted yet, and agents read nothing."""
    command_offset: ThroughCommands = -1
    """The command that moved it; one at or below this offset has had its effect."""
    commands: tuple[Name, ...] = ()
    """The last command ids that moved it, newest last."""
    moved_at_ms: int = 0
    issued_by: Name = ""
    """Who moved it."""
    gate: tuple[Judge, ...] = ()
    """Of ``production``: the judges that must accept its next version; empty: there is no gate."""
    decided_through: int = 0
    """Of ``production`` under a gate: the newest version that was decided about; only later ones are judged."""
    verdicts: tuple[Verdict, ...] = ()
    """Of ``candidate``: what its judges said so far."""
    canary: CanaryTerms | None = None
    """Of ``candidate``: which callers are shown it, where their outcomes are one of its judges."""
