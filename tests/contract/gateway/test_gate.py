"""The gate over HTTP: what is read, what waits, and how a person decides."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence

import httpx
import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Clock, Log, Record
from combee.core.gate.policy import GatePolicy
from combee.gateway.app import build
from combee.gateway.context import context_of
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.playbook import Label
from support.gateway import (
    ADMIN,
    CONFIGURED,
    DEADLINE_S,
    READER,
    Asked,
    Stream,
    as_gateway,
    asked,
    bearer,
    published,
    publishing,
    served,
    version,
)
from support.waiting import until

NAME = "support/refunds"
PATH = f"/v1/playbooks/{NAME}"
ONE, TWO = (f"## OTHERS\n[misc-00001] helpful=1 harmful=0 :: {said}\n" for said in ("be kind", "be brief"))
APPROVE = GatePolicy(judges=("approve",))


async def learned(gateway: Asked, text: str) -> None:
    answer = await gateway.client.post(
        f"{PATH}/import?wait_s=10", json={"text": text, "format": "ace"}, headers=bearer(ADMIN)
    )
    assert answer.status_code == 200, answer.text


async def said(gateway: Asked, verb: str, **body: object) -> httpx.Response:
    return await gateway.client.post(f"{PATH}/{verb}?wait_s=10", json=body, headers=bearer(ADMIN))


async def test_a_person_sees_what_waits_and_approves_or_rejects_it() -> None:
    async with asked(**CONFIGURED) as gateway, publishing(gateway.log, APPROVE):
        reader = bearer(READER)
        await learned(gateway, ONE)
        refused = await gateway.client.get(PATH, headers=reader)
        assert refused.status_code == 404
        assert "has passed its gate yet: version 1 is being judged" in refused.json()["detail"]
        assert (await gateway.client.get(f"{PATH}?label=latest", headers=reader)).json()["version"] == 1
        candidate = (await gateway.client.get(f"{PATH}/candidate", headers=reader)).json()
        assert (candidate["version"], candidate["production"], candidate["waits_for"]) == (1, 0, ["approve"])
        assert [entry["content"] for entry in candidate["difference"]["added"]] == ["be kind"]

        assert (await said(gateway, "approve", version=1)).json()["version"] == 1
        assert (await gateway.client.get(PATH, headers=reader)).json()["version"] == 1

        await learned(gateway, TWO)
        assert (await said(gateway, "reject", version=2, reason="too brief")).json()["version"] == 1
        assert (await gateway.client.get(PATH, headers=reader)).json()["version"] == 1
        assert (await gateway.client.get(f"{PATH}/candidate", headers=reader)).status_code == 404
        (row,) = (await gateway.client.get("/v1/playbooks", headers=reader)).json()["playbooks"]
        assert (row["labels"], row["gate"]) == ({"production": 1}, ["approve"])


async def test_a_person_rejects_one_entry_and_the_rest_is_the_next_candidate() -> None:
    async with asked(**CONFIGURED) as gateway, publishing(gateway.log, APPROVE):
        reader = bearer(READER)
        await learned(gateway, ONE)
        assert (await said(gateway, "approve", version=1)).json()["version"] == 1
        more = "".join(
            f"[misc-0000{n}] helpful=0 harmful=0 :: {text}\n" for n, text in ((2, "good"), (3, "bad"))
        )
        await learned(gateway, ONE + more)
        unknown = await said(gateway, "reject", version=2, entry_ids=["misc-00009"])
        assert (unknown.status_code, "choose of misc-00002, misc-00003" in unknown.text) == (404, True)
        both = await said(gateway, "reject", version=2, entry_ids=["misc-00003"], sources=["ada"])
        assert (both.status_code, "not both" in both.text) == (400, True)
        assert (await said(gateway, "approve", version=2, entry_ids=["misc-00003"])).status_code == 422
        done = await said(gateway, "reject", version=2, entry_ids=["misc-00003"], reason="bad")
        assert (done.status_code, done.json()["version"]) == (200, 1)
        candidate = (await gateway.client.get(f"{PATH}/candidate", headers=reader)).json()
        assert candidate["version"] == 3
        assert [entry["content"] for entry in candidate["difference"]["added"]] == ["good"]


async def test_only_an_admin_key_decides_and_a_wrong_version_is_refused() -> None:
    async with asked(**CONFIGURED) as gateway, publishing(gateway.log, APPROVE):
        await learned(gateway, ONE)
        for verb in ("approve", "reject"):
            answer = await gateway.client.post(f"{PATH}/{verb}", json={}, headers=bearer(READER))
            assert answer.status_code == 403
        wrong = await said(gateway, "approve", version=7)
        assert wrong.status_code == 409
        assert "is version 1, not 7" in wrong.json()["detail"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_candidate_that_was_seen_beside_another_version_is_not_decided_about(verb: str) -> None:
    async with asked(**CONFIGURED) as gateway, publishing(gateway.log, APPROVE):
        await learned(gateway, ONE)
        await said(gateway, "approve", version=1, production=0)
        await learned(gateway, TWO)
        seen = (await gateway.client.get(f"{PATH}/candidate", headers=bearer(READER))).json()
        stale = await said(gateway, verb, version=2, production=0)
        assert stale.status_code == 409
        assert "agents read version 1" in stale.json()["detail"]
        last = await said(gateway, verb, version=seen["version"], production=seen["production"])
        assert last.json()["version"] == (2 if verb == "approve" else 1)
        assert (await said(gateway, verb, production=-1)).status_code == 422


async def test_before_all_labels_are_known_neither_a_stream_nor_a_read_is_answered() -> None:
    log = SlowLabels(SystemClock())
    await log.produce(topics.LABELS.record(Label(playbook=NAME, label="production", version=1)))
    await published(log, version(NAME, 1), version(NAME, 2))
    context = context_of(as_gateway(log), load_settings(), SystemClock())
    work = [asyncio.create_task(job) for job in context.work()]
    try:
        await context.playbooks.view.wait_current(DEADLINE_S)
        transport = httpx.ASGITransport(build(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in (PATH, f"{PATH}/events", f"{PATH}/events?label=latest"):
                answer = await client.get(path)
                assert (answer.status_code, "retry-after" in answer.headers) == (503, True), path
            log.known.set()
            await context.labels.wait_current(DEADLINE_S)
            assert (await client.get(PATH)).status_code == 200
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


class SlowLabels(MemoryLog):
    """A log whose labels are read last."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.known = asyncio.Event()

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        if topic == topics.LABELS.name:
            await self.known.wait()
        async for records in super().follow(topic, starts):
            yield records


async def test_without_a_gate_nothing_can_be_approved() -> None:
    async with asked(**CONFIGURED) as gateway, publishing(gateway.log):
        await learned(gateway, ONE)
        answer = await said(gateway, "approve")
        assert answer.status_code == 409
        assert "has no gate" in answer.json()["detail"]


async def production(log: Log, number: int) -> None:
    label = Label(playbook=NAME, label="production", version=number, gate=("approve",))
    await log.produce(topics.LABELS.record(label))


async def test_a_stream_tells_of_what_was_accepted_and_of_everything_on_request() -> None:
    log = MemoryLog(SystemClock())
    await production(log, 1)
    await published(log, *(version(NAME, number, gated=True) for number in (1, 2)))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        judged, every = Stream(f"{PATH}/events"), Stream(f"{PATH}/events?label=latest")
        reading = [
            asyncio.create_task(judged.read(client, until=lambda _: numbers(judged) == [1, 3])),
            asyncio.create_task(every.read(client, until=lambda _: numbers(every) == [2, 3])),
        ]
        await until(lambda: numbers(judged) == [1] and numbers(every) == [2])
        await published(log, version(NAME, 3, gated=True))
        await production(log, 3)
        await asyncio.gather(*reading)


def numbers(stream: Stream) -> list[int]:
    return [json.loads(event.data)["version"] for event in stream.of("version")]
