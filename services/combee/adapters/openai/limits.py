"""Limits of a worker's model calls: in flight, requests per minute, tokens per minute."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from aiolimiter import AsyncLimiter


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


class Limits:
    """What a worker may ask of a model at once and per minute; None means no such limit."""

    def __init__(
        self, *, concurrency: int, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        self._slots = PrioritySlots(concurrency)
        # aiolimiter lets small amounts overtake, for ever if need be; one at a time keeps the order.
        self._turn = PrioritySlots(1)
        self._requests = AsyncLimiter(requests_per_minute) if requests_per_minute else None
        self._tokens = AsyncLimiter(tokens_per_minute) if tokens_per_minute else None
        self._owed_tokens = 0

    @asynccontextmanager
    async def hold(self, *, priority: int, tokens: int) -> AsyncIterator[None]:
        """Hold a slot for one call of about ``tokens`` tokens, once the rates allow it."""
        async with self._slots.hold(priority):
            if self._requests or self._tokens:
                async with self._turn.hold(priority):
                    await self._pay(tokens)
            yield

    def settle(self, *, estimated: int, used: int) -> None:
        """Correct an estimate by what the call used; the next call pays or saves the difference."""
        self._owed_tokens += used - estimated

    async def _pay(self, tokens: int) -> None:
        if self._requests:
            await self._requests.acquire()
        if self._tokens:
            # A prompt larger than a minute's allowance would wait for ever: it takes the whole minute.
            amount = min(max(tokens + self._owed_tokens, 0), int(self._tokens.max_rate))
            await self._tokens.acquire(amount)
            self._owed_tokens = max(self._owed_tokens + tokens - amount, 0)
