"""The gateway as a process of its own on real Kafka: many streams, an agent that only speaks HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from combee.adapters.kafka import KafkaLog
from combee.assembly import backends
from combee.assembly.local.stack import StackOptions, stack
from combee.process.settings.loading import Settings, load_settings
from support.broker import Broker
from support.forked import ForkingSupervisor
from support.gateway import Event, Stream, version, writer
from support.running import running_stack
from support.waiting import until

STREAMS, VERSIONS = 50, 100
NAME = "tests/streams"
EVENTS = f"/v1/playbooks/{NAME}/events"
DEADLINE_S = 90.0


@asynccontextmanager
async def gateway(settings: Settings, folder: Path) -> AsyncIterator[str]:
    options = StackOptions(
        settings=settings,
        bootstrap_servers=settings.kafka.bootstrap_servers or "",
        folder=folder,
        roles=("gateway",),
    )
    async with stack(options, supervise=ForkingSupervisor):
        yield (folder / "gateway.ready").read_text()


@pytest.mark.timeout(240)
async def test_fifty_streams_follow_a_hundred_versions_without_a_gap(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    settings = load_settings(
        bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix, gateway_port=0, dashboard=False
    )
    connected = backends.connection(settings, kafka.bootstrap_servers)
    await backends.create_topics(settings, connected)
    log = KafkaLog(connected)
    limits = httpx.Limits(max_connections=None)
    streams = [Stream(EVENTS) for _ in range(STREAMS)]
    try:
        async with (
            gateway(settings, tmp_path) as address,
            httpx.AsyncClient(base_url=address, limits=limits) as client,
        ):
            reading = [asyncio.create_task(_follow(one, client, at)) for at, one in enumerate(streams)]
            async with asyncio.timeout(DEADLINE_S), writer(log) as write:
                await write(version(NAME, 1))
                await until(lambda: all(one.events for one in streams), DEADLINE_S)
                for number in range(2, VERSIONS + 1):
                    await write(version(NAME, number))
                await asyncio.gather(*reading)
    finally:
        await log.close()

    for one in streams:
        assert [json.loads(event.data)["version"] for event in one.events] == list(range(1, VERSIONS + 1))


def _comes_and_goes(at: int) -> bool:
    """Return whether a client hangs up after every few versions."""
    return at % 5 == 0


async def _follow(stream: Stream, client: httpx.AsyncClient, at: int) -> None:
    def last(events: list[Event]) -> bool:
        return bool(events) and events[-1].id.startswith(f"{VERSIONS}@")

    def enough(events: list[Event]) -> bool:
        return last(events) or (_comes_and_goes(at) and len(events) % 7 == 0)

    while not last(stream.events):
        await stream.read(client, until=enough)


@pytest.mark.timeout(240)
async def test_an_agent_that_only_speaks_http_publishes_and_is_pushed_a_better_playbook(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    stack_settings: dict[str, Any] = {
        "batch_size": 8,
        "max_wait_s": 2.0,
        "gateway_port": 0,
        "dashboard": False,
    }
    async with (
        running_stack(
            kafka.bootstrap_servers, topic_prefix, tmp_path, latency="0", **stack_settings
        ) as running,
        gateway(running.settings, tmp_path / "gateway") as address,
        httpx.AsyncClient(base_url=address, timeout=20) as client,
    ):
        stream = Stream("/v1/playbooks/support/refunds/events?format=ace")
        reading = asyncio.create_task(stream.read(client, until=lambda events: len(events) >= 1))
        lessons = [
            {"playbook": "support/refunds", "key_insight": f"A refund of type {n} needs form {n}."}
            for n in range(8)
        ]
        answer = await client.post("/v1/reflections", json=lessons)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 8)
        async with asyncio.timeout(DEADLINE_S):
            await reading
        pushed = json.loads(stream.events[0].data)
        assert pushed["version"] == 1
        assert "##" in pushed["text"]
        playbook = (await client.get("/v1/playbooks/support/refunds")).json()
        batch = await client.get(f"/v1/batches/{playbook['batch']['plan']['batch_id']}")
        assert batch.json()["reflections"] == 8
        account = (await client.get("/v1/ledger")).json()
        assert (account["good"], account["applied"]) == (True, 8)
