"""The window: reflections of one playbook that wait for their batch, and when it closes."""

from array import array
from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from combee.core.batching.limits import BATCH_BYTES, SPAN
from combee_schemas.batch import Member
from combee_schemas.plan import CloseReason
from combee_schemas.reflection import Reflection
from combee_schemas.trace_context import TraceContext

ID_BYTES, REPEAT_BYTES = 256 << 10, 128 << 10
"""Maximum bytes in a manifest of a batch's ids, and of its repeats, so that it fits a record."""
MEMBER_BYTES = 66
"""Bytes of a repeat in a manifest in addition to its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting reflection; beyond the byte limit its body stays in the log."""

    member: Member
    size: int
    seen_at: float
    """Monotonic seconds."""
    body: Reflection | None
    source: str = ""
    """Its source, if sources have shares."""
    context: TraceContext | None = None
    """The span in which it was written, if spans are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The shares of a batch that sources may fill where others wait."""

    batch_size: int
    parts: Mapping[str, Fraction]
    """By source, its part of the playbook's reflections."""

    def most_of(self, source: str, sources: int) -> int:
        """Return how many reflections of one of several sources a batch may have: its part, or an equal one."""
        part = max(self.parts.get(source, Fraction(0)), Fraction(1, sources))
        return max(1, int(part * self.batch_size))


@dataclass(slots=True, kw_only=True)
class Window:
    """Reflections waiting for one playbook's next batches, in offset order."""

    waiting: list[Waiting] = field(default_factory=list)
    overflow: "array[int]" = field(default_factory=lambda: array("q"))
    """Offsets that arrived while the window was full; they are read again when there is room."""
    over_share: "dict[str, array[int]]" = field(default_factory=dict)
    """Per source, offsets beyond its share; they are read again for later batches."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of ``waiting`` per source, if sources have shares."""
    dropped: list[Member] = field(default_factory=list)
    dropped_bytes: int = 0
    flush_through: int = -1
    """Reflections up to this offset are batched even if the batch is not full."""
    left_out: tuple[int, ...] | None = None
    """Recorded coverage from the flush of a replay."""

    @property
    def oldest(self) -> int | None:
        """The offset of the first waiting reflection; None if there is none."""
        firsts = [offsets[0] for offsets in self.over_share.values()]
        if self.waiting:
            firsts.append(self.waiting[0].member.offset)
        elif self.overflow:
            firsts.append(self.overflow[0])
        return min(firsts, default=None)

    @property
    def over_share_count(self) -> int:
        """Number of reflections that wait because their sources exceed their share."""
        return sum(map(len, self.over_share.values()))

    def __len__(self) -> int:
        return len(self.waiting) + len(self.overflow) + self.over_share_count

    def add(self, item: Waiting) -> None:
        """Insert a reflection at its place."""
        if self.waiting and item.member.offset < self.waiting[-1].member.offset:
            insort(self.waiting, item, key=_offset)
        else:
            self.waiting.append(item)
        if item.source:
            self.counts[item.source] += 1

    def add_repeat(self, member: Member) -> None:
        """Note a repeat for the next manifest, if there is room in it."""
        size = MEMBER_BYTES + _id_bytes(member)
        if self.dropped_bytes + size <= REPEAT_BYTES:
            self.dropped.append(member)
            self.dropped_bytes += size

    def hold_over(self, share: Share) -> list[Waiting]:
        """Remove and return the newest reflections beyond their sources' shares, as far as others fill a batch.

        They wait for later batches.
        """
        sources = {*share.parts, *self.counts, *self.over_share}
        if len(self.waiting) <= share.batch_size or len(sources) <= 1:
            return []
        most = {source: share.most_of(source, len(sources)) for source in self.counts}
        excess = sum(max(0, count - most[source]) for source, count in self.counts.items())
        excess = min(excess, len(self.waiting) - share.batch_size)
        taken: list[Waiting] = []
        at = len(self.waiting)
        while len(taken) < excess:
            at -= 1
            item = self.waiting[at]
            if self.counts[item.source] > most[item.source]:
                taken.append(self.waiting.pop(at))
                self.counts[item.source] -= 1
                insort(self.over_share.setdefault(item.source, array("q")), item.member.offset)
        return taken

    def take_offsets(self, overflow: int, over_share: int) -> list[int]:
        """Remove and return the oldest offsets to be read again, of the overflow and of those over their share."""
        offsets, self.overflow = list(self.overflow[:overflow]), self.overflow[overflow:]
        held = sorted((at, source) for source, of in self.over_share.items() for at in of[:over_share])
        for at, source in held[:over_share]:
            offsets.append(at)
            self.over_share[source].remove(at)
            if not self.over_share[source]:
                del self.over_share[source]
        return sorted(offsets)

    def take(self, count: int) -> tuple[list[Waiting], list[Member]]:
        """Remove and return the oldest ``count`` reflections and the repeats noted so far."""
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
    """A window's next batch: the number of its oldest reflections, and the reason for closing."""

    count: int
    reason: CloseReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a line's next batch is cut of, and what stays behind in its window."""

    reason: CloseReason
    items: Sequence[Waiting]
    dropped: Sequence[Member]
    """Repeats that were noted since the last batch."""
    left_out: tuple[int, ...] | None
    waiting: int
    """Number of reflections that stay behind."""
    through_offset: int
    """Offset up to which every reflection of the playbook is in this batch or an earlier one."""


def due(
    window: Window, batch_size: int, *, max_wait_s: float, now: float, newest_offset: int
) -> Close | None:
    """Return the batch that should close now, or None. Count goes before bytes, bytes before time."""
    if not window.waiting:
        return None
    if window.overflow and len(window.waiting) < batch_size:
        return None  # full: the rest of the batch is on its way
    oldest = window.waiting[0]
    full = _within_bytes(window.waiting[:batch_size])
    if full < min(batch_size, len(window.waiting)):
        return Close(count=full, reason="bytes")
    if full == batch_size:
        return Close(count=full, reason="size")
    flushed = sum(1 for item in window.waiting[:full] if item.member.offset <= window.flush_through)
    if flushed:
        return Close(count=flushed, reason="flush")
    if newest_offset - oldest.member.offset >= SPAN:
        return Close(count=full, reason="span")
    if now - oldest.seen_at >= max_wait_s:
        return Close(count=full, reason="wait")
    return None


def _within_bytes(waiting: Sequence[Waiting]) -> int:
    total = ids = 0
    for count, item in enumerate(waiting):
        total += item.size
        ids += _id_bytes(item.member)
        if count and (total > BATCH_BYTES or ids > ID_BYTES):
            return count
    return len(waiting)
