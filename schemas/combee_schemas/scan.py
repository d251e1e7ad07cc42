"""The scan's messages: groups go in at level 0, partials rise, one update comes out."""

from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Literal

from combee_schemas.base import DerivedId, Id, Message, OnErasure, Part, Sha256, Source, Sparse, Usage, Value
from combee_schemas.batch import Cluster
from combee_schemas.marks import Hash, ManifestOffset, Name, ReflectionOffset, Text
from combee_schemas.plan import Plan
from combee_schemas.reflection import BulletTag, Reflection


class OperationKind(StrEnum):
    """What an operation does to entries."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    MERGE = "MERGE"
    REMOVE = "REMOVE"


class Operation(Value):
    """A proposed change of entries, with the reflections it rests on: claimed by a model, verified at the root.

    ``entry_ids`` is empty for ADD, one id for UPDATE and REMOVE, two or more for MERGE
    (the first survives).
    """

    kind: OperationKind
    section: Text = ""
    content: Text = ""
    entry_ids: tuple[Name, ...] = ()
    evidence: tuple[Name, ...] = ()


Coverage = Literal["", "words", "meaning", "check", "carried", "proposal"]
"""Why a result is taken to say a reflection's lesson. words, meaning: their texts are similar enough; check: a check
call quoted it; carried: code put the lesson there; proposal: code put a proposal of a node below there, which a check
call or embeddings take for the lesson; empty: nothing says it, or nobody looked."""


class Seen(Sparse):
    """One reflection as seen by a sub-tree: ``ok`` if at least one of its copies got through."""

    UNWRITTEN = ("ok", "said", "covered", "score", "dropped", "text", "tags", "shown_version", "source")

    reflection_id: Id
    offset: ReflectionOffset
    ok: bool = True
    said: bool = False
    """In the root: whether the model claims that its answer holds the lesson, or dropped it by name."""
    covered: Coverage = ""
    score: float = 0.0
    """Similarity of the lesson and the statement that says it: 0 … 1."""
    dropped: bool = False
    """Whether the model left it out by name; in the root, whether code accepted that."""
    text: Text = ""
    """In the root: the lesson's first characters, if code accepted that the model left it out."""
    tags: tuple[BulletTag, ...] = ()
    """Tags of a reflection that reports what its agent was shown."""
    shown_version: int | None = None
    """The version that its agent was shown, as its producer reports; None: not reported."""
    source: Source | None = None


class Echo(Value):
    """An entry that reflections repeat although their agents had been shown it, which is no news."""

    entry_id: Name
    evidence: tuple[Name, ...] = ()


class Known(Sparse):
    """An entry with the same content as these reflections: evidence for the entry."""

    UNWRITTEN = ("said",)

    entry_id: Name
    evidence: tuple[Name, ...] = ()
    said: Hash = ""
    """Digest of the entry's lesson then; empty: unknown. An entry with other words by now is another lesson."""


class Conflict(Value):
    """A text that was not applied: a rewrite by which an entry would lose something, or what contradicts it."""

    entry_id: Name = ""
    against: Text = ""
    """The text that a lesson contradicts, if that is no entry's yet."""
    content: Text = ""
    """What the rewrite, another entry of a MERGE, or the lesson says instead."""
    evidence: tuple[Name, ...] = ()
    """Reflections that say ``content``; none: the model alone said it."""
    why: Text = ""


class GroupMember(Value):
    """A copy of a reflection in a group, with its offset in ``reflections``."""

    offset: ReflectionOffset
    reflection: Reflection


class Planned(Message):
    """A record of the scan, which belongs to a batch."""

    PARTS = MappingProxyType({"plan": Part(kind=Plan, remembered=256)})
    PLAYBOOK: ClassVar[str] = "plan.playbook"
    RUN_IDS: ClassVar[tuple[str, ...]] = ("result.seen.reflection_id",)

    plan: Plan
    manifest_offset: ManifestOffset = -1
    """Offset of the batch's manifest in this playbook's partition of ``batches``."""


class Group(Planned):
    """A ready level-0 node: the copies that one aggregator call sees; key: node id."""

    type: ClassVar[str] = "group"
    version_number: ClassVar[int] = 2
    RUN_IDS: ClassVar[tuple[str, ...]] = ("members.reflection.reflection_id",)
    ON_ERASURE: ClassVar[OnErasure] = "dropped"
    # Copies of one reflection are close together in the log.
    PARTS = MappingProxyType({**Planned.PARTS, "members": Part(kind=GroupMember, many=True, remembered=256)})

    node_id: DerivedId
    index: int
    members: tuple[GroupMember, ...]
    clusters: tuple[Cluster, ...] = ()
    """Clusters that a consolidation (a batch without members) asks the model about."""


NodeStatus = Literal["ok", "empty", "passed", "merged", "failed"]
"""ok: a model's reply; empty: nothing proposed; passed: one child, no call; merged: children merged by code after the
call failed permanently; failed: the node has no result."""


class NodeResult(Value):
    """The result of a node; ``seen``, ``echoes``, ``known`` and ``usage`` cover its whole sub-tree."""

    status: NodeStatus
    reason: Text = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    echoes: tuple[Echo, ...] = ()
    known: tuple[Known, ...] = ()
    aside: tuple[Operation, ...] = ()
    """Below the root: proposals of the sub-tree that this result does not repeat, for the root to carry."""
    conflicts: tuple[Conflict, ...] = ()
    """In the root: rewrites that were not applied, because they would have left something out."""
    left_out: tuple[int, ...] = ()
    """In the root: indices of the children it did not wait for; other groups hold their reflections."""
    usage: Usage = Usage()
    requests: tuple[Sha256, ...] = ()
    """SHA-256 of each model request that this node's result rests on (model, messages, schema, options)."""


class Partial(Planned):
    """A node's result on its way to the parent; key: the parent's node id."""

    type: ClassVar[str] = "partial"
    version_number: ClassVar[int] = 2
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    node_id: DerivedId
    parent_id: DerivedId
    level: int
    index: int
    result: NodeResult


class Update(Planned):
    """The root's result for one batch; key: playbook. Full lineage lives here."""

    type: ClassVar[str] = "update"
    version_number: ClassVar[int] = 2

    node_id: DerivedId
    result: NodeResult
