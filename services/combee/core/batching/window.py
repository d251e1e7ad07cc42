"""The window: reflections of one playbook that wait for their batch, and when it closes."""

from array import array
from bisect import insort
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from combee.core.batching.limits import BATCH_BYTES, SPAN
from combee_schemas.batch import Member
from combee_schemas.plan import CloseReason
from combee_schemas.reflection import Reflection
from combee_schemas.trace_context import TraceContext

ID_BYTES, REPEAT_BYTES = 256 << 10, 128 << 10
"""What the ids of a batch take at most, and the repeats that it lists, so that its manifest fits a record."""
MEMBER_BYTES = 66
"""What a repeat takes in a manifest beside its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPolicy:
    """When a window closes."""

    batch_size: int
    max_wait_s: float
    max_bytes: int = BATCH_BYTES
    max_span: int = SPAN
    """How many records its oldest reflection may lie behind the partition's newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A reflection in a window; beyond the byte limit its body stays in the log."""

    member: Member
    size: int
    seen_at: float
    """Monotonic seconds."""
    body: Reflection | None
    source: str = ""
    """Whose it is, where sources have shares."""
    context: TraceContext | None = None
    """The span that it was written in, where spans are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a batch one source may fill."""

    most: int
    """Reflections."""
    known: Collection[str]
    """The sources that have taught the playbook; with those in the window they must be several."""


@dataclass(slots=True, kw_only=True)
class Window:
    """What waits for one playbook's next batches, in offset order."""

    waiting: list[Waiting] = field(default_factory=list)
    beyond: "array[int]" = field(default_factory=lambda: array("q"))
    """Offsets of what came while the window was full; it is read again when there is room."""
    held: "dict[str, array[int]]" = field(default_factory=dict)
    """By source, offsets of what it sent beyond its share; it is read again for later batches."""
    counts: Counter[str] = field(default_factory=Counter)
    """By source, how many of ``waiting`` are its, where sources have shares."""
    dropped: list[Member] = field(default_factory=list)
    dropped_bytes: int = 0
    flush_through: int = -1
    """Everything up to this offset goes without waiting for the batch to be full."""
    left_out: tuple[int, ...] | None = None
    """What the flush says of its batch's coverage: that of a replay does."""

    @property
    def oldest(self) -> int | None:
        """The offset of the first reflection that waits; None if none does."""
        firsts = [offsets[0] for offsets in self.held.values()]
        if self.waiting:
            firsts.append(self.waiting[0].member.offset)
        elif self.beyond:
            firsts.append(self.beyond[0])
        return min(firsts, default=None)

    @property
    def beyond_share(self) -> int:
        """How many wait because their sources have more than their share."""
        return sum(map(len, self.held.values()))

    def __len__(self) -> int:
        return len(self.waiting) + len(self.beyond) + self.beyond_share

    def add(self, item: Waiting) -> None:
        """Let a reflection wait, in its place."""
        if self.waiting and item.member.offset < self.waiting[-1].member.offset:
            insort(self.waiting, item, key=_offset)
        else:
            self.waiting.append(item)
        if item.source:
            self.counts[item.source] += 1

    def add_repeat(self, member: Member) -> None:
        """Note a repeat for the next manifest, as long as it finds room there."""
        size = MEMBER_BYTES + _id_bytes(member)
        if self.dropped_bytes + size <= REPEAT_BYTES:
            self.dropped.append(member)
            self.dropped_bytes += size

    def hold_over(self, share: Share) -> list[Waiting]:
        """Take out and return what sources have here beyond their share, the newest; it waits for later batches.

        A source that is alone has all of the window.
        """
        excess = sum(max(0, count - share.most) for count in self.counts.values())
        if not excess or len({*share.known, *self.counts, *self.held}) <= 1:
            return []
        taken: list[Waiting] = []
        at = len(self.waiting)
        while len(taken) < excess:
            at -= 1
            item = self.waiting[at]
            if self.counts[item.source] > share.most:
                taken.append(self.waiting.pop(at))
                self.counts[item.source] -= 1
                insort(self.held.setdefault(item.source, array("q")), item.member.offset)
        return taken

    def has_room(self, most: int) -> bool:
        """Return whether some of what is held over fits into the next batch."""
        return any(self.counts[source] < most for source in self.held)

    def take_offsets(self, count: int, most: int) -> list[int]:
        """Remove and return the offsets to be read again: the first beyond the window, and what is held over."""
        offsets, self.beyond = list(self.beyond[:count]), self.beyond[count:]
        for source, held in list(self.held.items()):
            room = max(0, most - self.counts[source])
            offsets += held[:room]
            self.held[source] = held[room:]
            if not self.held[source]:
                del self.held[source]
        return sorted(offsets)

    def take(self, count: int) -> tuple[list[Waiting], list[Member]]:
        """Remove and return the oldest ``count`` reflections and the duplicates noted so far."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        dropped, self.dropped, self.dropped_bytes = self.dropped, [], 0
        if self.counts:
            self.counts -= Counter(item.source for item in taken)
        return taken, dropped


def _offset(item: Waiting) -> int:
    return item.member.offset


def _id_bytes(member: Member) -> int:
    return len(member.reflection_id.encode())


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
    total = ids = 0
    for count, item in enumerate(waiting):
        total += item.size
        ids += _id_bytes(item.member)
        if count and (total > max_bytes or ids > ID_BYTES):
            return count
    return len(waiting)
