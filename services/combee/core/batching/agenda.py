"""Which lines of a partition to look at: those that changed, and those whose first reflection has waited; pure."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from combee.core.batching.window import Window

K = TypeVar("K")
N = TypeVar("N", int, float)

STALE_KEPT = 64


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
