"""Batch: the manifest of a closed window; with it, everything that follows is a pure function."""

from typing import ClassVar, Literal

from combee_schemas.base import Holds, Id, Message, PlaybookName, Usage, Value

CloseReason = Literal["size", "bytes", "wait", "span", "flush"]


class Member(Value):
    """A reflection of the batch: its offset in ``reflections``, its id and its dead-letter attempt."""

    offset: int
    reflection_id: Id
    attempt: int = 0


class Batch(Message):
    """Which reflections, how many copies, which seed, which tree; key: playbook.

    ``widths`` are the nodes per level, leaves first; the last is 1.
    Groups are not listed: they are recomputed from members, ``copies``, ``widths[0]`` and ``seed``.
    """

    type: ClassVar[str] = "batch"

    batch_id: Id
    playbook: PlaybookName
    method: str = "ace"
    holds: Holds = "entries"
    sequence: int
    """1, 2, 3 … per playbook, without gaps."""
    seed: int
    members: tuple[Member, ...]
    dropped: tuple[Member, ...] = ()
    """Repeats that were recognised while this window was open; the last 1000 of them."""
    copies: int
    widths: tuple[int, ...]
    shape_reason: str = ""
    """Why this many groups and levels, in words."""
    base_version: int
    base_sequence: int = 0
    """The last batch that ``base_version`` contains: this one is ``sequence − 1 − base_sequence`` batches stale."""
    base_history_offset: int = -1
    """Where ``base_version`` stands in this playbook's partition of ``history``; −1 for version 0."""
    through_offset: int
    """Every reflection of this playbook at or below this offset is in this batch or an earlier one."""
    oldest_unpublished_offset: int = -1
    """Where in ``batches`` the oldest batch of this partition stood that had no version yet; −1: none."""
    reason: CloseReason
    batch_size: int
    max_inflight_batches: int = 0
    """How many batches might lack a version at once when this one closed; 0: unknown."""
    waiting: int = 0
    """Reflections that stayed in the window: with them, arrivals can be counted from manifests alone."""
    reflect_usage: Usage = Usage()
    """What the members' reflections cost."""
    closed_at_ms: int = 0
