"""Slow calls made again, in virtual time: the first answer counts, the other call is cancelled, both are paid."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from combee.adapters.ports import DrainingError, PoisonError
from combee.core.batching.hedging import LEARNED_FROM
from combee.scan.hedged import HedgedModel
from combee_experiments.running.virtual_time import LoopClock, run_virtual
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply

PROMPT = Prompt(system="s", user="u", reply_name="n", reply_schema={})
USUAL = 10 * LEARNED_FROM
CALL = Usage(calls=1, tokens_in=100, tokens_out=10)


class TimedModel:
    """The n-th call takes the n-th of these seconds, then 1 s each; an error in the list ends its call at once."""

    def __init__(self, *script: float | Exception) -> None:
        self.script: list[float | Exception] = list(script)
        self.calls = 0
        self.cancelled = 0
        self.under_way = 0
        self.fails_after_s = 0.5

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        del prompt, priority
        self.calls += 1
        step = self.script.pop(0) if self.script else 1.0
        if isinstance(step, Exception):
            await asyncio.sleep(self.fails_after_s)
            raise step
        self.under_way += 1
        try:
            await asyncio.sleep(step)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        return Reply(body={"after": step}, usage=CALL)

    def drain(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


async def learned(model: TimedModel) -> HedgedModel:
    """Return a model that knows that calls take a second, with hedges saved up."""
    script, model.script = model.script, []
    hedged = HedgedModel(model, LoopClock())
    for _ in range(USUAL):
        await hedged.ask(PROMPT)
    model.script, model.calls = script, 0
    return hedged


def virtually(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    def test() -> None:
        run_virtual(work())

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


@virtually
async def test_the_first_answer_counts_and_the_other_call_is_cancelled() -> None:
    model = TimedModel(60.0, 2.0)
    hedged, clock = await learned(model), LoopClock()
    began = clock.monotonic()
    reply = await hedged.ask(PROMPT)
    assert clock.monotonic() - began == pytest.approx(1.25 + 2.0)
    assert reply.body == {"after": 2.0}
    assert (model.calls, model.cancelled) == (2, 1)
    assert reply.usage == CALL + CALL + Usage(hedges=1)


@virtually
async def test_a_slow_call_that_answers_first_counts_and_the_second_is_cancelled() -> None:
    model = TimedModel(2.0, 60.0)
    hedged = await learned(model)
    reply = await hedged.ask(PROMPT)
    assert reply.body == {"after": 2.0}
    assert model.cancelled == 1
    assert reply.usage.hedges == 1


@virtually
async def test_usual_calls_are_made_once() -> None:
    model = TimedModel(1.0, 1.2)
    hedged = await learned(model)
    replies = [await hedged.ask(PROMPT) for _ in range(2)]
    assert model.calls == 2
    assert all(reply.usage == CALL for reply in replies)


@virtually
async def test_an_error_alone_waits_for_the_other_call_and_is_paid() -> None:
    unusable = PoisonError("no use")
    unusable.usage = Usage(calls=2, re_asks=1, tokens_in=200)
    hedged = await learned(TimedModel(5.0, unusable))
    reply = await hedged.ask(PROMPT)
    assert reply.body == {"after": 5.0}
    assert reply.usage == CALL + unusable.usage + Usage(hedges=1)


@virtually
async def test_a_second_call_that_may_not_start_costs_nothing() -> None:
    hedged = await learned(TimedModel(5.0, DrainingError("stopping")))
    assert (await hedged.ask(PROMPT)).usage == CALL


@virtually
async def test_where_both_fail_the_error_has_the_usage_of_both() -> None:
    unusable = PoisonError("no use"), PoisonError("no use either")
    for error in unusable:
        error.usage = CALL
    model = TimedModel(*unusable)
    model.fails_after_s = 3.0
    hedged = await learned(model)
    with pytest.raises(PoisonError) as raised:
        await hedged.ask(PROMPT)
    assert raised.value.usage == CALL + CALL + Usage(hedges=1)


@virtually
async def test_no_call_is_made_again_when_all_are_slow() -> None:
    model = TimedModel(*[30.0] * 20)
    hedged = await learned(model)
    await asyncio.gather(*(hedged.ask(PROMPT) for _ in range(20)))
    assert model.calls == 20


@virtually
async def test_hedges_stay_a_tenth_of_the_calls() -> None:
    model = TimedModel(*[9.0 if n % 5 == 0 else 1.0 for n in range(600)])
    hedged = await learned(model)
    for _ in range(400):
        await hedged.ask(PROMPT)
    assert 400 < model.calls <= 1.1 * (400 + USUAL)


@virtually
async def test_who_watches_learns_and_makes_no_call_again() -> None:
    model = TimedModel(60.0)
    hedged = await learned(model)
    reply = await hedged.watching().ask(PROMPT)
    assert (model.calls, reply.usage) == (1, CALL)


@virtually
async def test_whoever_gives_up_cancels_both_calls() -> None:
    model = TimedModel(60.0, 60.0)
    hedged = await learned(model)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await hedged.ask(PROMPT)
    assert (model.calls, model.cancelled, model.under_way) == (2, 2, 0)
