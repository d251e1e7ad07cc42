"""What model calls take in experiments: heavy-tailed durations, and a model with them."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from combee.adapters.ports import LanguageModel
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_sim.chance import draw


class Tail(Protocol):
    """A distribution of times."""

    def seconds(self, chance: float, /) -> float:
        """Return the time for a draw in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds per token of a call, without its tail; the defaults are a hosted model's order of magnitude."""

    in_per_s: float = 5_000.0
    out_per_s: float = 60.0

    def seconds(self, usage: Usage) -> float:
        """Return the time for reading and writing so much."""
        return usage.tokens_in / self.in_per_s + usage.tokens_out / self.out_per_s


class SlowModel:
    """A model whose calls take the time a tail says, a few at a time; counts what it was asked.

    The n-th call takes the same time in every run with the same seed, so that ways to run are compared on
    the same luck.
    """

    def __init__(
        self, inner: LanguageModel, tail: Tail, *, seed: int, concurrency: int, pace: Pace | None = None
    ) -> None:
        self._inner = inner
        self._tail = tail
        self._pace = pace
        self._seed = seed
        self._slots = asyncio.Semaphore(concurrency)
        self._asked = 0
        self.usage = Usage()

    @property
    def asked(self) -> int:
        """How many calls were begun, those included that were cancelled."""
        return self._asked

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Answer late."""
        self._asked += 1
        chance = draw("model time", self._seed, self._asked)
        async with self._slots:
            reply = await self._inner.ask(prompt, priority=priority)
            read = self._pace.seconds(reply.usage) if self._pace else 0.0
            await asyncio.sleep(self._tail.seconds(chance) + read)
        self.usage += reply.usage
        return reply

    def drain(self) -> None:
        self._inner.drain()

    async def close(self) -> None:
        await self._inner.close()
