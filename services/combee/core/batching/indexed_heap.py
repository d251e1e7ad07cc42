"""A heap with keys: returns the key with the smallest number while numbers change."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

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
