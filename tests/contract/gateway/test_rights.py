"""A gateway that may not read every topic: it says so, and does the rest."""

import httpx
import pytest

from combee.adapters.ports import Outgoing
from combee.log.inspection import live
from combee_schemas import topics
from support.gateway import GuardedLog, published, served, version
from support.waiting import until


async def test_an_authorization_error_on_an_observed_topic_does_not_end_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RETRY_S", "LOOK_UP_EVERY_S", "SURE_S", "SHARED_S"):
        monkeypatch.setattr(live, name, 0.01)
    log = GuardedLog()
    await published(log, version("a", 1))
    async with served(log) as (address, context), httpx.AsyncClient(base_url=address) as client:
        log.deny(topics.BATCHES.name, topics.DEAD_LETTERS.name)
        await log.produce(*(Outgoing(topic=topic, value=b"fetched") for topic in log.denied))
        await until(lambda: len(context.live.shared().unreadable) == 4)
        told = (await client.get("/v1/status")).json()["unreadable"]
        assert told["batches"] == "TopicAuthorizationFailedError: batches"
        assert (await client.get("/v1/playbooks/a")).json()["version"] == 1
        written = await client.post("/v1/reflections", json={"playbook": "a", "key_insight": "k"})
        assert written.status_code == 202
        log.deny()
        await until(lambda: not context.live.shared().unreadable)
        assert (await client.get("/v1/status")).json()["unreadable"] == {}
