"""The scan's messages: groups go in at level 0, partials rise, one update comes out."""

from enum import StrEnum
from typing import ClassVar, Literal

from combee_schemas.base import Holds, Id, Message, PlaybookName, Usage, Value
from combee_schemas.batch import CloseReason
from combee_schemas.reflection import BulletTag, Reflection


class OperationKind(StrEnum):
    """What an operation does to entries."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    MERGE = "MERGE"
    REMOVE = "REMOVE"


class Operation(Value):
    """A proposed change of entries, with the reflections it rests on.

    ``entry_ids`` is empty for ADD, one id for UPDATE and REMOVE, two or more for MERGE
    (the first survives).
    """

    kind: OperationKind
    section: str = ""
    content: str = ""
    entry_ids: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class Seen(Value):
    """One reflection as a sub-tree saw it: ``ok`` if at least one of its copies got through."""

    reflection_id: Id
    offset: int
    ok: bool = True
    survived: int = 0
    """Levels after which an operation still rests on it: 0 none, 1 its group's, 2 the first combine's too …"""
    tags: tuple[BulletTag, ...] = ()
    """Of a reflection that says what its agent was shown."""
    shown_version: int | None = None
    """The version that its agent was shown, as its producer says; None: not said, as older writers never did."""


class Echo(Value):
    """An entry that reflections said back although their agents had been shown it: no news."""

    entry_id: str
    evidence: tuple[str, ...] = ()


class Plan(Value):
    """What all nodes of one batch share; it rides on each scan record so that any worker can act alone."""

    batch_id: Id
    playbook: PlaybookName
    method: str = "ace"
    holds: Holds = "entries"
    sequence: int
    widths: tuple[int, ...]
    base_version: int
    base_sequence: int = 0
    base_history_offset: int = -1
    manifest_offset: int = -1
    through_offset: int = -1
    reflections: int
    batch_size: int = 0
    """What the controller had asked for; 0: unknown."""
    waiting: int = 0
    reason: CloseReason = "size"
    reflect_usage: Usage = Usage()
    closed_at_ms: int = 0


class GroupMember(Value):
    """A copy of a reflection in a group, with its offset in ``reflections``."""

    offset: int
    reflection: Reflection


class Group(Message):
    """A ready level-0 node: the copies that one aggregator call sees; key: node id."""

    type: ClassVar[str] = "group"

    plan: Plan
    node_id: Id
    index: int
    members: tuple[GroupMember, ...]


NodeStatus = Literal["ok", "empty", "passed", "merged", "failed"]
"""ok: a model's reply; empty: nothing proposed; passed: one child, no call;
merged: children merged by code after the call failed for good; failed: nothing survives of this node."""


class Partial(Message):
    """A node's result on its way to the parent; key: the parent's node id."""

    type: ClassVar[str] = "partial"

    plan: Plan
    node_id: Id
    parent_id: Id
    level: int
    index: int
    status: NodeStatus
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    echoes: tuple[Echo, ...] = ()
    carried: int = 0
    """Proposals that no combine mentioned and that code passed on, in this sub-tree."""
    usage: Usage = Usage()


class Update(Message):
    """The root's result for one batch; key: playbook. Full lineage lives here."""

    type: ClassVar[str] = "update"

    plan: Plan
    node_id: Id
    status: NodeStatus
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    echoes: tuple[Echo, ...] = ()
    carried: int = 0
    """Proposals that no combine mentioned and that code passed on, in this sub-tree."""
    usage: Usage = Usage()
