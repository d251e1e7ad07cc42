import asyncio
import threading
from dataclasses import replace

import pytest

from combee.adapters.openai.model import OpenAIModel
from combee.adapters.ports import DrainingError
from combee_schemas.model import Prompt
from support import fake_openai as fake
from support import model_rig
from support.fake_openai import FakeOpenAI, refuses, says
from support.model_rig import GOOD, PROMPT, SCHEMA, Build
from support.waiting import until

server, build, model = model_rig.server, model_rig.build, model_rig.model


async def test_no_more_calls_than_the_limit_are_in_flight_and_the_pool_is_large_enough(
    server: FakeOpenAI, build: Build
) -> None:
    gate = asyncio.Event()
    server.always = fake.waits_for(gate, says(GOOD))
    model = build(concurrency=20)
    asked = [asyncio.create_task(model.ask(PROMPT)) for _ in range(25)]
    await until(lambda: server.in_flight == 20)
    gate.set()
    await asyncio.gather(*asked)
    assert server.most_in_flight == 20


def named(name: str) -> Prompt:
    return Prompt(system="s", user=name, reply_name="answer", reply_schema=SCHEMA)


async def test_a_call_that_waits_to_be_retried_gives_its_slot_back(server: FakeOpenAI, build: Build) -> None:
    server.will(refuses(429, headers={"retry-after": "60"}))
    model = build(concurrency=1)
    waits = asyncio.create_task(model.ask(named("waits")))
    await until(lambda: not model.answering)
    async with asyncio.timeout(2):
        assert (await model.ask(named("goes"))).body == {"items": [1]}
    assert not waits.done()
    waits.cancel()
    await asyncio.wait([waits])


async def test_a_cancelled_call_gives_its_slot_back(server: FakeOpenAI, build: Build) -> None:
    server.will(fake.hangs)
    model = build(concurrency=1)
    hanging = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(1)
    hanging.cancel()
    await asyncio.wait([hanging])
    assert hanging.cancelled()
    async with asyncio.timeout(2):
        await model.ask(PROMPT)
    await until(lambda: server.in_flight == 0)


async def test_retries_count_against_the_rate_limit(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(500)
    asking = asyncio.create_task(build(requests_per_minute=3).ask(PROMPT))
    await until(lambda: len(server.seen) == 3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asking
    assert len(server.seen) == 3


async def test_a_reply_that_is_slow_to_read_does_not_stop_the_loop(
    server: FakeOpenAI, model: OpenAIModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_goes_on = threading.Event()

    def slow(*_: object) -> dict[str, bool]:
        return {"in time": loop_goes_on.wait(2)}

    server.always = says("Here it is: {")  # no small reply that is in order as it is
    monkeypatch.setattr("combee.adapters.openai.model.read_reply", slow)
    asked = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(1)
    asyncio.get_running_loop().call_later(0.05, loop_goes_on.set)
    assert (await asked).body == {"in time": True}


async def test_after_the_drain_no_call_is_started(server: FakeOpenAI, model: OpenAIModel) -> None:
    model.drain()
    with pytest.raises(DrainingError):
        await model.ask(PROMPT)
    assert server.seen == []


async def test_work_that_has_paid_for_replies_goes_on_during_the_drain_but_tries_nothing_twice(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    model.drain()
    begun = replace(PROMPT, begun=True)
    server.will(says(GOOD), refuses(500))
    assert (await model.ask(begun)).body == {"items": [1]}
    with pytest.raises(DrainingError):
        await model.ask(begun)
    assert len(server.seen) == 2


async def test_the_drain_waits_for_replies_under_way_and_interrupts_the_rest(
    server: FakeOpenAI, build: Build
) -> None:
    gate = asyncio.Event()
    server.will(fake.waits_for(gate, says(GOOD)), refuses(429, headers={"retry-after": "60"}))
    model = build(concurrency=2)
    under_way = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(1)
    backing_off = asyncio.create_task(model.ask(PROMPT))
    await until(lambda: not model.answering)
    server.will(fake.waits_for(gate, says("no")))
    unusable = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(3)
    queued = asyncio.create_task(model.ask(PROMPT))
    await until(lambda: model._caller._limits._slots.waiting == 1)
    model.drain()
    for interrupted in (backing_off, queued):
        with pytest.raises(DrainingError):
            await asyncio.wait_for(interrupted, 2)
    gate.set()
    assert (await under_way).body == {"items": [1]}
    with pytest.raises(DrainingError):
        await unusable
    assert len(server.seen) == 3


async def test_a_re_ask_that_would_wait_is_not_begun_during_the_drain(
    server: FakeOpenAI, build: Build
) -> None:
    gate = asyncio.Event()
    server.will(fake.waits_for(gate, says("no")))
    model = build(requests_per_minute=1)
    asked = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(1)
    model.drain()
    gate.set()
    with pytest.raises(DrainingError):
        await asyncio.wait_for(asked, 2)


async def test_a_call_that_fails_during_the_drain_is_not_tried_again(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    gate = asyncio.Event()
    server.will(fake.waits_for(gate, refuses(500)))
    asked = asyncio.create_task(model.ask(PROMPT))
    await server.has_seen(1)
    model.drain()
    gate.set()
    with pytest.raises(DrainingError):
        await asked
    assert len(server.seen) == 1


async def test_the_callers_own_time_out_stays_a_time_out(server: FakeOpenAI, model: OpenAIModel) -> None:
    server.will(fake.hangs)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await model.ask(PROMPT)
