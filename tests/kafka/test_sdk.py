"""The SDK on real Kafka: versions are pushed, a broker that dies raises nothing, and nothing is lost."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import Log
from combee.sdk import AsyncClient, Client, PlaybookView
from combee_schemas import topics
from combee_schemas.playbook import Entry, Label, Playbook
from support.broker import Broker
from support.faults.brokers import own_broker
from support.running import running_stack, until_applied
from support.waiting import until

NAME = "support/refunds"
DEADLINE_S = 60.0
PUBLISHED = 200


def version(number: int, name: str = NAME) -> Playbook:
    entry = Entry(id="misc-00001", section="OTHERS", content=f"lesson {number}")
    now_ms = time.time_ns() // 1_000_000
    return Playbook(name=name, version=number, entries=(entry,), created_at_ms=now_ms)


async def put(log: Log, playbook: Playbook) -> None:
    for topic in (topics.HISTORY, topics.PLAYBOOKS):
        await log.produce(topic.record(playbook))


async def put_label(log: Log, label: str, number: int) -> None:
    message = Label(playbook=NAME, label=label, version=number)
    await log.produce(topics.LABELS.record(message))


@pytest.fixture
async def connection(kafka: Broker, topic_prefix: str) -> Connection:
    made = Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix)
    admin = KafkaAdmin(made)
    used = (topics.TRACES, topics.REFLECTIONS, topics.PLAYBOOKS, topics.HISTORY, topics.LABELS)
    for topic in used:
        await admin.create(topic.name, 2, 1, topic.config())
    await admin.wait_created({topic.name: 2 for topic in used})
    return made


async def test_versions_and_labels_are_pushed_and_old_ones_fetched_from_history(
    connection: Connection,
) -> None:
    log = KafkaLog(connection)
    try:
        for number in range(1, 4):
            await put(log, version(number))
        heard: list[PlaybookView] = []
        promoted: list[PlaybookView] = []
        address, prefix = connection.bootstrap_servers, connection.prefix
        async with AsyncClient(address, prefix=prefix) as client:
            assert (await client.playbook(NAME, timeout_s=DEADLINE_S)).version == 3
            client.on_update(NAME, heard.append)
            client.on_update(NAME, promoted.append, label="production")
            await put(log, version(4))
            await put_label(log, "production", 2)
            await until(lambda: [one.version for one in heard] == [3, 4] and bool(promoted))
            assert (promoted[0].version, promoted[0].labels) == (2, ("production",))
            old = await client.playbook(NAME, version=1, timeout_s=DEADLINE_S)
            assert (old.version, "lesson 1" in old.render()) == (1, True)
            assert (await client.playbook(NAME, version=9)).is_fallback
    finally:
        await log.close()


def agent(client: Client, stop: threading.Event, raised: list[Exception]) -> None:
    """Publish and read for as long as the test wants, as an agent does."""
    for number in range(PUBLISHED):
        if stop.is_set():
            return
        try:
            client.publish(
                playbook=NAME, reflection_id=f"r-{number}", key_insight=f"lesson {number}: use {number}"
            )
            client.playbook(NAME, fallback="as before").render()
        except Exception as error:  # noqa: BLE001 - any would break the promise
            raised.append(error)
        stop.wait(0.02)


@pytest.mark.timeout(240)
async def test_a_broker_killed_under_a_publishing_agent_raises_nothing_and_loses_nothing(
    tmp_path: Path, machine_env: dict[str, str], topic_prefix: str
) -> None:
    raised: list[Exception] = []
    stop = threading.Event()
    async with own_broker(tmp_path, machine_env) as kafka:
        address = kafka.bootstrap_servers
        async with running_stack(address, topic_prefix, tmp_path, max_wait_s=2, latency="0.01") as running:
            client = Client(address, prefix=topic_prefix)
            working = asyncio.create_task(asyncio.to_thread(agent, client, stop, raised))
            await until(lambda: client.counts.delivered >= PUBLISHED // 10)
            kafka.kill()
            await until(lambda: client.counts.waiting >= PUBLISHED // 10)
            await kafka.restart_node(1)
            await asyncio.wait_for(working, DEADLINE_S)

            counts = await asyncio.to_thread(client.close, DEADLINE_S)

            assert raised == []
            assert (counts.published, counts.waiting, counts.dropped) == (PUBLISHED, 0, 0)
            report = await until_applied(running.log, PUBLISHED)
            assert report.violations == ()
            assert (report.reflections, report.lost, report.double) == (PUBLISHED, 0, 0)
    stop.set()
