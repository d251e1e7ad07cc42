"""A fixed number of slots; a free one goes to the highest priority, first come first served within it."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PrioritySlots:
    """Slots that are handed over directly, so that nobody overtakes and no wake-up is lost."""

    def __init__(self, number: int) -> None:
        if number < 1:
            raise ValueError(f"at least one slot is needed, not {number}")
        self._free = number
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrival = count()

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, priority: int = 0) -> AsyncIterator[None]:
        """Hold a slot; wait for one if none is free."""
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, priority: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._arrival), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = [entry for entry in self._waiting if entry[2] is not turn]
                heapq.heapify(self._waiting)
            else:  # the slot arrived in the same moment: somebody else can use it
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
