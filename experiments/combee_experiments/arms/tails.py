"""Time in experiments: heavy-tailed durations, and an event loop whose clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from combee.ports import LanguageModel
from combee.sim.chance import draw
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply


class Tail(Protocol):
    """A distribution of times."""

    def seconds(self, chance: float, /) -> float:
        """Return the time for a draw in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a call takes for each token, beside its tail; the defaults are a hosted model's order of magnitude."""

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


T = TypeVar("T")


class NothingLeftError(RuntimeError):
    """Everybody waits for somebody else: no timer is set, so time could never go on."""


class _Jumping(selectors.SelectSelector):
    """Never waits: what a real selector would sleep, the clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise NothingLeftError("virtual time stands still: no timer is set and nobody is ready")
        self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; threads and sockets have no place in it."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._jumping.now_s


class LoopClock:
    """The ``Clock`` port on the running loop, virtual or not."""

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, in no time at all.

    Raises
    ------
    NothingLeftError
        If all of it waits and no timer is set.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
