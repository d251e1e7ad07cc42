"""Who cancels a look-up in Kafka is heard, and a producer that is lost is replaced, whatever aiokafka makes of it."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import errors

from combee.adapters.kafka import lifetime
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.log import FOLLOW_IDLE_MS, KafkaLog
from combee.adapters.ports import Outgoing, TopicPartition, TransientError

DEADLINE_S = 2.0
SOURCE = TopicPartition(topic="batches", partition=0)


class Reader:
    """A consumer of aiokafka that waits where it is told to, and takes a cancellation of ``stop`` for its own."""

    def __init__(self, *, waits_in: str) -> None:
        self.waits_in = waits_in
        self._fetcher = SimpleNamespace()
        self.reached = asyncio.Event()
        self._conns: dict[str, Any] = {}
        self.going_on = asyncio.get_running_loop().create_future()
        self._client = self
        self._topics: set[str] = set()

    async def set_topics(self, topics: set[str]) -> None:
        self._topics = topics

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        if self.waits_in == "stop":
            self.reached.set()
            with suppress(asyncio.CancelledError):  # as AIOKafkaClient.close and Fetcher.close do
                await self.going_on

    def assign(self, _partitions: Any) -> None:
        return

    def seek(self, _partition: Any, _offset: int) -> None:
        return

    def pause(self, *_partitions: Any) -> None:
        return

    def resume(self, *_partitions: Any) -> None:
        return

    async def beginning_offsets(self, partitions: Any) -> Any:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Any) -> Any:
        return dict.fromkeys(partitions, 1)

    async def position(self, _partition: Any) -> int:
        return int(self.waits_in != "getmany")

    async def getmany(self, *_partitions: Any, **_options: Any) -> Any:
        if self.waits_in != "getmany":
            return {}
        self.reached.set()
        await self.going_on
        self.going_on = asyncio.get_running_loop().create_future()  # the next answer never comes
        return {}


def _log(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> KafkaLog:
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", lambda **_: reader)
    log = KafkaLog(Connection(bootstrap_servers="127.0.0.1:1", prefix="t"))
    monkeypatch.setattr(log, "_counts", {SOURCE.topic: 1})
    return log


async def _cancelled(looking: asyncio.Task[Any]) -> bool:
    looking.cancel()
    await asyncio.wait([looking], timeout=DEADLINE_S)
    was_heard = looking.cancelled()
    looking.cancel()
    await asyncio.wait([looking], timeout=DEADLINE_S)
    return was_heard


async def test_a_reading_that_is_cancelled_while_its_reader_stops_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifetime, "STOP_GRACE_S", 0.01)
    reader = Reader(waits_in="stop")
    reading = asyncio.ensure_future(_log(reader, monkeypatch).read_at(SOURCE, [0]))
    async with asyncio.timeout(DEADLINE_S):
        await reader.reached.wait()

    assert await _cancelled(reading)


class Lookup(Reader):
    """A consumer of aiokafka that answers questions for offsets until it fails."""

    made: list["Lookup"]

    def __init__(self, **_: Any) -> None:
        super().__init__(waits_in="nothing")
        self.fails = False
        self.is_stopped = False
        Lookup.made.append(self)

    async def stop(self) -> None:
        self.is_stopped = True

    async def end_offsets(self, partitions: Any) -> Any:
        if self.fails:
            raise errors.KafkaTimeoutError
        return await super().end_offsets(partitions)

    async def committed(self, _partition: Any) -> int:
        return 1


async def test_look_ups_share_a_client_until_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookup, "made", [], raising=False)
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", Lookup)
    log = KafkaLog(Connection(bootstrap_servers="127.0.0.1:1", prefix="t"))
    monkeypatch.setattr(log, "_counts", {SOURCE.topic: 1})
    assert [await log.ends(SOURCE.topic) for _ in range(3)] == [{0: 1}] * 3
    assert await log.beginnings(SOURCE.topic) == {0: 0}
    assert len(Lookup.made) == 1
    assert await log.committed("scan", SOURCE.topic) == await log.committed("scan", SOURCE.topic) == {0: 1}
    assert len(Lookup.made) == 2
    Lookup.made[0].fails = True
    with pytest.raises(TransientError):
        await log.ends(SOURCE.topic)
    assert await log.ends(SOURCE.topic) == {0: 1}
    assert [client.is_stopped for client in Lookup.made] == [True, False, False]
    await log.close()
    assert all(client.is_stopped for client in Lookup.made)


async def test_a_reading_that_is_cancelled_at_the_moment_of_an_answer_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(waits_in="getmany")
    log = _log(reader, monkeypatch)

    async def read() -> None:
        async for _ in log.read(SOURCE, 0):
            pass

    reading = asyncio.create_task(read())
    async with asyncio.timeout(DEADLINE_S):
        await reader.reached.wait()
    # Answer and cancellation come in one turn of the loop: on a saturated machine a turn is long.
    reader.going_on.set_result(None)
    await asyncio.sleep(0)

    assert await _cancelled(reading)


class Followed(Reader):
    """A consumer of aiokafka whose topic has one record; it notes how long it is told to wait for the next."""

    def __init__(self) -> None:
        super().__init__(waits_in="nothing")
        self.waits_ms: list[int] = []

    async def position(self, _partition: Any) -> int:
        return len(self.waits_ms)

    async def getmany(self, *_partitions: Any, timeout_ms: int, **_options: Any) -> Any:
        self.waits_ms.append(timeout_ms)
        if len(self.waits_ms) > 1:
            self.reached.set()
            await self.going_on
        return {}


async def test_a_follower_that_is_current_wakes_for_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Followed()
    log = _log(reader, monkeypatch)

    async def follow() -> None:
        async for records in log.follow(SOURCE.topic):
            assert records is None

    following = asyncio.create_task(follow())
    async with asyncio.timeout(DEADLINE_S):
        await reader.reached.wait()
    assert reader.waits_ms == [250, FOLLOW_IDLE_MS]
    assert await _cancelled(following)


class Producer:
    """A producer of aiokafka; the broker has lost track of the first one that was made."""

    made = 0

    def __init__(self, **_: Any) -> None:
        Producer.made += 1
        self.is_lost = Producer.made == 1
        self.stopped = False

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        self.stopped = True

    async def send(self, *_: Any, **__: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        if self.is_lost:
            answer.set_exception(errors.OutOfOrderSequenceNumber())
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return answer


async def test_a_producer_that_the_broker_has_lost_track_of_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Producer, "made", 0)
    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", Producer)
    log = KafkaLog(Connection(bootstrap_servers="127.0.0.1:1", prefix="t"))
    with pytest.raises(TransientError, match="the producer is restarted"):
        await log.produce(Outgoing(topic="reflections", value=b"x"))
    assert await log.produce(Outgoing(topic="reflections", value=b"x")) == [7]
    assert Producer.made == 2
