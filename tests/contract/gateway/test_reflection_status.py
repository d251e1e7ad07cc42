"""What agents are told of what they sent: what it waits for, how to hurry it, what became of it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from combee.adapters.http import commands
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import ConfigurationError
from combee.integrations.gepa import DeployedReflectionLM
from combee.process.worker import loop
from combee_schemas.playbook import PauseOrder
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment
from support.gateway import ADMIN, KEYS, READER, Asked, asked, bearer, served, version
from support.ledger import NAME, outgoing, reflection
from support.shuffling import shuffling
from support.waiting import until

PATH = f"/v1/playbooks/{NAME}"


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for records is bounded by a long poll in production."""
    monkeypatch.setattr(loop, "POLL_S", 0.005)


@asynccontextmanager
async def learning(*roles: str, **settings: Any) -> AsyncIterator[tuple[Deployment, Asked]]:
    """Yield services on a log, and a gateway beside them."""
    deployment = Deployment(batch_size=40, **settings)
    async with asked(deployment.log) as gateway, deployment.running(roles or ("publish", "scan", "shuffle")):
        yield deployment, gateway


async def post(gateway: Asked, number: int, **fields: Any) -> None:
    lesson = reflection(number, **fields).model_dump(mode="json", exclude_defaults=True)
    assert (await gateway.client.post("/v1/reflections", json=lesson)).status_code == 202


async def flush(gateway: Asked, wait_s: float = 10.0, **body: Any) -> Any:
    answer = await gateway.client.post(f"{PATH}/flush?wait_s={wait_s}", json=body)
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


async def fate(gateway: Asked, one: str, playbook: str = NAME) -> Any:
    answer = await gateway.client.get(f"/v1/reflections/{one}", params={"playbook": playbook})
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- a playbook that does not exist yet


async def test_right_after_a_post_a_missing_playbook_says_how_many_wait_and_until_when() -> None:
    async with asked() as gateway:
        plain = await gateway.client.get(PATH)
        assert (plain.json()["detail"], "retry-after" in plain.headers) == (
            f"there is no playbook {NAME}",
            False,
        )
        for number in range(2):
            await post(gateway, number)
        answer = await gateway.client.get(PATH)
        assert answer.status_code == 404
        found = answer.json()
        now_ms = gateway.context.clock.now_ms()
        assert found["waiting"] == 2
        assert 0 < found["until_ms"] - now_ms <= 30_000
        assert 1 <= int(answer.headers["retry-after"]) <= 30
        assert found["detail"].startswith(
            f"there is no playbook {NAME} yet: its window has 2 reflections of 40 and closes when full or at 20"
        )
        assert f"POST {PATH}/flush" in found["detail"]
        other = await gateway.client.get(f"{PATH}-2")
        assert other.json()["detail"] == f"there is no playbook {NAME}-2"


async def test_what_waits_counts_once_whether_it_was_read_or_only_acknowledged() -> None:
    async with asked() as gateway:
        windows = (await gateway.context.live.seen()).windows
        for number in range(5):
            await post(gateway, number)
            assert windows.count(NAME) == number + 1
        await until(lambda: not windows._ahead)
        assert windows.count(NAME) == 5


async def test_a_missing_playbook_tells_of_traces_and_of_batches_on_their_way() -> None:
    async with learning("shuffle") as (deployment, gateway):
        run = {"playbook": NAME, "task": "refund?"}
        await gateway.client.post("/v1/traces", json=run)
        answer = await gateway.client.get(PATH)
        assert "1 trace was received here; each becomes a reflection" in answer.json()["detail"]
        await post(gateway, 1)
        assert not (await flush(gateway, 0))["done"]
        await deployment.until(lambda: bool(gateway.context.live.picture.in_flight(NAME)))
        answer = await gateway.client.get(PATH)
        assert answer.json()["detail"].endswith("yet: batch 1 with 1 reflection is in progress")
        assert answer.headers["retry-after"] == "1"


# ---- flush


async def test_a_flush_makes_a_version_of_what_waits() -> None:
    async with learning() as (_, gateway):
        for number in range(3):
            await post(gateway, number)
        found = await flush(gateway)
        assert (found["done"], found["changed"], found["version"]) == (True, True, 1)
        assert (await gateway.client.get(PATH)).status_code == 200
        again = await flush(gateway)
        assert (again["done"], again["changed"]) == (True, False), "nothing waits"


async def test_a_flush_has_nothing_to_say() -> None:
    async with learning() as (_, gateway):
        await post(gateway, 1)
        answer = await gateway.client.post(f"{PATH}/flush?wait_s=10", json={})
        assert (answer.status_code, answer.json()["version"]) == (200, 1)


async def test_a_flush_of_the_same_id_has_no_second_effect() -> None:
    async with learning() as (deployment, gateway):
        await post(gateway, 1)
        assert (await flush(gateway, command_id="mine"))["done"]
        await post(gateway, 2)
        again = await flush(gateway, command_id="mine")
        assert (again["done"], again["version"]) == (True, 1)
        assert len(ledger.batches(deployment.log)) == 1


async def test_a_flush_of_nothing_is_not_found_and_needs_the_rights_of_a_command() -> None:
    async with asked() as gateway:
        assert (await gateway.client.post(f"{PATH}/flush", json={})).status_code == 404
        unknown = await gateway.client.post(f"{PATH}/flush", json={"comand_id": "x"})
        assert unknown.json()["errors"][0]["detail"] == "unknown field; did you mean command_id?"
    async with asked(gateway_keys=json.dumps(KEYS)) as gateway:
        refused = await gateway.client.post(f"{PATH}/flush", json={}, headers=bearer(READER))
        assert refused.status_code == 403


# ---- what became of a reflection


async def test_a_reflection_is_followed_from_its_window_into_the_entries_that_rest_on_it() -> None:
    async with learning("shuffle") as (deployment, gateway):
        await post(gateway, 1)
        waiting = await fate(gateway, "r-1")
        assert (waiting["state"], waiting["repeats"]) == ("waiting", 0)
        assert waiting["until_ms"] > 0
        await flush(gateway, 0)
        await deployment.until(lambda: bool(gateway.context.live.picture.in_flight(NAME)))
        flying = await fate(gateway, "r-1")
        assert (flying["state"], flying["batch_sequence"], flying["level"]) == ("in_batch", 1, 0)
        assert flying["detail"] == "it is in batch 1: level 0 of 1"
        async with deployment.running(("scan", "publish")):
            await deployment.until(lambda: gateway.context.playbooks.latest(NAME).version == 1)
            applied = await fate(gateway, "r-1")
        (entry,) = gateway.context.playbooks.latest(NAME).entries
        assert (applied["state"], applied["version"], applied["entries"]) == ("applied", 1, [entry.id])
        assert applied["detail"] == f"batch 1 became version 1; on it rest {entry.id}"


@pytest.mark.parametrize(
    ("method", "remedies"), [("ace", ["COMBEE_METHOD=gepa"]), ("gepa", []), ("not-installed-here", [])]
)
async def test_what_waits_for_another_method_says_so_and_names_the_setting(
    method: str, remedies: list[str]
) -> None:
    async with asked(method=method) as gateway:
        await gateway.knows(version(NAME, 1, "Answer.", holds="components"))
        await post(gateway, 1)
        waiting = await fate(gateway, "r-1")
    assert waiting["state"] == "waiting"
    assert re.findall(r"COMBEE_\w+=\w+", waiting["held"]) == remedies
    assert re.findall(r"COMBEE_\w+=\w+", waiting["detail"]) == remedies


async def test_what_waits_for_the_end_of_a_pause_says_so() -> None:
    async with asked() as gateway:
        order = PauseOrder(since_ms=0, until_ms=1 << 52, issued_by="ops")
        await gateway.knows(version(NAME, 1, "Answer.").model_copy(update={"paused": order}))
        await post(gateway, 1)
        waiting = await fate(gateway, "r-1")
    assert "learning is paused by ops until" in waiting["detail"]
    assert f"'combee playbook resume {NAME}'" in waiting["held"]


async def test_gepa_on_a_deployment_of_another_method_is_refused_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "HELD_S", 0.1)
    deployment = Deployment(batch_size=40)
    job = {"rule": "Answer."}, {"rule": [{"Feedback": "Wrong."}]}, ["rule"]
    async with deployment.running(("publish", "scan", "shuffle")), served(deployment.log) as (address, _):
        strategy = DeployedReflectionLM(address, "support/program")
        with pytest.raises(ConfigurationError, match=r"program/rule holds components.*COMBEE_METHOD=gepa"):
            await asyncio.to_thread(strategy.reflect, *job)
        strategy.close()


async def test_a_repeat_is_counted_and_changes_nothing() -> None:
    async with learning() as (deployment, gateway):
        await post(gateway, 1)
        assert (await flush(gateway))["done"]
        await deployment.log.produce(outgoing(reflection(1)))
        await post(gateway, 2)
        assert (await flush(gateway))["done"]
        found = await fate(gateway, "r-1")
        assert (found["state"], found["version"], found["repeats"]) == ("applied", 1, 1)


async def test_a_dead_lettered_reflection_says_why() -> None:
    clock = ManualClock()
    log = MemoryLog(clock, partitions=2, scan_partitions=3)
    async with shuffling(log, clock) as rig:
        await log.produce(outgoing(reflection(1, key_insight=" ")), outgoing(reflection(2)))
        await rig.step()
    async with asked(log) as gateway:
        found = await fate(gateway, "r-1")
        assert found["state"] == "dead_lettered"
        assert found["detail"].startswith(
            "shuffle could not use it: the lesson is empty: fill in at least one"
        )
        assert (await fate(gateway, "r-2"))["state"] == "waiting"


async def test_what_no_topic_holds_is_not_found_and_only_its_playbook_s_readers_may_ask() -> None:
    async with asked() as gateway:
        await post(gateway, 1)
        where = "/v1/reflections/r-1"
        elsewhere = await gateway.client.get(where, params={"playbook": "other"})
        assert elsewhere.status_code == 404
        assert elsewhere.json()["detail"] == "no reflection of this id is in the log for other"
        assert (await gateway.client.get(where)).status_code == 422
    async with asked(gateway_keys=json.dumps(KEYS)) as gateway:
        refused = await gateway.client.get(where, params={"playbook": "other"}, headers=bearer(READER))
        assert refused.status_code == 403


async def test_an_id_with_slashes_is_looked_up_as_it_is() -> None:
    async with asked() as gateway:
        lesson = {"reflection_id": "run/7 #1", "playbook": NAME, "key_insight": "x"}
        await gateway.client.post("/v1/reflections", json=lesson)
        assert (await fate(gateway, "run%2F7%20%231"))["reflection_id"] == "run/7 #1"


async def test_a_look_up_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr("combee.gateway.endpoints.reflection_status.LOOKUP_S", 0.05)
    async with asked() as gateway:
        monkeypatch.setattr(gateway.context.log, "read", never)
        monkeypatch.setattr(gateway.context.log, "partition_for", never)
        answer = await gateway.client.get("/v1/reflections/r-1", params={"playbook": NAME})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


async def test_the_look_ups_of_one_key_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = 0

    async def slow_for_some(topic: str, key: bytes) -> int:
        if key == b"slow":
            nonlocal begun
            begun += 1
            await asyncio.Event().wait()
        return await partition_for(topic, key)

    async with asked(gateway_keys=json.dumps(KEYS)) as gateway:
        partition_for = gateway.context.log.partition_for
        monkeypatch.setattr(gateway.context.log, "partition_for", slow_for_some)
        slow = [
            asyncio.create_task(
                gateway.client.get("/v1/reflections/r-1", params={"playbook": "slow"}, headers=bearer(ADMIN))
            )
            for _ in range(40)
        ]
        await until(lambda: begun == 4)
        async with asyncio.timeout(5):
            answer = await gateway.client.get(
                "/v1/reflections/r-1", params={"playbook": NAME}, headers=bearer(READER)
            )
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert answer.status_code == 404
