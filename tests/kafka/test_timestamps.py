"""Which time a record in the agents' topics has, and what a producer's word on it can do: on real Kafka."""

from pathlib import Path

import aiokafka
import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.admin import KafkaAdmin
from combee.adapters.ports import ConfigurationError
from combee.assembly.backends import check_topics, connection, create_topics
from combee.core.log.layout import wanted
from combee.log.archive.restoring import restore
from combee.log.archive.writing import write_archive
from combee.process.settings.loading import Settings, load_settings
from combee_schemas import topics
from combee_schemas.base import DAY_MS
from combee_schemas.records import Outgoing, Record, TopicPartition
from combee_schemas.topics import PRODUCERS_TIME, TIMES
from support.broker import Broker
from support.running import opened

OPEN = (topics.TRACES.name, topics.REFLECTIONS.name, topics.OUTCOMES.name)
MINUTE_MS = 60_000

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def settings(kafka: Broker, topic_prefix: str) -> Settings:
    return load_settings(
        bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix, partitions=1, scan_partitions=1
    )


async def write(settings: Settings, topic: str, timestamp_ms: int, value: bytes = b"-") -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer:
        full = f"{settings.kafka.topic_prefix}.{topic}"
        await producer.send_and_wait(full, value, partition=0, timestamp_ms=timestamp_ms)


async def whole(settings: Settings, topic: str) -> list[Record]:
    async with opened(settings, str(settings.kafka.bootstrap_servers)) as log:
        return [record async for record in log.read(TopicPartition(topic=topic, partition=0), 0)]


async def is_broker_timed(settings: Settings, topic: str) -> bool:
    """Write a record with a timestamp of 1970 and return whether it has the broker's time."""
    await write(settings, topic, timestamp_ms=1)
    *_, record = await whole(settings, topic)
    return abs(record.timestamp_ms - SystemClock().now_ms()) < MINUTE_MS


async def test_no_record_of_an_agent_is_as_old_as_its_producer_says(settings: Settings) -> None:
    await create_topics(settings, connection(settings, str(settings.kafka.bootstrap_servers)))
    assert {topic: await is_broker_timed(settings, topic) for topic in OPEN} == dict.fromkeys(OPEN, True)


async def test_topics_in_which_producers_say_the_time_are_refused_until_they_are_set_right(
    settings: Settings,
) -> None:
    connected = connection(settings, str(settings.kafka.bootstrap_servers))
    await create_topics(settings, connected)
    admin = KafkaAdmin(connected)
    await admin.configure({topics.TRACES.name: {**PRODUCERS_TIME, "retention.ms": "-1"}})
    with pytest.raises(ConfigurationError, match=f"traces has {TIMES}=CreateTime instead of LogAppendTime"):
        await check_topics(settings, connected)
    await create_topics(settings, connected)
    await check_topics(settings, connected)
    described = (await admin.describe([topics.TRACES.name]))[topics.TRACES.name]
    assert described.config["retention.ms"] == "-1", "what else is set on a topic stays"
    assert await is_broker_timed(settings, topics.TRACES.name)


@pytest.mark.parametrize("is_there", [False, True], ids=["no topics", "empty topics"])
async def test_restored_records_keep_their_times_and_the_next_has_the_brokers(
    settings: Settings, kafka: Broker, topic_prefix: str, tmp_path: Path, *, is_there: bool
) -> None:
    there = load_settings(
        bootstrap_servers=kafka.bootstrap_servers,
        topic_prefix=f"{topic_prefix}-there",
        partitions=1,
        scan_partitions=1,
    )
    source, target = connection(settings, kafka.bootstrap_servers), connection(there, kafka.bootstrap_servers)
    await create_topics(settings, source)
    if is_there:
        await create_topics(there, target)
    log, restored = KafkaLog(source), KafkaLog(target)
    try:
        await KafkaAdmin(source).configure({OPEN[0]: PRODUCERS_TIME})
        for days in (3, 2):
            at_ms = SystemClock().now_ms() - days * DAY_MS
            await log.produce(Outgoing(topic=OPEN[0], partition=0, value=b"-", timestamp_ms=at_ms))
        file = tmp_path / "archive"
        await write_archive(log, file, prefix=topic_prefix, configs={}, clock=SystemClock())
        await restore(
            restored,
            KafkaAdmin(target),
            file,
            wanted(1, 1),
            prefix=there.kafka.topic_prefix,
            replication=1,
            clock=SystemClock(),
        )
    finally:
        await log.close()
        await restored.close()
    await check_topics(there, target)
    before, after = await whole(settings, OPEN[0]), await whole(there, OPEN[0])
    later_ms = {new.timestamp_ms - old.timestamp_ms for old, new in zip(before, after, strict=True)}
    assert len(later_ms) == 1
    assert max(later_ms) < MINUTE_MS
    assert await is_broker_timed(there, OPEN[0])
