"""Bombs in every topic of a real broker: no service grows by 64 MB, and the next good record is processed."""

import asyncio
from collections import Counter
from pathlib import Path

import aiokafka
import pytest

from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.consumer import FETCH_BYTES
from combee.adapters.ports import Outgoing, Record, TopicPartition
from combee.assembly import backends
from combee.assembly.local.supervisor import Supervisor
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.topics import TOPICS, AnyTopic, M, Topic, outgoing
from combee_schemas.trace import Trace
from support.broker import Broker
from support.ledger import read_all
from support.running import PLAYBOOK, Running, running_stack, traces

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are measured by Linux"),
]


MB = 1024 * 1024
BOMB_BYTES = 100 * MB
"""Whoever unpacks one grows by more than the limit."""
SNAPPY_BYTES = 15 * MB
"""Snappy makes no bomb: a record that the broker takes inflates about twentyfold at most."""
GROWTH_LIMIT_BYTES = 64 * MB
SERVICES = ("control", "publish", "scan", "shuffle", "reflect")
BATCH = 10
BURIED = {
    topic.name: 1 for topic in (topics.TRACES, *topics.SCAN, topics.UPDATES, topics.OUTCOMES, topics.VERDICTS)
} | {
    topics.REFLECTIONS.name: 4,
    topics.COMMANDS.name: 2,  # shuffle's and publish's
}
"""Dead letters by topic; the other topics are views and histories, which skip what they cannot read."""


def memory_bytes(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}


def peaks_from_now(supervisor: Supervisor) -> dict[str, int]:
    """Let the kernel measure peaks from now on; return what each service has now."""
    pids = {name: supervisor.pid(name) for name in SERVICES}
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return {name: memory_bytes(pid)["VmRSS"] for name, pid in pids.items()}


async def drop_bomb(running: Running, topic: AnyTopic, partition: int, codec: str, size: int) -> None:
    """Write one compressed batch whose only record is ``size`` zeros."""
    connected = {"bootstrap_servers": running.settings.kafka.bootstrap_servers, "compression_type": codec}
    async with aiokafka.AIOKafkaProducer(
        **connected, max_batch_size=2 * size, max_request_size=MB
    ) as producer:
        batch = producer.create_batch()
        assert batch.append(key=b"k", value=bytes(size), timestamp=None) is not None
        full = f"{running.settings.kafka.topic_prefix}.{topic.name}"
        await (await producer.send_batch(batch, full, partition=partition))


async def learn(running: Running, seed: int) -> None:
    """Publish a batch of traces and wait until a version contains it."""
    before = await learned(running)
    await running.log.produce(*map(outgoing, traces(BATCH, seed).values()))
    wanted = before + BATCH
    async with asyncio.timeout(60):
        while await learned(running) < wanted:  # noqa: ASYNC110 - the condition is in the log
            await asyncio.sleep(0.2)


async def learned(running: Running) -> int:
    versions = await readable(running, topics.HISTORY)
    return sum(one.reflections for one in versions if one.name == PLAYBOOK)


async def readable(running: Running, topic: Topic[M]) -> list[M]:
    return [topic.read(record) for record in await read_all(running.log, topic) if not record.unread]


async def test_bombs_in_every_topic_cost_no_service_64_mb(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with running_stack(
        kafka.bootstrap_servers, topic_prefix, tmp_path, latency="0", batch_size=BATCH, max_wait_s=2.0
    ) as run:
        await learn(run, 1)
        before = peaks_from_now(run.supervisor)
        home = await run.log.partition_for(topics.REFLECTIONS.name, PLAYBOOK.encode())
        for topic in TOPICS:
            place = home if topic.spread == "playbooks" else 0
            await drop_bomb(run, topic, place, "zstd", BOMB_BYTES)
        for codec, size in (("gzip", BOMB_BYTES), ("lz4", BOMB_BYTES), ("snappy", SNAPPY_BYTES)):
            await drop_bomb(run, topics.REFLECTIONS, home, codec, size)
        await learn(run, 2)
        letters = await readable(run, topics.DEAD_LETTERS)
        peaks = {name: memory_bytes(run.supervisor.pid(name))["VmHWM"] for name in SERVICES}

    growth = {name: (peaks[name] - before[name]) // MB for name in SERVICES}
    assert all(one * MB < GROWTH_LIMIT_BYTES for one in growth.values()), growth
    assert Counter(one.origin_topic for one in letters) == Counter(BURIED)
    assert all("cannot be read: InflationError" in one.reason for one in letters)


async def test_a_record_larger_than_what_is_fetched_ahead_still_comes(
    kafka: Broker, topic_prefix: str
) -> None:
    settings = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    connected = backends.connection(settings, kafka.bootstrap_servers)
    await backends.create_topics(settings, connected)
    log = KafkaLog(connected)
    values = [b"small", bytes(2 * FETCH_BYTES), bytes(Trace.max_bytes), b"small"]
    await log.produce(*(Outgoing(topic=topics.TRACES.name, value=one, partition=0) for one in values))
    consumer = await log.consumer("reflect", [topics.TRACES.name], _ignored)
    found: list[Record] = []
    try:
        async with asyncio.timeout(30):
            while len(found) < len(values):
                found += await consumer.poll(1.0)
    finally:
        await consumer.close()
        await log.close()
    assert [one.value for one in found] == values


async def _ignored(_: frozenset[TopicPartition]) -> None:
    return
