"""Writing an archive of topics while the services run: a consistent cut is looked up, then read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from combee.adapters.ports import Clock, FatalError, Log, Record, TopicPartition, TransientError
from combee.core.log.archive.cut import IN_FILE, ORDER, Cut
from combee.log.archive.file import ArchiveWriter, whole_file
from combee.log.inspection.lag import INPUTS
from combee_schemas import topics
from combee_schemas.archive import NONE, ArchiveHeader, GroupPositions, TopicContents
from combee_schemas.base import playbook_of
from combee_schemas.codec import CodecError
from combee_schemas.topics import TOPICS, AnyTopic

OnProgress = Callable[[str, int, int], None]
"""Called with a topic, the number of offsets read, and the total."""
LOOK_UP_S = 120.0
"""Maximum seconds to look up one topic; a transaction that stays open fails well before."""
SHOWN_EVERY = 250
KEPT_IN_MEMORY = (topics.BATCH_SIZES, topics.LABELS, topics.OUTCOME_STATISTICS)
"""Small compacted topics, read when their end is looked up, before records can be compacted away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The result of writing an archive."""

    header: ArchiveHeader
    records: Mapping[str, int]
    """By topic."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogState:
    """A consistent cut of the topics."""

    ends: Mapping[str, tuple[int, ...]]
    positions: tuple[GroupPositions, ...]
    newest: Mapping[str, list[Record]]
    """By topic kept in memory: its newest record per key."""


async def write_archive(
    log: Log,
    path: Path,
    *,
    prefix: str,
    configs: Mapping[str, Mapping[str, str]],
    clock: Clock,
    playbook: str = "",
    written_by: str = "",
    on_progress: OnProgress = lambda _topic, _read, _total: None,
) -> Archived:
    """Write topics to a file: all of them, or the records of one playbook and its branches.

    ``configs`` is the broker's configuration by topic; only values that Combee sets are kept.

    Raises
    ------
    FatalError
        If there is no such playbook, it is a branch, or the file cannot be written.
    """
    if playbook_of(playbook) != playbook:
        whole = playbook_of(playbook)
        raise FatalError(
            f"{playbook} learns from {whole}'s reflections: archive {whole}, which includes its branches"
        )
    try:
        with whole_file(path) as file:
            cut_at_ms = clock.now_ms()
            state = await _look_up(log)
            header = ArchiveHeader(
                prefix=prefix,
                playbook=playbook,
                topics=tuple(_contents(topic, state, configs.get(topic.name, {})) for topic in IN_FILE),
                positions=state.positions,
                messages={kind.type: kind.version_number for t in TOPICS for kind in (t.message, *t.beside)},
                cut_at_ms=cut_at_ms,
                written_by=written_by,
            )
            writer = ArchiveWriter(file, header)
            cut = Cut(ends=state.ends, playbook=playbook)
            for topic in IN_FILE:
                async for record in _records(log, topic, cut, state, on_progress):
                    writer.add(record)
            if playbook and not sum(writer.records):
                raise FatalError(
                    f"there are no records of a playbook {playbook}: 'combee playbook list' lists all"
                )
            firsts = [await log.beginnings(topic.name) for topic in IN_FILE]
            sha256 = writer.finish(tuple(tuple(at for _, at in sorted(first.items())) for first in firsts))
    except TimeoutError as error:
        raise TransientError("the broker took too long: nothing was written") from error
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error.strerror or error}") from error
    records = {topic.name: count for topic, count in zip(IN_FILE, writer.records, strict=True)}
    return Archived(header=header, records=records, sha256=sha256)


async def _look_up(log: Log) -> _LogState:
    positions = [await _position(log, group, topic) for group, inputs in INPUTS.items() for topic in inputs]
    ends: dict[str, tuple[int, ...]] = {}
    newest: dict[str, list[Record]] = {}
    for topic in ORDER:
        async with asyncio.timeout(LOOK_UP_S):
            settled = await log.settled(topic.name)
            ends[topic.name] = tuple(at for _, at in sorted(settled.items()))
            if topic in KEPT_IN_MEMORY:
                newest[topic.name] = await _newest(log, topic, ends[topic.name])
    return _LogState(ends=ends, positions=tuple(positions), newest=newest)


async def _position(log: Log, group: str, topic: AnyTopic) -> GroupPositions:
    async with asyncio.timeout(LOOK_UP_S):
        committed = await log.committed(group, topic.name)
        count = await log.partitions(topic.name)
    offsets = tuple(committed.get(number, NONE) for number in range(count))
    return GroupPositions(group=group, topic=topic.name, offsets=offsets)


def _contents(topic: AnyTopic, state: _LogState, config: Mapping[str, str]) -> TopicContents:
    ends = state.ends[topic.name]
    kept = {name: config.get(name, value) for name, value in topic.config().items()}
    return TopicContents(name=topic.name, partitions=len(ends), config=kept, ends=ends)


async def _records(
    log: Log, topic: AnyTopic, cut: Cut, state: _LogState, on_progress: OnProgress
) -> AsyncIterator[Record]:
    """Yield a topic's records that belong to the cut; of a compacted topic the newest per key."""
    if topic in KEPT_IN_MEMORY:
        for record in state.newest[topic.name]:
            if cut.holds(topic, record):
                yield record
        return
    if topic is topics.PLAYBOOKS:
        async for record in _snapshots(log, cut, state):
            yield record
        return
    total, read = sum(state.ends[topic.name]), 0
    for number, end in enumerate(state.ends[topic.name]):
        async for record in log.read(TopicPartition(topic=topic.name, partition=number), 0, end):
            if cut.holds(topic, record):
                yield record
            if record.offset % SHOWN_EVERY == 0:
                on_progress(topic.name, read + record.offset, total)
        read += end
    on_progress(topic.name, total, total)


async def _newest(log: Log, topic: AnyTopic, ends: tuple[int, ...]) -> list[Record]:
    newest: dict[bytes | None, Record] = {}
    for number, end in enumerate(ends):
        async for record in log.read(TopicPartition(topic=topic.name, partition=number), 0, end):
            newest[record.key] = record
    kept = (record for record in newest.values() if record.value is not None)
    return sorted(kept, key=lambda record: (record.partition, record.offset))


async def _snapshots(log: Log, cut: Cut, state: _LogState) -> AsyncIterator[Record]:
    """Yield one snapshot of each playbook: of the newest version in the cut.

    Its record may have been compacted away for a version beyond the cut, so it is made again from ``history``.
    """
    for number, end in enumerate(state.ends[topics.PLAYBOOKS.name]):
        source = TopicPartition(topic=topics.PLAYBOOKS.name, partition=number)
        latest: dict[str, int] = {}
        async for record in log.read(source, 0, end):
            if (name := _snapshot_of(record)) and cut.holds(topics.PLAYBOOKS, record):
                latest[name] = record.offset
        offsets, there = frozenset(latest.values()), set[str]()
        async for record in log.read(source, min(offsets, default=end), end):
            if record.offset in offsets:
                there.add(_snapshot_of(record))
                yield record
        missing = (
            (name, newest.offset)
            for name, newest in sorted(cut.newest.items())
            if name not in there and newest.offset >= 0 and cut.home(topics.PLAYBOOKS, name) == number
        )
        for beyond, (_, offset) in enumerate(missing):
            record = await _remade(log, number, offset)
            yield replace(record, offset=end + beyond)


def _snapshot_of(record: Record) -> str:
    """Return the playbook of a snapshot in ``playbooks``; empty if the record is no snapshot."""
    try:
        return topics.PLAYBOOKS.read_own(record).name if record.value is not None else ""
    except CodecError:
        return ""


async def _remade(log: Log, partition: int, offset: int) -> Record:
    """Return the snapshot, as publish writes it, of the version at an offset of ``history``."""
    source = TopicPartition(topic=topics.HISTORY.name, partition=partition)
    record = (await log.read_at(source, [offset])).get(offset)
    if record is None:
        raise TransientError(f"history[{partition}]@{offset} expired while it was being archived")
    version = topics.HISTORY.read(record).model_copy(update={"history_offset": offset})
    snapshot = topics.PLAYBOOKS.record(version)
    return replace(record, topic=snapshot.topic, key=snapshot.key, value=snapshot.value)
