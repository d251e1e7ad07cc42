"""A canary over HTTP: who reads it, what is said of it, and that streams tell when it is over."""

import asyncio
import json

import httpx

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log
from combee.core.gate.canary import place_of, version_for
from combee.core.gate.policy import CanaryPolicy
from combee.sdk import AsyncClient
from combee.sdk.reading import PlaybookRef
from combee_schemas import topics
from combee_schemas.playbook import Label
from support.gateway import Asked, Stream, asked, published, served, version
from support.ledger import read_all
from support.waiting import until

NAME = "support/refunds"
PATH = f"/v1/playbooks/{NAME}"
TERMS = CanaryPolicy(share=0.5).terms(NAME, 2, 1, SystemClock().now_ms())
CALLERS = [f"agent-{number}" for number in range(20)]


def shown_to(caller: str) -> int:
    return version_for(place_of(NAME, TERMS, caller), TERMS)


OURS, THEIRS = (next(name for name in CALLERS if shown_to(name) == number) for number in (2, 1))


async def tried(log: Log, *, control: int = 1) -> None:
    """Write versions, of which the first is production and the second a candidate on its canary."""
    terms = TERMS.model_copy(update={"control": control})
    production = Label(playbook=NAME, label="production", version=control, gate=("canary",))
    candidate = Label(playbook=NAME, label="candidate", version=2, canary=terms)
    await log.produce(topics.LABELS.record(production), topics.LABELS.record(candidate))
    await published(log, *(version(NAME, number, gated=True) for number in (1, 2)))


async def known(gateway: Asked) -> None:
    await until(lambda: gateway.context.playbooks.latest(NAME).version == 2)
    await until(lambda: len(gateway.context.labels.all()) == 2)


async def test_callers_are_shown_the_candidate_or_production_and_told_their_place() -> None:
    async with asked() as gateway:
        await tried(gateway.log)
        await known(gateway)
        for caller in CALLERS:
            answer = await gateway.client.get(PATH, params={"caller": caller})
            assert int(answer.headers["combee-version"]) == shown_to(caller)
            assert answer.headers["combee-canary"] == place_of(NAME, TERMS, caller)
        for options in ({}, {"caller": OURS, "label": "production"}, {"caller": OURS, "version": "1"}):
            plain = await gateway.client.get(PATH, params=options)
            assert (plain.headers["combee-version"], "combee-canary" in plain.headers) == ("1", False)


async def test_control_without_a_version_to_read_is_told_its_place_all_the_same() -> None:
    async with asked() as gateway:
        await tried(gateway.log, control=0)
        await known(gateway)
        answer = await gateway.client.get(PATH, params={"caller": THEIRS})
        assert answer.status_code == 404
        assert answer.headers["combee-canary"].startswith("2-")


async def test_what_an_outcome_says_of_its_place_is_kept() -> None:
    async with asked() as gateway:
        await tried(gateway.log)
        place = place_of(NAME, TERMS, OURS)
        said = {"run_id": "r", "playbook": NAME, "success": True, "shown": {"version": 2, "canary": place}}
        assert (await gateway.client.post("/v1/outcomes", json=said)).status_code == 202
        wrong = {**said, "shown": {"version": 2, "canary": "anything"}}
        assert (await gateway.client.post("/v1/outcomes", json=wrong)).status_code == 422
        (record,) = await read_all(gateway.log, topics.OUTCOMES)
        shown = topics.OUTCOMES.read(record).shown
        assert shown is not None
        assert shown.canary == place


async def test_how_far_a_canary_is_stands_with_the_outcomes() -> None:
    async with asked() as gateway:
        await tried(gateway.log)
        await known(gateway)
        told = (await gateway.client.get(f"{PATH}/outcomes")).json()["canary"]
        assert (told["state"], told["candidate"]["version"], told["control"]["version"]) == ("open", 2, 1)
        assert "more callers" in told["missing"][0]


async def test_a_client_behind_the_gateway_is_shown_it_and_no_longer_when_it_is_over() -> None:
    log = MemoryLog(SystemClock())
    await tried(log)
    async with served(log) as (address, _), AsyncClient(address) as client:

        def shown(caller: str) -> int:
            return client.read(PlaybookRef(name=NAME, caller=caller)).version

        await client.playbook(NAME, caller=OURS)
        await until(lambda: shown(OURS) == 2)
        assert shown(THEIRS) == 1
        await log.produce(topics.LABELS.tombstone(f"{NAME}#candidate"))
        await until(lambda: shown(OURS) == 1)


async def test_a_stream_tells_of_a_candidate_and_that_there_is_none_any_more() -> None:
    log = MemoryLog(SystemClock())
    await tried(log)
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(f"{PATH}/events")
        reading = asyncio.create_task(stream.read(client, until=lambda _: candidates(stream) == [2, 0]))
        await until(lambda: candidates(stream) == [2])
        await log.produce(topics.LABELS.tombstone(f"{NAME}#candidate"))
        await reading


def candidates(stream: Stream) -> list[int]:
    told = [json.loads(event.data) for event in stream.of("label")]
    return [each["version"] for each in told if each["label"] == "candidate"]
