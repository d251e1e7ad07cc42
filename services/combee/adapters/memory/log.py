"""The ``Log`` port in memory."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from combee.adapters.memory.consumer import MemoryConsumer
from combee.adapters.memory.store import Partition, Store
from combee.adapters.memory.transactor import MemoryTransactor
from combee.adapters.ports import Clock, OnAssigned, Outgoing, Record, TopicPartition, TransientError
from combee_schemas.topics import BY_NAME, TOPICS, partition_of

SETTLE_S = 5.0
"""Seconds after which an open transaction counts as left by a dead process."""


class MemoryLog:
    """All topics, for the life of the object; clients in one event loop share it.

    It has no rebalance (a group has one member), no compaction and no retention but ``expire``.
    """

    def __init__(self, clock: Clock, *, partitions: int = 4, scan_partitions: int = 8) -> None:
        counts = {"playbooks": partitions, "scan": scan_partitions, "traces": scan_partitions, "single": 1}
        self._store = Store({topic.name: counts[topic.spread] for topic in TOPICS}, clock)

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        await asyncio.sleep(0)  # lets other tasks run, as waiting for a broker would
        try:
            return [self._store.write(record) for record in outgoing]
        finally:
            self._store.notify()

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> MemoryConsumer:
        """A second member of a group is refused."""
        return MemoryConsumer(self._store, group, topics, on_assigned)

    async def transactor(self, name: str) -> MemoryTransactor:
        return MemoryTransactor(self._store, name)

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        partition = self._store.partition(source)
        stable = partition.stable
        for record in list(partition.records(start, stable if end is None else end)):
            yield record

    async def read_at(self, source: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
        partition = self._store.partition(source)
        return {record.offset: record for at in offsets for record in partition.records(at, at + 1)}

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        partitions = self._store.partitions(topic)
        positions = [max(partition.first, (starts or {}).get(n, 0)) for n, partition in enumerate(partitions)]
        ends = [partition.stable for partition in partitions]
        current = False
        while True:
            changed = self._store.changed
            if records := _advance(partitions, positions):
                yield records
            if not current and all(at >= end for at, end in zip(positions, ends, strict=True)):
                current = True
                yield None
            await changed.wait()

    async def partitions(self, topic: str) -> int:
        return len(self._store.partitions(topic))

    async def partition_for(self, topic: str, key: bytes) -> int:
        return partition_of(topic, key, await self.partitions(topic))

    async def beginnings(self, topic: str) -> Mapping[int, int]:
        return {number: partition.first for number, partition in enumerate(self._store.partitions(topic))}

    async def ends(self, topic: str) -> Mapping[int, int]:
        return {number: partition.stable for number, partition in enumerate(self._store.partitions(topic))}

    async def settled(self, topic: str) -> Mapping[int, int]:
        ends = {number: partition.end for number, partition in enumerate(self._store.partitions(topic))}
        try:
            async with asyncio.timeout(SETTLE_S):
                while True:
                    changed = self._store.changed
                    stable = await self.ends(topic)
                    if all(stable[number] >= end for number, end in ends.items()):
                        return ends
                    await changed.wait()
        except TimeoutError as error:
            raise TransientError(f"a transaction on {topic} stays open") from error

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        return {
            number: next(
                (
                    r.offset
                    for r in partition.records(partition.first, partition.stable)
                    if r.timestamp_ms >= timestamp_ms
                ),
                partition.stable,
            )
            for number, partition in enumerate(self._store.partitions(topic))
        }

    async def retention_ms(self, topic: str) -> int:
        return BY_NAME[topic].retention_ms

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        offsets = self._store.committed.get(group, {})
        return {source.partition: at for source, at in offsets.items() if source.topic == topic}

    async def close(self) -> None:
        """Do nothing: records stay as long as the object does."""

    def produce_packed(self, *outgoing: Outgoing) -> None:
        """Write records without a limit on their size, as a client that compresses them well could."""
        for record in outgoing:
            self._store.write(record, packed=True)
        self._store.notify()

    def expire(self, source: TopicPartition, before: int) -> None:
        """Forget a partition's records below ``before``, as retention would."""
        self._store.partition(source).expire(before)


def _advance(partitions: Sequence[Partition], positions: list[int]) -> list[Record]:
    records: list[Record] = []
    for number, partition in enumerate(partitions):
        stable = partition.stable
        if positions[number] < stable:
            records += partition.records(positions[number], stable)
            positions[number] = stable
    return records
