"""A broker's state: partitions of records, transactions, and groups' offsets."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from combee.adapters.ports import (
    Clock,
    FatalError,
    FencedError,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
)
from combee_schemas.topics import partition_of

MAX_BATCH_BYTES = 1_048_588
"""Kafka's default ``max.message.bytes``: a record is written in a batch of its own here."""
BATCH_BYTES, RECORD_BYTES, HEADER_BYTES = 61, 21, 10
"""Maximum overhead in bytes of a batch, a record and a header."""


@dataclass(slots=True, eq=False)
class Pending:
    """A transaction: its records become visible together when it is committed."""

    fate: Literal["open", "committed", "aborted"] = "open"
    begins: dict["Partition", int] = field(default_factory=dict)
    """Per partition the offset of its first record."""
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Offsets to commit, by group."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One offset: a record, or the marker (None) that ends a transaction."""

    record: Record | None
    pending: Pending | None

    def visible(self) -> bool:
        """Return whether a read-committed reader gets it."""
        return self.record is not None and (self.pending is None or self.pending.fate == "committed")


@dataclass(slots=True, eq=False)
class Partition:
    """One partition's slots; ``first`` is the offset of the oldest one retained."""

    first: int = 0
    slots: list[Slot] = field(default_factory=list)
    open: set[Pending] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The next offset to be written."""
        return self.first + len(self.slots)

    @property
    def stable(self) -> int:
        """The end as read-committed readers see it: they wait behind an open transaction."""
        if self.open:
            return min(transaction.begins[self] for transaction in self.open)
        return self.first + len(self.slots)

    def append(self, record: Record | None, pending: Pending | None) -> int:
        """Write one slot and return its offset."""
        offset = self.end
        self.slots.append(Slot(record, pending))
        if pending is not None and record is not None:
            pending.begins.setdefault(self, offset)
            self.open.add(pending)
        return offset

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Yield what is visible from ``start`` up to ``end`` or the stable end."""
        for offset in range(max(start, self.first), min(end, self.stable)):
            slot = self.slots[offset - self.first]
            if slot.record is not None and slot.visible():
                yield slot.record

    def expire(self, before: int) -> None:
        """Forget everything below ``before``, as retention does."""
        expired = max(0, min(before, self.stable) - self.first)
        del self.slots[:expired]
        self.first += expired


class Store:
    """The shared state behind every client of one in-memory log."""

    def __init__(self, counts: Mapping[str, int], clock: Clock) -> None:
        self._topics = {name: [Partition() for _ in range(count)] for name, count in counts.items()}
        self._clock = clock
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Pending] = {}
        self._keyless = 0
        self._changed = asyncio.Event()
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.notes: dict[str, dict[TopicPartition, str]] = {}
        """Next offset to read, by group."""
        self.members: set[str] = set()
        """Groups that have their one member."""

    # ---- partitions

    def partitions(self, topic: str) -> list[Partition]:
        """Return a topic's partitions."""
        if topic not in self._topics:
            raise FatalError(
                f"topic {topic} does not exist: the in-memory log has the topics of the map only"
            )
        return self._topics[topic]

    def partition(self, source: TopicPartition) -> Partition:
        """Return one partition."""
        partitions = self.partitions(source.topic)
        if not 0 <= source.partition < len(partitions):
            raise FatalError(
                f"{source.topic} has {len(partitions)} partitions, not number {source.partition}"
            )
        return partitions[source.partition]

    def write(self, outgoing: Outgoing, pending: Pending | None = None, *, packed: bool = False) -> int:
        """Append one record and return its offset; ``packed``: compressed, so that no limit applies."""
        if not packed and _size(outgoing) > MAX_BATCH_BYTES:
            raise PoisonError(f"writing: the record is too large for {outgoing.topic}")
        number = self._number(outgoing)
        partition = self.partition(TopicPartition(topic=outgoing.topic, partition=number))
        record = Record(
            topic=outgoing.topic,
            partition=number,
            offset=partition.end,
            timestamp_ms=self._clock.now_ms() if outgoing.timestamp_ms is None else outgoing.timestamp_ms,
            key=outgoing.key,
            value=outgoing.value,
            headers=outgoing.headers,
        )
        return partition.append(record, pending)

    def _number(self, outgoing: Outgoing) -> int:
        if outgoing.partition is not None:
            return outgoing.partition
        count = len(self.partitions(outgoing.topic))
        if outgoing.key is not None:
            return partition_of(outgoing.topic, outgoing.key, count)
        self._keyless += 1
        return self._keyless % count

    # ---- waiting

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change; take it *before* looking, then wait on it."""
        return self._changed

    def notify(self) -> None:
        """Wake all tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- transactions

    def initialise(self, name: str) -> int:
        """Return a new epoch of a transactional id; a transaction left open by the former owner is aborted."""
        self._epochs[name] = self._epochs.get(name, -1) + 1
        if name in self._open:
            self.settle(name, self._epochs[name], "aborted")
        return self._epochs[name]

    def owns(self, name: str, epoch: int) -> bool:
        """Return whether ``epoch`` is the newest one of this transactional id."""
        return self._epochs[name] == epoch

    def check(self, name: str, epoch: int) -> None:
        """Raise FencedError for a former owner."""
        if not self.owns(name, epoch):
            raise FencedError(f"transactional id {name}: a newer owner took over")

    def begin(self, name: str) -> Pending:
        """Open a transaction."""
        self._open[name] = Pending()
        return self._open[name]

    def settle(self, name: str, epoch: int, fate: Literal["committed", "aborted"]) -> None:
        """Decide a transaction's fate and mark its end in every partition it touched."""
        self.check(name, epoch)
        pending = self._open.pop(name)
        pending.fate = fate
        for partition in pending.begins:
            partition.open.discard(pending)
            partition.append(None, None)
        for group, offsets in pending.offsets.items() if fate == "committed" else ():
            self.committed.setdefault(group, {}).update(offsets)
        self.notify()


def _size(outgoing: Outgoing) -> int:
    headers = sum(HEADER_BYTES + len(name.encode()) + len(value or b"") for name, value in outgoing.headers)
    return BATCH_BYTES + RECORD_BYTES + len(outgoing.key or b"") + len(outgoing.value or b"") + headers
