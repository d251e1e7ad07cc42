"""Faust as we run it: a fetch is one message a partition, and what does not start is started again."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from combee.adapters.kafka.connection import Connection
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import TransientError
from combee.process.settings.loading import load_settings
from combee.shuffle import app
from combee.shuffle.shuffler import Shuffler
from support.clock import ManualClock

DEADLINE_S = 10.0
CONNECTION = Connection(bootstrap_servers="nowhere:1", prefix="p")
PARTITIONS = [TopicPartition("combee.reflections", number) for number in (0, 1)]

UNCONNECTED: dict[str, Any] = {
    "topic": lambda *_, **__: None,
    "agent": lambda *_, **__: lambda feed: feed,
    "on_partitions_assigned": SimpleNamespace(connect=lambda _: None),
}
"""What Faust's app is asked before it starts."""


def fetched(tp: TopicPartition, *offsets: int) -> list[Any]:
    return [
        SimpleNamespace(
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            timestamp=1_000 + offset,
            timestamp_type=0,
            key=b"k",
            value=str(offset).encode(),
            headers=(("h", b"1"), ("h", b"2")),
        )
        for offset in offsets
    ]


async def messages(records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
    """Return what Faust makes of a fetch; its consumer has no thread and no broker here."""
    consumer: Any = app._Consumer.__new__(app._Consumer)
    consumer.app = SimpleNamespace(consumer_generation_id=7)

    async def getmany(_active: object, _timeout: float) -> dict[TopicPartition, list[Any]]:
        return records

    consumer._thread = SimpleNamespace(getmany=getmany)
    given = await consumer._getmany(set(records), 1.0)
    return {tp: [consumer._to_message(tp, item) for item in items] for tp, items in given.items()}


async def test_a_fetch_is_one_message_a_partition_at_the_place_of_its_last_record() -> None:
    first, second = PARTITIONS
    given = await messages({first: fetched(first, 3, 4, 6), second: fetched(second, 9)})
    assert {tp: [(m.tp, m.offset, m.generation_id) for m in each] for tp, each in given.items()} == {
        first: [(first, 6, 7)],
        second: [(second, 9, 7)],
    }


async def test_the_records_of_a_message_are_delivered_as_the_log_has_them() -> None:
    tp = PARTITIONS[1]
    (message,) = (await messages({tp: fetched(tp, 3, 4)}))[tp]

    async def events() -> Any:
        yield SimpleNamespace(message=message)

    clock = ManualClock()
    shuffler = Shuffler(MemoryLog(clock), clock, load_settings().batch)
    await shuffler.assign([tp.partition])
    feed = app._feeding(shuffler, Connection(bootstrap_servers="nowhere:1", prefix="combee"))
    await feed(SimpleNamespace(noack=lambda: SimpleNamespace(events=events)))
    delivered = shuffler._delivered[tp.partition]
    assert delivered.newest == {"reflections": 4}
    assert [(r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in delivered.records] == [
        ("reflections", 1, 3, 1003, b"k", b"3"),
        ("reflections", 1, 4, 1004, b"k", b"4"),
    ]


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError(), AssertionError("no partitions")])
async def test_a_stream_processor_that_does_not_start_is_started_again(error: Exception) -> None:
    stopped: list[bool] = []

    async def start() -> None:
        raise error

    async def stop() -> None:
        stopped.append(True)

    clock = ManualClock()
    shuffler = Shuffler(MemoryLog(clock), clock, load_settings().batch)
    faust = SimpleNamespace(**UNCONNECTED, start=start, stop=stop)
    with pytest.raises(TransientError, match="Faust does not start"):
        await app.session(cast("Any", faust), shuffler, CONNECTION, asyncio.Event(), lambda: None)
    assert stopped == [True]


async def test_a_stream_processor_that_has_crashed_is_started_again() -> None:
    """tests/kafka/test_stream_processor.py has the real one."""

    async def done() -> None: ...

    clock = ManualClock()
    shuffler = Shuffler(MemoryLog(clock), clock, load_settings().batch)
    transport = SimpleNamespace(membership=SimpleNamespace(check=lambda: None))
    crash = {"crashed": True, "crash_reason": RuntimeError("no token")}
    faust = SimpleNamespace(**UNCONNECTED, **crash, start=done, stop=done, transport=transport)
    with pytest.raises(TransientError, match="Faust has crashed: RuntimeError"):
        async with asyncio.timeout(DEADLINE_S):
            await app.session(cast("Any", faust), shuffler, CONNECTION, asyncio.Event(), lambda: None)
