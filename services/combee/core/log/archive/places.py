"""Places: the new place of every record of an archive, known before the first one is written; pure.

Offsets differ after a restore: transaction markers, aborted and compacted records leave no gap there, and another
number of partitions groups records differently. A partition is filled in a fixed order, so that an interrupted
restore can continue. First come records that all consumer groups of the topic had passed, then those that some had,
then the rest, so that a committed offset separates the same records as before.

Memory: eight bytes per record.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from combee_schemas.archive import NONE, ArchiveHeader
from combee_schemas.base import Message
from combee_schemas.records import Record, TopicPartition
from combee_schemas.topics import AnyTopic, partition_of

Place = tuple[int, int]
"""Partition and offset."""
NOWHERE = -1
"""The offset of no record."""
BEFORE_FIRST = 1
"""Number of placeholder records at the beginning if earlier ones had expired; the restore deletes them at its end."""


@dataclass(slots=True)
class _Lane:
    """Records that move from one partition to another, by their old offsets, and the start of each rank's part."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    ends: list[int] = field(default_factory=list)
    """Cumulative number of records per rank."""
    starts: list[int] = field(default_factory=list)
    """New offset of each rank's first record."""

    def new(self, index: int) -> tuple[int, int]:
        """Return the new offset of a record, and its rank."""
        rank = bisect_right(self.ends, index)
        return self.starts[rank] + index - (self.ends[rank - 1] if rank else 0), rank


class Places:
    """Takes each record's old place once, in the archive's order; after ``settle`` it returns the new places."""

    def __init__(self, header: ArchiveHeader, counts: Mapping[str, int]) -> None:
        self.before = {topic.name: topic.partitions for topic in header.topics}
        self.after = {name: counts[name] for name in self.before}
        """Number of partitions per topic."""
        self._ends = {topic.name: topic.ends for topic in header.topics}
        self._positions = header.positions
        self._lanes: dict[tuple[str, int, int], _Lane] = {}
        self._totals: dict[TopicPartition, int] = {}
        self.cut: frozenset[TopicPartition] = frozenset()
        """Partitions whose earlier records have expired."""

    # ---- reading the old places

    def target(self, topic: AnyTopic, record: Record, message: Message | None) -> int:
        """Return a record's new partition; ``message`` is needed only if partition counts differ."""
        before, after = self.before[topic.name], self.after[topic.name]
        if before == after:
            return record.partition
        if _home(topic, record, message, before) == record.partition:
            return _home(topic, record, message, after)
        return record.partition % after

    def needs_reading(self, topic: AnyTopic) -> bool:
        """Return whether a record's new partition depends on its message."""
        return _is_placed_by_message(topic) and self.before[topic.name] != self.after[topic.name]

    def add(self, record: Record, target: int) -> None:
        """Add a record's old place and new partition."""
        lane = self._lanes.setdefault((record.topic, record.partition, target), _Lane())
        lane.offsets.append(record.offset)

    def settle(self, firsts: Mapping[str, Sequence[int]]) -> None:
        """Fix all new places; ``firsts`` are the first retained offsets by topic and old partition."""
        self.cut = frozenset(self._cut(firsts))
        for topic, count in self.after.items():
            for number in range(count):
                source = TopicPartition(topic=topic, partition=number)
                self._totals[source] = BEFORE_FIRST if source in self.cut else 0
            lanes = [(at, lane) for (name, *at), lane in sorted(self._lanes.items()) if name == topic]
            for (partition, _), lane in lanes:
                borders = sorted(
                    group.offsets[partition] for group in self._positions if group.topic == topic
                )
                lane.ends = [bisect_left(lane.offsets, border) for border in borders]
                lane.ends.append(len(lane.offsets))
            for rank in range(self._ranks(topic)):
                for (_, target), lane in lanes:
                    source = TopicPartition(topic=topic, partition=target)
                    lane.starts.append(self._totals[source])
                    self._totals[source] += lane.ends[rank] - (lane.ends[rank - 1] if rank else 0)

    def _cut(self, firsts: Mapping[str, Sequence[int]]) -> Iterator[TopicPartition]:
        for topic, offsets in firsts.items():
            before = {number for number, first in enumerate(offsets) if first > 0}
            same = self.before[topic] == self.after[topic]
            for number in range(self.after[topic]) if before else ():
                if not same or number in before:
                    yield TopicPartition(topic=topic, partition=number)

    def _ranks(self, topic: str) -> int:
        return 1 + sum(group.topic == topic for group in self._positions)

    # ---- looking up the new places

    @property
    def readings(self) -> int:
        """Number of readings of the archive that it takes to write each partition in order."""
        return max(map(self._ranks, self.after)) if self.before != self.after else 1

    def is_written_in(self, reading: int, record: Record, target: int) -> bool:
        """Return whether a record is written in the ``reading``-th reading of the archive, from 0."""
        if self.before[record.topic] == self.after[record.topic]:
            return reading == 0
        lane = self._lanes[record.topic, record.partition, target]
        return lane.new(bisect_left(lane.offsets, record.offset))[1] == reading

    def totals(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition."""
        return dict(self._totals)

    def exact(self, topic: str, partition: int, offset: int, target: int | None = None) -> Place | None:
        """Return the new offset of the record at an old place; None if it is not in the archive."""
        targets = range(self.after.get(topic, 0)) if target is None else (target,)
        for number in targets:
            lane = self._lanes.get((topic, partition, number))
            index = bisect_left(lane.offsets, offset) if lane else 0
            if lane and index < len(lane.offsets) and lane.offsets[index] == offset:
                return number, lane.new(index)[0]
        return None

    def gone(self, topic: str, partition: int, offset: int) -> int:
        """Return an offset for a record that is not in the archive: unique, in order, below all others' offsets."""
        if offset == NOWHERE or partition >= len(self._ends.get(topic, ())):
            return offset
        count, end = self.before[topic], self._ends[topic][partition]
        if offset < 0:  # it was gone before: below those that are gone since
            return offset - (end + 2) * count
        return (offset - end - 1) * count - partition if offset < end else offset

    def of_playbook(self, topic: AnyTopic, playbook: str, offset: int) -> int:
        """Return the new offset of a record on a playbook's partition."""
        if offset == NOWHERE:
            return offset
        partition, target = self._homes(topic, playbook)
        place = self.exact(topic.name, partition, offset, target)
        return self.gone(topic.name, partition, offset) if place is None else place[1]

    def through(self, topic: AnyTopic, playbook: str, offset: int) -> int:
        """Return the offset up to which a playbook has the same records as up to an old offset."""
        if offset < 0:
            return offset
        partition, target = self._homes(topic, playbook)
        lane = self._lanes.get((topic.name, partition, target))
        index = bisect_right(lane.offsets, offset) if lane else 0
        if lane and index:
            return lane.new(index - 1)[0]
        is_cut = TopicPartition(topic=topic.name, partition=target) in self.cut
        return BEFORE_FIRST - 1 if is_cut else -1

    def first(self, topic: AnyTopic, playbook: str, offset: int) -> int:
        """Return the offset from which a playbook has the same records as from an old offset."""
        return self.through(topic, playbook, offset - 1) + 1

    def home(self, topic: AnyTopic, playbook: str) -> int:
        """Return a playbook's new partition."""
        return self._homes(topic, playbook)[1]

    def _homes(self, topic: AnyTopic, playbook: str) -> tuple[int, int]:
        before, after = self.before[topic.name], self.after[topic.name]
        key = playbook.encode()
        return partition_of(topic.name, key, before), partition_of(topic.name, key, after)

    def positions(self) -> dict[str, dict[TopicPartition, int]]:
        """Return each group's committed offsets: up to the first record that it had not passed."""
        committed: dict[str, dict[TopicPartition, int]] = {}
        for group in self._positions:
            if all(offset == NONE for offset in group.offsets):
                continue
            of_group = committed.setdefault(group.group, {})
            for number in range(self.after[group.topic]):
                source = TopicPartition(topic=group.topic, partition=number)
                of_group[source] = min(
                    self._waiting(group.topic, group.offsets, number), default=self._totals[source]
                )
        return committed

    def _waiting(self, topic: str, committed: Sequence[int], target: int) -> Iterator[int]:
        """Yield, per old partition, the new offset of the first record that a group had not passed."""
        for partition, offset in enumerate(committed):
            lane = self._lanes.get((topic, partition, target))
            index = bisect_left(lane.offsets, offset) if lane else 0
            if lane and index < len(lane.offsets):
                yield lane.new(index)[0]


def _home(topic: AnyTopic, record: Record, message: Message | None, count: int) -> int:
    """Return a record's partition, given the partition count; unplaceable records stay on theirs."""
    if topic.placed_by is not None:
        placed = topic.place(message, count) if message is not None else None
    else:
        key = topic.key_of(message) if message is not None and topic.is_open else record.key
        placed = None if key is None else partition_of(topic.name, key, count)
    return record.partition % count if placed is None else placed


def _is_placed_by_message(topic: AnyTopic) -> bool:
    """Return whether the message instead of the key decides about the partition: agents may write any key."""
    return topic.placed_by is not None or (topic.is_open and topic.spread == "playbooks")
