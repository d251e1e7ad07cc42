"""The window: reflections of a line that wait for their batch, when it closes, and which windows to look at; pure."""

from array import array
from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from combee.core.batching.limits import BATCH_BYTES, SPAN
from combee_schemas.base import Shown
from combee_schemas.batch import Member
from combee_schemas.plan import CloseReason
from combee_schemas.reflection import Reflection
from combee_schemas.trace_context import TraceContext

K = TypeVar("K")
N = TypeVar("N", int, float)

ID_BYTES, REPEAT_BYTES = 256 << 10, 128 << 10
"""Maximum bytes in a manifest of a batch's ids, and of its repeats, so that it fits a record."""
MEMBER_BYTES = 66
"""Bytes of a repeat in a manifest in addition to its id."""
TAG_BYTES, NAME_BYTES = 600, 100
"""Bytes that a tag and another name of a decoded reflection take in memory, in addition to its bytes in the log."""
STALE_KEPT = 64
"""Number of stale items that a heap may always have."""
NOTHING_SHOWN = Shown(version=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting reflection; beyond the byte limit its body stays in the log."""

    member: Member
    size: int
    seen_at: float
    """Monotonic seconds."""
    body: Reflection | None
    source: str = ""
    """The source whose share it counts against."""
    context: TraceContext | None = None
    """The span in which it was written, if spans are recorded."""

    @property
    def memory(self) -> int:
        """About how many bytes the body takes in memory: thirty times its size if it is all tags."""
        if self.body is None:
            return 0
        shown = self.body.shown or NOTHING_SHOWN
        names = (self.body.bullet_ids, self.body.side_info, shown.entry_ids, shown.digests)
        return self.size + TAG_BYTES * len(self.body.bullet_tags) + NAME_BYTES * sum(map(len, names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a batch each source may fill while others wait."""

    batch_size: int
    parts: Mapping[str, Fraction]
    """By source, its part of the playbook's reflections."""

    def most_of(self, source: str, sources: int) -> int:
        """Return a source's maximum number of reflections in a batch: its part, or an equal part if that is more."""
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

    def add_repeat(self, member: Member) -> None:
        """Note a repeat for the next manifest, if there is room in it."""
        size = MEMBER_BYTES + _id_bytes(member)
        if self.dropped_bytes + size <= REPEAT_BYTES:
            self.dropped.append(member)
            self.dropped_bytes += size

    def hold_over(self, share: Share) -> list[Waiting]:
        """Remove and return the newest reflections beyond their sources' shares; a full batch always stays.

        The removed ones wait for later batches.
        """
        beyond = self._beyond([(item.member.offset, item.source) for item in self.waiting], share)
        taken = [item for item in self.waiting if item.member.offset in beyond]
        self.waiting = [item for item in self.waiting if item.member.offset not in beyond]
        for item in taken:
            insort(self.over_share.setdefault(item.source, array("q")), item.member.offset)
        return taken

    def _beyond(self, places: Sequence[tuple[int, str]], share: Share) -> set[int]:
        """Return the newest of these offsets beyond their sources' shares, as far as the others fill a batch.

        Who is farthest beyond its share gives way first: nobody alone has what others leave while several wait.
        """
        here = {source for _, source in places}
        sources = {*share.parts, *here, *self.over_share}
        if len(places) <= share.batch_size or len(sources) <= 1:
            return set()
        most = {source: share.most_of(source, len(sources)) for source in here}
        counts, excess = Counter[str](), list[tuple[int, int]]()
        for at, source in sorted(places):
            counts[source] += 1
            if counts[source] > most[source]:
                excess.append((counts[source] - most[source], at))
        beyond = sorted(excess, reverse=True)[: len(places) - share.batch_size]
        return {at for _, at in beyond}

    def take_offsets(self, overflow: int, over_share: int, share: Share | None) -> list[int]:
        """Remove and return the oldest offsets to be read again, of the overflow and of those over their share.

        Together with what waits here these keep their sources' shares, too.
        """
        offsets, self.overflow = list(self.overflow[:overflow]), self.overflow[overflow:]
        held = sorted((at, source) for source, of in self.over_share.items() for at in of[:over_share])
        if share is None:
            held = held[:over_share]
        else:
            waiting = ((item.member.offset, item.source) for item in self.waiting)
            beyond = self._beyond((*waiting, *held), share)
            held = [(at, source) for at, source in held if at not in beyond]
        for at, source in held:
            offsets.append(at)
            self.over_share[source].remove(at)
            if not self.over_share[source]:
                del self.over_share[source]
        return sorted(offsets)

    def take(self, close: "Close") -> "Taken":
        """Remove and return the oldest reflections, and the repeats noted so far."""
        items, self.waiting = self.waiting[: close.count], self.waiting[close.count :]
        dropped, self.dropped, self.dropped_bytes = self.dropped, [], 0
        left_out = self.left_out if close.reason == "flush" else None
        return Taken(reason=close.reason, items=items, dropped=dropped, left_out=left_out, waiting=len(self))


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
    """What a line's next batch is cut of."""

    reason: CloseReason
    items: Sequence[Waiting]
    dropped: Sequence[Member] = ()
    """Repeats that were noted since the last batch."""
    left_out: tuple[int, ...] | None = None
    waiting: int
    """Number of reflections that stay behind in the window."""


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


# ---- which windows to look at


class IndexedHeap(Generic[K, N]):
    """Numbers by key. Replaced and removed items stay in the heap until they come up, or are the majority."""

    def __init__(self) -> None:
        self._numbers: dict[K, N] = {}
        self._heap: list[tuple[N, K]] = []

    def set(self, key: K, number: N | None) -> None:
        """Give a key its number; None removes it."""
        if number is None:
            self._numbers.pop(key, None)
        elif self._numbers.get(key) != number:
            self._numbers[key] = number
            heappush(self._heap, (number, key))
            if len(self._heap) > 2 * len(self._numbers) + STALE_KEPT:
                self._heap = [(known, name) for name, known in self._numbers.items()]
                heapify(self._heap)

    def smallest(self) -> N | None:
        """Return the smallest number; None without keys."""
        while self._heap and self._numbers.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_through(self, limit: N) -> list[K]:
        """Remove and return the keys whose number is at most ``limit``, the smallest number first."""
        taken = []
        while (smallest := self.smallest()) is not None and smallest <= limit:
            _, key = heappop(self._heap)
            del self._numbers[key]
            taken.append(key)
        return taken


@dataclass(slots=True)
class Agenda:
    """The lines to look at; a look at every window in every turn would take too long."""

    changed: set[str] = field(default_factory=set)
    """Lines with a change after which their window may be due."""
    blocked: set[str] = field(default_factory=set)
    """Lines with a due batch that something holds back: no event says when it may go."""
    _oldest: IndexedHeap[str, int] = field(default_factory=IndexedHeap)
    """By line, the offset of the first reflection that waits."""
    _due_by_offset: IndexedHeap[str, int] = field(default_factory=IndexedHeap)
    """The same, until the log has gone too far beyond it."""
    _due_by_time: IndexedHeap[str, float] = field(default_factory=IndexedHeap)
    """By line, when that reflection was seen, in monotonic seconds, until it has waited too long."""

    def note(self, line: str, window: Window) -> None:
        """Record that a line's window has another first reflection."""
        self.changed.add(line)
        self._oldest.set(line, window.oldest)
        self.remind(line, window)

    def remind(self, line: str, window: Window) -> None:
        """Schedule a look at a line for when its first reflection is old."""
        self._due_by_offset.set(line, window.oldest)
        self._due_by_time.set(line, window.waiting[0].seen_at if window.waiting else None)

    def look_again(self) -> None:
        """Put the blocked lines among those to look at."""
        self.changed |= self.blocked
        self.blocked.clear()

    def take(self, *, seen_by: float, before: int) -> set[str]:
        """Return the lines to look at, once: changed ones, and those whose first reflection is old.

        A reflection is old if it was seen by that time, or stands at or before that offset. A caller that finds
        a line not due calls ``remind`` again.
        """
        self.changed.update(self._due_by_time.take_through(seen_by), self._due_by_offset.take_through(before))
        taken, self.changed = self.changed, set()
        return taken

    @property
    def oldest(self) -> int | None:
        """The offset of the first reflection that waits on any line; None: none waits."""
        return self._oldest.smallest()

    @property
    def waiting_since(self) -> float | None:
        """Monotonic seconds at which the oldest scheduled reflection was seen."""
        return self._due_by_time.smallest()
