"""Limits of a worker's model calls: in flight, requests per minute, tokens per minute."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiolimiter import AsyncLimiter

REMEMBERED = 1_000
"""Number of owners above which owners without a needed history are forgotten."""


class Shares:
    """Fair shares of several owners: counts turns, and the owner with the lowest ``of`` is next.

    An owner that was idle may have ``credit`` turns before the others, and then takes turns with them: idle time is
    not saved up.
    """

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self._now = 0
        self._taken: dict[str, int] = {}

    def of(self, owner: str) -> int:
        """Return the number of turns counted for an owner."""
        return max(self._taken.get(owner, 0), self._now - self._credit)

    def take(self, owner: str) -> None:
        """Give an owner a turn."""
        had = self.of(owner)
        self._now = max(self._now, had)
        self._taken[owner] = had + 1
        if len(self._taken) > REMEMBERED:
            floor = self._now - self._credit
            self._taken = {name: taken for name, taken in self._taken.items() if taken > floor}


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    priority: int
    owner: str
    future: asyncio.Future[None]


class PrioritySlots:
    """Slots that are handed over directly, so that no wake-up is lost.

    A free slot goes to the highest priority, then to the owner with the fewest recent turns, then to the first in
    line.
    """

    def __init__(self, number: int) -> None:
        if number < 1:
            raise ValueError(f"at least one slot is needed, not {number}")
        self._free = number
        self._shares = Shares(credit=number)
        self._waiting: list[_Turn] = []

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, priority: int = 0, owner: str = "") -> AsyncIterator[None]:
        """Hold a slot; wait for one if none is free."""
        await self._acquire(priority, owner)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, priority: int, owner: str) -> None:
        if self._free:
            self._free -= 1
            self._shares.take(owner)
            return
        turn = _Turn(priority, owner, asyncio.get_running_loop().create_future())
        self._waiting.append(turn)
        try:
            await turn.future
        except asyncio.CancelledError:
            if turn.future.cancelled():
                self._waiting.remove(turn)
            else:  # the slot arrived in the same moment: pass it on
                self._release()
            raise

    def _release(self) -> None:
        waiting = [turn for turn in self._waiting if not turn.future.done()]
        if not waiting:
            self._free += 1
            return
        chosen = min(waiting, key=lambda turn: (-turn.priority, self._shares.of(turn.owner)))
        self._waiting.remove(chosen)
        self._shares.take(chosen.owner)
        chosen.future.set_result(None)


class Limits:
    """Limits of a worker's model calls, at once and per minute; None: no such limit."""

    def __init__(
        self, *, concurrency: int, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        self._slots = PrioritySlots(concurrency)
        # aiolimiter lets small amounts overtake without end; one at a time keeps the order.
        self._turn = PrioritySlots(1)
        self._requests = AsyncLimiter(requests_per_minute) if requests_per_minute else None
        self._tokens = AsyncLimiter(tokens_per_minute) if tokens_per_minute else None
        self._owed_tokens = 0

    @asynccontextmanager
    async def hold(self, *, priority: int, tokens: int, owner: str = "") -> AsyncIterator[None]:
        """Hold a slot for one call of about ``tokens`` tokens, once the rates allow it."""
        async with self._slots.hold(priority, owner):
            if self._requests or self._tokens:
                async with self._turn.hold(priority, owner):
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
