"""What the log in memory refuses or adds, beyond the contract."""

import asyncio

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Outgoing, TopicPartition, TransientError
from combee_schemas.murmur2 import murmur2
from combee_schemas.topics import TOPICS
from support.clock import ManualClock

R = "reflections"
R0 = TopicPartition(topic=R, partition=0)


async def ignore(_: frozenset[TopicPartition]) -> None:
    return


@given(st.binary(max_size=40))
def test_keys_are_hashed_as_aiokafka_does(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


async def test_it_has_every_topic_of_the_map() -> None:
    log = MemoryLog(ManualClock(), partitions=5, scan_partitions=7)
    counts = {"playbooks": 5, "scan": 7, "traces": 7, "single": 1}
    assert [await log.partitions(topic.name) for topic in TOPICS] == [
        counts[topic.spread] for topic in TOPICS
    ]


async def test_a_second_member_of_a_group_is_refused_because_it_would_have_to_share() -> None:
    log = MemoryLog(ManualClock())
    consumer = await log.consumer("g", [R], ignore)
    with pytest.raises(FatalError, match="has a member already"):
        await log.consumer("g", ["updates"], ignore)
    await consumer.close()
    await (await log.consumer("g", [R], ignore)).close()


async def test_records_that_expired_unread_are_fatal_as_on_kafka() -> None:
    log = MemoryLog(ManualClock(), partitions=1)
    await log.produce(*(Outgoing(topic=R, value=b"v", partition=0) for _ in range(5)))
    first = await log.consumer("g", [R], ignore)
    await first.poll(0)
    await first.commit({R0: 2})
    await first.close()
    log.expire(R0, 3)
    assert await log.beginnings(R) == {0: 3}
    assert [record.offset async for record in log.read(R0, 0)] == [3, 4]
    with pytest.raises(FatalError, match="expired unread"):
        await (await log.consumer("g", [R], ignore)).poll(0)


async def test_a_transactional_id_that_was_given_up_is_of_no_use() -> None:
    transactor = await MemoryLog(ManualClock()).transactor("t")
    await transactor.close()
    with pytest.raises(TransientError):
        async with transactor.transaction():
            pass


async def test_a_poll_wakes_up_when_a_record_comes() -> None:
    log = MemoryLog(ManualClock())
    consumer = await log.consumer("g", [R], ignore)
    async with asyncio.timeout(5):
        found, _ = await asyncio.gather(consumer.poll(3600), log.produce(Outgoing(topic=R, value=b"v")))
    assert [record.value for record in found] == [b"v"]
