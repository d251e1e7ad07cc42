"""One limiter for calls in flight, requests per minute and tokens per minute."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiolimiter import AsyncLimiter

from combee.adapters.openai.slots import PrioritySlots


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
