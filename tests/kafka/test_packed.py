"""What agents pack: compressed keys, values and headers that fit in no record of ours stop nothing, on real Kafka."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

from combee.adapters.ports import Log, Outgoing
from combee.log.inspection.outcomes import outcomes_by_line
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from support.broker import Broker
from support.cli import combee
from support.ledger import read_all
from support.running import PLAYBOOK, created, nothing_waits, running_stack, traces, until_applied

WITHIN_S = 60.0
LARGE = bytes(4_000_000)
BARELY = b"k" * 1_000_000
"""A key that fits in a record uncompressed, and in no dead letter."""
HEADERS = (("x", LARGE), ("n" * 70_000, b""))


def reflection(name: str) -> Outgoing:
    lesson = Reflection(reflection_id=name, playbook=PLAYBOOK, key_insight=f"the lesson of {name}")
    return topics.REFLECTIONS.record(lesson)


def outcome(run: str) -> Outcome:
    return Outcome(run_id=run, playbook=PLAYBOOK, shown=Shown(version=1, line=PLAYBOOK), success=True)


def unusable(topic: str) -> list[Outgoing]:
    return [
        Outgoing(topic=topic, key=b"k", value=LARGE),
        Outgoing(topic=topic, key=BARELY, value=b"\xc1"),
        Outgoing(topic=topic, key=LARGE, value=b"\xc1", headers=HEADERS),
        Outgoing(topic=topic, key=LARGE, value=None),
    ]


@asynccontextmanager
async def packing(kafka: Broker) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, compression_type="gzip", max_request_size=20_000_000
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def pack(kafka: Broker, prefix: str, log: Log, records: Sequence[Outgoing]) -> None:
    """Write records, each to the partition that its playbook's are not on."""
    async with packing(kafka) as producer:
        for record in records:
            count = await log.partitions(record.topic)
            home = await log.partition_for(record.topic, PLAYBOOK.encode())
            await producer.send_and_wait(
                f"{prefix}.{record.topic}",
                record.value,
                key=record.key,
                partition=(home + 1) % count,
                headers=list(record.headers),
            )


async def verb(kafka: Broker, prefix: str, folder: Path, *arguments: str) -> None:
    env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": prefix}
    ended = await combee(*arguments, data_dir=folder / "data", **env)
    assert ended.code == 0, ended.err


async def test_the_broker_s_limit_is_for_what_is_compressed(kafka: Broker, topic_prefix: str) -> None:
    async with (
        created(load_settings(topic_prefix=topic_prefix), kafka.bootstrap_servers) as log,
        packing(kafka) as producer,
    ):
        await pack(kafka, topic_prefix, log, unusable(topics.TRACES.name))
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(f"{topic_prefix}.traces", b"", headers=[("x", LARGE * 5)])


@pytest.mark.timeout(150)
async def test_packed_records_stop_no_service_and_no_replay_and_the_good_ones_count(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    where = (kafka.bootstrap_servers, topic_prefix)
    (trace,) = traces(1, 5).values()
    async with running_stack(*where, tmp_path, latency="0", batch_size=4, max_wait_s=1.0) as running:
        packed = [
            *(one for topic in topics.TOPICS if topic.is_open for one in unusable(topic.name)),
            *(
                replace(reflection(f"r-{n}"), key=key, headers=HEADERS)
                for n, key in enumerate((LARGE, BARELY[:9]))
            ),
            replace(reflection("r-2"), key=BARELY),
            replace(topics.OUTCOMES.record(outcome("packed")), headers=HEADERS),
            replace(topics.TRACES.record(trace), key=LARGE, headers=HEADERS),
        ]
        await pack(kafka, topic_prefix, running.log, packed)
        await running.log.produce(topics.OUTCOMES.record(outcome("small")), reflection("r-3"))
        await nothing_waits(running.log, WITHIN_S)
        assert (await until_applied(running.log, 5)).good
        counted = (await outcomes_by_line(running.log))[PLAYBOOK]
        assert sum(version.figures.runs for version in counted.versions) == 2
        await verb(kafka, topic_prefix, tmp_path, "replay", PLAYBOOK, "--to", f"{topic_prefix}-again")


async def test_packed_records_are_archived_and_restored(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    there, file = f"{topic_prefix}-there", tmp_path / "archive"
    opened = [topic for topic in topics.TOPICS if topic.is_open]
    async with created(load_settings(topic_prefix=topic_prefix), kafka.bootstrap_servers) as log:
        await pack(kafka, topic_prefix, log, [one for topic in opened for one in unusable(topic.name)])
        await pack(kafka, topic_prefix, log, [replace(reflection("r-0"), key=LARGE, headers=HEADERS)])
    await verb(kafka, topic_prefix, tmp_path, "archive", "--prefix", "--to", str(file))
    await verb(kafka, topic_prefix, tmp_path, "restore", str(file), "--to", there)
    async with created(load_settings(topic_prefix=there), kafka.bootstrap_servers) as log:
        restored = await read_all(log, topics.REFLECTIONS)
    assert len(restored) == 5
    (good,) = filter(None, map(topics.REFLECTIONS.read_or_none, restored))
    assert good.reflection_id == "r-0"
