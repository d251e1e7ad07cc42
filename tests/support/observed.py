"""A log that notes which topics one role reads and writes, and refuses what the map does not say."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from combee.adapters.ports import (
    Consumer,
    Log,
    OnAssigned,
    Outgoing,
    Record,
    TopicPartition,
    Transaction,
    Transactor,
)
from combee_schemas.topics import TOPICS

READERS = {topic.name: topic.read_by for topic in TOPICS}
WRITERS = {topic.name: topic.written_by for topic in TOPICS}


class Accesses:
    """What one role has touched."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.seen: set[tuple[str, str, str]] = set()

    def reads(self, *topics: str) -> None:
        for topic in topics:
            assert self.role in READERS[topic], f"{self.role} reads {topic}, which topics.py does not say"
            self.seen.add((self.role, "reads", topic))

    def writes(self, *outgoing: Outgoing) -> None:
        for record in outgoing:
            assert self.role in WRITERS[record.topic], (
                f"{self.role} writes {record.topic}, which topics.py does not say"
            )
            self.seen.add((self.role, "writes", record.topic))


class ObservedTransaction:
    def __init__(self, inner: Transaction, accesses: Accesses) -> None:
        self._inner = inner
        self._accesses = accesses
        self.commit_offsets = inner.commit_offsets

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        self._accesses.writes(*outgoing)
        return await self._inner.send(*outgoing)


class ObservedTransactor:
    def __init__(self, inner: Transactor, accesses: Accesses) -> None:
        self._inner = inner
        self._accesses = accesses
        self.close = inner.close

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[ObservedTransaction]:
        async with self._inner.transaction() as transaction:
            yield ObservedTransaction(transaction, self._accesses)


class ObservedLog:
    """The ``Log`` port as one role sees it."""

    def __init__(self, inner: Log, accesses: Accesses) -> None:
        self._inner = inner
        self._accesses = accesses
        # Both are answered for a topic that may be read or written.
        self.partitions = inner.partitions
        self.partition_for = inner.partition_for
        self.close = inner.close

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        self._accesses.writes(*outgoing)
        return await self._inner.produce(*outgoing)

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> Consumer:
        self._accesses.reads(*topics)
        return await self._inner.consumer(group, topics, on_assigned)

    async def transactor(self, name: str) -> ObservedTransactor:
        return ObservedTransactor(await self._inner.transactor(name), self._accesses)

    def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        self._accesses.reads(source.topic)
        return self._inner.read(source, start, end)

    def follow(self, topic: str, starts: Mapping[int, int] | None = None) -> Any:
        self._accesses.reads(topic)
        return self._inner.follow(topic, starts)

    async def read_at(self, source: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
        self._accesses.reads(source.topic)
        return await self._inner.read_at(source, offsets)

    async def beginnings(self, topic: str) -> Mapping[int, int]:
        self._accesses.reads(topic)
        return await self._inner.beginnings(topic)

    async def settled(self, topic: str) -> Mapping[int, int]:
        self._accesses.reads(topic)
        return await self._inner.settled(topic)

    async def ends(self, topic: str) -> Mapping[int, int]:
        self._accesses.reads(topic)
        return await self._inner.ends(topic)

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        self._accesses.reads(topic)
        return await self._inner.offsets_at(topic, timestamp_ms)

    async def retention_ms(self, topic: str) -> int:
        return await self._inner.retention_ms(topic)

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        self._accesses.reads(topic)
        return await self._inner.committed(group, topic)
