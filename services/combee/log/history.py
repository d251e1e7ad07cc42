"""Playbooks in the log: their newest versions, labels and newest batches, and any version by number.

``history`` has every version of every playbook; versions of one playbook are in rising order on one partition, among
those of others. The known places of versions around a number bound its place, so that a few short reads find it in a
history of any length. A look-up takes ``LOOK_UP_S`` at most and holds one version at a time. Memory is bounded: two
numbers per version for ``NAMES_KEPT`` playbooks, and ``VERSIONS_KEPT`` versions.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from combee.adapters.ports import Log, Record, TopicPartition, TransientError
from combee_schemas import topics
from combee_schemas.base import Message, is_branch_of
from combee_schemas.batch import Batch
from combee_schemas.playbook import Label, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import AnyTopic, Topic, key_of

M = TypeVar("M", bound=Message)

NAMES_KEPT = 256
VERSIONS_KEPT = 16
LOOK_UP_S = 60.0
READ_AT_ONCE = 200
"""Maximum number of reflections in one read."""
SPAN = 32
"""Distance, in versions or in offsets, up to which a look-up reads on instead of jumping."""


# ---- messages under a key


async def partition_of(log: Log, topic: AnyTopic, key: str) -> TopicPartition:
    """Return the partition of a key, usually a playbook, in a topic that is partitioned by key."""
    return TopicPartition(topic=topic.name, partition=await log.partition_for(topic.name, key.encode()))


async def reflections_at(log: Log, name: str, own_ids: Mapping[int, str]) -> dict[int, Reflection]:
    """Return a playbook's reflections by offset, under these ids, the oldest first; erased ones are missing.

    As in a batch, a reflection names its playbook itself: producers may write another key, or none.
    """
    source = await partition_of(log, topics.REFLECTIONS, name)
    wanted, found = sorted(own_ids), dict[int, Reflection]()
    for start in range(0, len(wanted), READ_AT_ONCE):
        records = await log.read_at(source, wanted[start : start + READ_AT_ONCE])
        for offset, record in sorted(records.items()):
            reflection = topics.REFLECTIONS.read_or_none(record)
            if reflection is not None and reflection.playbook == name:
                found[offset] = reflection.model_copy(update={"reflection_id": own_ids[offset]})
    return found


async def messages(
    log: Log, topic: Topic[M], name: str, start: int = 0, end: int | None = None
) -> AsyncGenerator[M, None]:
    """Yield a playbook's messages in a topic that is keyed by playbook; unreadable records are skipped."""
    if end is not None and start >= end:
        return
    source = await partition_of(log, topic, name)
    async with aclosing(log.read(source, start, end)) as records:
        async for record in records:
            for message in topic.under(name, [record]):
                yield message


async def whole(log: Log, topic: AnyTopic) -> list[Record]:
    """Return every record of a small topic."""

    async def part(partition: int) -> list[Record]:
        source = TopicPartition(topic=topic.name, partition=partition)
        return [record async for record in log.read(source, 0)]

    parts = await asyncio.gather(*(part(number) for number in range(await log.partitions(topic.name))))
    return [record for records in parts for record in records]


# ---- the newest versions


async def names(log: Log) -> list[str]:
    """Return the names of all playbooks that are not deleted, by their keys, without decoding them.

    It waits while a partition has no leader; the caller sets the deadline.
    """
    keys: dict[str, None] = {}
    # Uses one connection; ``whole`` uses one for each partition.
    async with aclosing(log.follow(topics.PLAYBOOKS.name)) as following:
        async for records in following:
            if records is None:
                break
            for record in records:
                if record.value is None:
                    keys.pop(key_of(record), None)
                else:
                    keys[key_of(record)] = None
    return sorted(key for key in keys if "#" not in key)


async def newest_snapshots(log: Log) -> dict[str, Playbook]:
    """Return the newest version of every playbook by name, and the remainders of deleted ones."""
    by_key: dict[str, Playbook] = {}
    for record in await whole(log, topics.PLAYBOOKS):
        _take(by_key, record)
    return dict(sorted(_by_name(by_key).items()))


async def newest_playbooks(log: Log) -> dict[str, Playbook]:
    """Return the newest version of every playbook that is not deleted, by name."""
    return {
        name: playbook
        for name, playbook in (await newest_snapshots(log)).items()
        if playbook.origin != "delete"
    }


async def newest_snapshot(log: Log, name: str) -> Playbook | None:
    """Return the newest version of a playbook, of a deleted one its remainder; None if there never was one."""
    return (await _newest_beside(log, name)).get(name)


async def branches_of(log: Log, name: str) -> list[Playbook]:
    """Return the newest versions of a playbook's branches that are not deleted, by name."""
    return [
        line
        for other, line in sorted((await _newest_beside(log, name)).items())
        if is_branch_of(other, name) and line.origin != "delete"
    ]


async def _newest_beside(log: Log, name: str) -> dict[str, Playbook]:
    """Return the newest versions of all playbooks on the partition of one, as ``newest_snapshots`` does."""
    by_key: dict[str, Playbook] = {}
    async with aclosing(log.read(await partition_of(log, topics.PLAYBOOKS, name), 0)) as records:
        async for record in records:
            _take(by_key, record)
    return _by_name(by_key)


def _by_name(by_key: dict[str, Playbook]) -> dict[str, Playbook]:
    return {version.name: version for version in sorted(by_key.values(), key=lambda version: version.version)}


async def newest_playbook(log: Log, name: str) -> Playbook | None:
    """Return the newest version of a playbook; None if there never was one, or it is deleted."""
    snapshot = await newest_snapshot(log, name)
    return snapshot if snapshot and snapshot.origin != "delete" else None


def _take(by_key: dict[str, Playbook], record: Record) -> None:
    if record.value is None:
        by_key.pop(key_of(record), None)
        return
    playbook, known = topics.PLAYBOOKS.read_or_none(record), by_key.get(key_of(record))
    if playbook is not None and (known is None or playbook.version > known.version):
        by_key[key_of(record)] = playbook


async def all_labels(log: Log) -> list[Label]:
    """Return the present labels, by playbook and label."""
    by_key: dict[str, Label] = {}
    for record in await whole(log, topics.LABELS):
        label = topics.LABELS.read_or_none(record)
        if label is not None:
            by_key[key_of(record)] = label
        else:
            by_key.pop(key_of(record), None)
    return sorted(by_key.values(), key=lambda label: (label.playbook, label.label))


async def labels_of(log: Log, name: str) -> dict[str, Label]:
    """Return the present labels of a playbook by their names."""
    return {label.label: label for label in await all_labels(log) if label.playbook == name}


# ---- the newest batches


async def newest_manifests(log: Log, source: TopicPartition, span: int) -> list[tuple[int, Batch]]:
    """Return the manifests of a partition's last ``span`` offsets, and older ones that the newest still needs.

    Every manifest names the oldest offset of its partition without a version at that time, so that neither all
    manifests nor all versions need be read. Markers and aborted transactions have offsets, too: if the span holds no
    manifest, the newest is searched for before it.
    """
    first = (await log.beginnings(source.topic))[source.partition]
    start = end = (await log.ends(source.topic))[source.partition]
    manifests: list[tuple[int, Batch]] = []
    while start > first and not manifests:
        before, start = start, max(first, end - span)
        manifests, span = await _manifests(log, source, start, before), span * 8
    newest = manifests[-1][1] if manifests else None
    needed = (newest.oldest_unpublished_offset, newest.oldest_beyond_offset) if newest else ()
    oldest = min((offset for offset in needed if offset >= 0), default=start)
    return [*(await _manifests(log, source, oldest, start)), *manifests]


async def _manifests(log: Log, source: TopicPartition, start: int, end: int) -> list[tuple[int, Batch]]:
    if start >= end:
        return []
    read = [
        (record.offset, topics.BATCHES.read_or_none(record)) async for record in log.read(source, start, end)
    ]
    return [(offset, batch) for offset, batch in read if batch is not None]


# ---- any version


def placed(record: Record) -> Playbook | None:
    """Return the version in a record of ``history``, with its place; None if it cannot be read."""
    version = topics.HISTORY.read_or_none(record)  # only publish writes here, and it can read its own records
    return version.model_copy(update={"history_offset": record.offset}) if version else None


@dataclass(slots=True)
class _Places:
    """Known places of one playbook's versions."""

    offsets: dict[int, int] = field(default_factory=dict)
    read_to: int = 0
    """All versions before this offset are known."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def around(self, version: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return the nearest known version below and the nearest above, each with its place."""
        below = max((number for number in self.offsets if number < version), default=None)
        above = min((number for number in self.offsets if number > version), default=None)
        return (
            None if below is None else (below, self.offsets[below]),
            None if above is None else (above, self.offsets[above]),
        )


class History:
    """Any version of any playbook, by number."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places: OrderedDict[str, _Places] = OrderedDict()
        self._versions: OrderedDict[tuple[str, int], Playbook] = OrderedDict()

    async def source(self, name: str) -> TopicPartition:
        """Return the partition of a playbook's versions."""
        return await partition_of(self._log, topics.HISTORY, name)

    async def exactly(self, name: str, version: int, newest: Playbook | None = None) -> Playbook | None:
        """Return one version; None if it is not retained. ``newest``, if known, is where the search begins.

        Raises
        ------
        TransientError
            If it is not found in ``LOOK_UP_S``.
        """
        if version < 1:
            return None
        if newest is not None and newest.history_offset >= 0:
            self.remember(newest)
        known = self._versions.get((name, version))
        if known is not None:
            self._versions.move_to_end((name, version))
            return known
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await self._looked_up(name, version)
        except TimeoutError as error:
            raise TransientError(f"version {version} of {name} was not found in {LOOK_UP_S:.0f} s") from error

    async def places(self, name: str) -> dict[int, int]:
        """Return the offset of each retained version, oldest first: read once, and remembered."""
        known = self._known(name)
        async with known.reading:
            source = await self.source(name)
            end = (await self._log.ends(source.topic))[source.partition]
            async with aclosing(self.between(name, known.read_to, end)) as versions:
                async for version in versions:
                    known.offsets[version.version] = version.history_offset
            known.read_to = max(known.read_to, end)
            return dict(sorted(known.offsets.items()))

    async def between(self, name: str, start: int, end: int | None = None) -> AsyncGenerator[Playbook, None]:
        """Yield a playbook's versions that stand from ``start`` up to ``end``, oldest first."""
        if end is not None and start >= end:
            return
        async with aclosing(self._log.read(await self.source(name), start, end)) as records:
            async for record in records:
                version = placed(record) if record.key == name.encode() else None
                if version is not None:
                    yield version

    def remember(self, version: Playbook) -> None:
        """Keep a version and its place; the least recently used ones are dropped."""
        self._known(version.name).offsets[version.version] = version.history_offset
        self._keep(version.name, version.version, version)

    def _keep(self, name: str, number: int, version: Playbook) -> None:
        self._versions[name, number] = version
        self._versions.move_to_end((name, number))
        while len(self._versions) > VERSIONS_KEPT:
            self._versions.popitem(last=False)

    def _known(self, name: str) -> _Places:
        known = self._places.setdefault(name, _Places())
        self._places.move_to_end(name)
        while len(self._places) > NAMES_KEPT:
            self._places.popitem(last=False)
        return known

    # ---- the search

    async def _looked_up(self, name: str, version: int) -> Playbook | None:
        """Narrow down the place of a version until it is found or no place is left.

        Every read begins in between and ends at the playbook's next version, or continues if the wanted one is near.
        The offsets read are excluded afterwards, so that nothing is read twice.
        """
        known = self._known(name)
        area = await self._area(name, version, known)
        while area.low < area.high:
            start = area.next_start(version)
            is_first = True
            async with aclosing(self.between(name, start, area.high)) as versions:
                async for other_version in versions:
                    known.offsets[other_version.version] = other_version.history_offset
                    if other_version.version == version:
                        self._keep(name, version, other_version)
                        return other_version
                    if other_version.version > version:
                        if not is_first:
                            return None
                        area.above, area.high = (other_version.version, other_version.history_offset), start
                        break
                    is_first = False
                    area.below, area.low = (
                        (other_version.version, other_version.history_offset),
                        other_version.history_offset + 1,
                    )
                    is_far = (
                        version - other_version.version > SPAN
                        or other_version.history_offset - start > 2 * SPAN
                    )
                    # A short rest is read on: a jump within it would read the same records one by one.
                    if is_far and area.high - area.low > 2 * SPAN:
                        break
                else:
                    area.high = start if is_first else area.low
        return None

    async def _area(self, name: str, version: int, known: _Places) -> "_Area":
        if version in known.offsets:
            place = known.offsets[version]
            return _Area(low=place, high=place + 1, below=(version, place), above=(version, place))
        below, above = known.around(version)
        low = below[1] + 1 if below else 0
        if above is not None:
            return _Area(low=low, high=above[1], below=below or (0, 0), above=above)
        source = await self.source(name)
        end = (await self._log.ends(source.topic))[source.partition]
        return _Area(low=low, high=end, below=below or (0, 0), above=None)


@dataclass(slots=True, kw_only=True)
class _Area:
    """The possible places of a version: from ``low`` to before ``high``."""

    low: int
    high: int
    below: tuple[int, int]
    """The nearest version before, and its place."""
    above: tuple[int, int] | None
    """The nearest version after, if one is known."""
    turn: int = 0

    def next_start(self, version: int) -> int:
        """Return the offset to read next.

        Versions have about equal distances, so interpolation between two known ones is a good guess; every other time
        the middle is used, in case the guess is bad. While no later version is known, reads begin before the end,
        each time further before it, because recent versions are wanted most.
        """
        self.turn += 1
        if self.above is None:
            guess = self.high - (SPAN << self.turn)
        elif self.turn % 2:
            share = (version - self.below[0]) / (self.above[0] - self.below[0] or 1)
            guess = self.below[1] + int(share * (self.above[1] - self.below[1])) - SPAN
        else:
            guess = (self.low + self.high) // 2
        return min(max(guess, self.low), self.high - 1)
