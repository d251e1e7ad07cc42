"""A consumer group's only member."""

import asyncio
from collections.abc import Mapping, Sequence

from combee.adapters.memory.store import Store
from combee.adapters.ports import NO_NOTES, FatalError, OnAssigned, Record, TopicPartition, TransientError

MAX_POLL_RECORDS = 500


class MemoryConsumer:
    """The ``Consumer`` port; it owns every partition of its topics."""

    def __init__(self, store: Store, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> None:
        if group in store.members:
            raise FatalError(
                f"group {group} has a member already: the in-memory log does not share a group's partitions"
                " among members; close the other one, or use Kafka"
            )
        self._store = store
        self._group = group
        self._on_assigned = on_assigned
        self._partitions = {
            TopicPartition(topic=topic, partition=number): partition
            for topic in topics
            for number, partition in enumerate(store.partitions(topic))
        }
        self._starts: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._notes: dict[TopicPartition, str] = {}
        self._paused: set[TopicPartition] = set()
        self._closed = False
        store.members.add(group)

    async def poll(self, timeout_s: float) -> Sequence[Record]:
        if self._closed:
            raise TransientError(f"this member has left group {self._group}")
        if not self._starts:
            await self._assign()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed, before = self._store.changed, dict(self._positions)
                    if (records := self._fetch()) or self._positions != before:
                        return records
                    await changed.wait()
        except TimeoutError:
            return ()

    async def _assign(self) -> None:
        self._starts = {source: self._start(source) for source in self._partitions}
        self._positions = dict(self._starts)
        self._notes = dict(self._store.notes.get(self._group, {}))
        try:
            await self._on_assigned(frozenset(self._starts))
        except TransientError:
            self._starts = {}  # incomplete: the next poll repeats all of it
            raise

    def _start(self, source: TopicPartition) -> int:
        first = self._partitions[source].first
        committed = self._store.committed.get(self._group, {}).get(source, first)
        if committed < first:
            raise FatalError(
                f"{source.topic}[{source.partition}] begins at {first}, after the committed offset {committed}:"
                " records expired unread"
            )
        return committed

    def _fetch(self) -> list[Record]:
        records: list[Record] = []
        for source, partition in self._partitions.items():
            position, stable = self._positions[source], partition.stable
            if position >= stable or source in self._paused or len(records) >= MAX_POLL_RECORDS:
                continue
            for record in partition.records(position, stable):
                if len(records) >= MAX_POLL_RECORDS:
                    break
                records.append(record)
                position = record.offset + 1
            else:
                position = stable  # passes markers and aborted records, too
            self._positions[source] = position
        return records

    async def commit(
        self, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] = NO_NOTES
    ) -> None:
        mine = {source: offset for source, offset in offsets.items() if source in self._starts}
        if not self._closed:
            self._store.committed.setdefault(self._group, {}).update(mine)
            self._store.notes.setdefault(self._group, {}).update(
                {source: notes.get(source, "") for source in mine}
            )

    async def note(self, source: TopicPartition) -> str:
        return self._notes.get(source, "")

    def seek(self, source: TopicPartition, offset: int) -> None:
        self._positions[source] = offset

    async def start_offset(self, source: TopicPartition) -> int:
        return self._starts[source]

    async def positions(self) -> Mapping[TopicPartition, int]:
        return dict(self._positions)

    def pause(self, *sources: TopicPartition) -> None:
        self._paused.update(sources)

    def resume(self, *sources: TopicPartition) -> None:
        self._paused.difference_update(sources)
        self._store.notify()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._store.members.discard(self._group)
