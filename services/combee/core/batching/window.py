"""The window: reflections of one playbook that wait for their batch, and when it closes."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from combee_schemas.batch import Member
from combee_schemas.plan import CloseReason
from combee_schemas.reflection import Reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPolicy:
    """When a window closes."""

    batch_size: int
    max_wait_s: float
    max_bytes: int
    max_span: int
    """How many records its oldest reflection may lie behind the partition's newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A reflection in a window; beyond the byte limit its body stays in the log."""

    member: Member
    size: int
    seen_at: float
    """Monotonic seconds."""
    body: Reflection | None


@dataclass(slots=True, kw_only=True)
class Window:
    """What waits for one playbook's next batches, in offset order."""

    waiting: list[Waiting] = field(default_factory=list)
    beyond: "array[int]" = field(default_factory=lambda: array("q"))
    """Offsets of what came while the window was full; it is read again when there is room."""
    dropped: list[Member] = field(default_factory=list)
    flush_through: int = -1
    """Everything up to this offset goes without waiting for the batch to be full."""
    left_out: tuple[int, ...] | None = None
    """What the flush says of its batch's coverage: that of a replay does."""

    @property
    def oldest(self) -> int | None:
        """The offset of the first reflection that waits; None if none does."""
        if self.waiting:
            return self.waiting[0].member.offset
        return self.beyond[0] if self.beyond else None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.beyond)

    def take(self, count: int) -> tuple[list[Waiting], list[Member]]:
        """Remove and return the oldest ``count`` reflections and the duplicates noted so far."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        dropped, self.dropped = self.dropped, []
        return taken, dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """A window's next batch: how many of its oldest reflections, and why now."""

    count: int
    reason: CloseReason


def due(window: Window, policy: WindowPolicy, *, now: float, newest_offset: int) -> Close | None:
    """Return the batch that should close now, or None. A count beats bytes beats time."""
    if not window.waiting:
        return None
    if window.beyond and len(window.waiting) < policy.batch_size:
        return None  # it is full; the rest of the batch is on its way
    oldest = window.waiting[0]
    full = _within_bytes(window.waiting[: policy.batch_size], policy.max_bytes)
    if full < min(policy.batch_size, len(window.waiting)):
        return Close(count=full, reason="bytes")
    if full == policy.batch_size:
        return Close(count=full, reason="size")
    flushed = sum(1 for item in window.waiting[:full] if item.member.offset <= window.flush_through)
    if flushed:
        return Close(count=flushed, reason="flush")
    if newest_offset - oldest.member.offset >= policy.max_span:
        return Close(count=full, reason="span")
    if now - oldest.seen_at >= policy.max_wait_s:
        return Close(count=full, reason="wait")
    return None


def _within_bytes(waiting: Sequence[Waiting], max_bytes: int) -> int:
    total = 0
    for count, item in enumerate(waiting):
        total += item.size
        if total > max_bytes and count:
            return count
    return len(waiting)
