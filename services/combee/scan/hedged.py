"""A language model whose slow calls are made a second time; the first answer counts, the other call is cancelled."""

import asyncio

from combee.adapters.ports import Clock, LanguageModel, PoisonError
from combee.core.batching.hedging import Hedging
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.model import Prompt, Reply


class HedgedModel:
    """The ``LanguageModel`` port around another; its priority is the level of the node that asks."""

    def __init__(
        self, model: LanguageModel, clock: Clock, hedging: Hedging | None = None, *, watches: bool = False
    ) -> None:
        self._model = model
        self._clock = clock
        self._hedging = hedging or Hedging()
        self._watches = watches
        """Whether calls are only measured, for the benefit of other calls."""

    def watching(self) -> "HedgedModel":
        """Return a model that makes no call twice but still measures its calls."""
        return HedgedModel(self._model, self._clock, self._hedging, watches=True)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the first usable reply, with the usage of both calls; if one call fails, wait for the other."""
        calls = [asyncio.create_task(self._model.ask(prompt, priority=priority))]
        number, answered = self._hedging.begin(priority, self._clock.monotonic()), False
        try:
            after_s = self._hedging.after_s(priority)
            if after_s is not None and not self._watches:
                await asyncio.wait(calls, timeout=after_s)
                if not calls[0].done() and self._hedging.spend(self._clock.monotonic()):
                    calls.append(asyncio.create_task(self._model.ask(prompt, priority=priority)))
            await _until_answered(calls)
            answered = any(map(_is_answered, calls))
        finally:
            self._hedging.end(number, self._clock.monotonic(), answered=answered)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        return _outcome(calls)

    def drain(self) -> None:
        """Start no further call."""
        self._model.drain()

    async def close(self) -> None:
        """Drop connections."""
        await self._model.close()


async def _until_answered(calls: list[asyncio.Task[Reply]]) -> None:
    waiting = set(calls)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if any(map(_is_answered, done)):
            return


def _is_answered(call: asyncio.Task[Reply]) -> bool:
    return call.done() and not call.cancelled() and call.exception() is None


def _outcome(calls: list[asyncio.Task[Reply]]) -> Reply:
    """Return the answer, or raise the error if there is none; either has the usage of all calls."""
    best = next(filter(_is_answered, calls), calls[0])
    others = [call for call in calls if call is not best]
    if _is_answered(best):
        reply = best.result()
        usage = sum((_spent(call, reply.usage) for call in others), reply.usage)
        return Reply(body=reply.body, usage=usage, request=reply.request)
    error = best.exception()
    assert error is not None  # noqa: S101 - a call that has no answer has ended, and not by us
    if isinstance(error, PoisonError):
        error.usage = sum((_spent(call, error.usage) for call in others), error.usage)
    raise error


def _spent(call: asyncio.Task[Reply], winner: Usage) -> Usage:
    """Return the usage of the other call; a cancelled call counts as expensive as the winner's."""
    if call.cancelled():
        share = max(1, winner.calls)
        estimate = {"tokens_in": winner.tokens_in // share, "tokens_out": winner.tokens_out // share}
        return Usage(calls=1, hedges=1, seconds=winner.seconds / share, **estimate)
    error = call.exception()
    spent = call.result().usage if error is None else getattr(error, "usage", NOTHING_SPENT)
    return spent + Usage(hedges=1) if spent.calls else spent
