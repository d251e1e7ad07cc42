"""Reading an archive back into an empty prefix; a killed restore can be continued.

All places are known before the first record is written (``core/log/archive/places.py``). So the end of a partition
shows the progress of a killed restore, and a record at any other place shows that somebody else writes. While the
topic ``restoring`` exists no service starts. The committed offsets come last.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from combee.adapters.ports import Clock, FatalError, Log, Outgoing, Record, TopicPartition
from combee.core.log.archive import cut
from combee.core.log.archive.places import BEFORE_FIRST, Places
from combee.core.log.archive.translation import NAMED, Translator
from combee.core.log.layout import Wanted
from combee.log.archive.file import ArchiveReader
from combee.log.inspection.lag import INPUTS
from combee_schemas import topics
from combee_schemas.archive import ArchiveError, ArchiveHeader, Restoring
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError
from combee_schemas.topics import (
    BROKERS_TIME,
    BY_NAME,
    FORMAT_MARK,
    PRODUCERS_TIME,
    RESTORING,
    TOPICS,
    AnyTopic,
)

OnProgress = Callable[[str, int, int], None]
BeforeOpen = Callable[[], Awaitable[None]]
Tell = Callable[[str], None]
WRITE_S = 120.0
EXPIRED_S = 5.0
"""Maximum seconds after the end of a member's session until a broker reports that it is gone."""
LOOK_AGAIN_S = 0.2
WRITTEN_AT_ONCE = 200
BYTES_AT_ONCE = 4 * 1024 * 1024
SHOWN_EVERY = 250
TRANSACTOR = "restore"


class Topics(Protocol):
    """Administration of the target prefix."""

    async def names(self) -> Collection[str]:
        """Return the existing topics."""

    async def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it was there already."""

    async def wait_created(self, topics: Mapping[str, int]) -> None:
        """Wait until all partitions of these topics can be written."""

    async def configure(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Set configuration of topics; other values stay."""

    async def delete(self, topic: str) -> None:
        """Delete a topic, if there is one, and wait until it is gone."""

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records of partitions below these offsets, as retention would."""

    async def members(self, group: str) -> int:
        """Return how many members a group has now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The content of an archive, read once from beginning to end and found whole."""

    header: ArchiveHeader
    records: Mapping[str, int]
    playbooks: Mapping[str, int]
    """The newest version of each."""
    batches_in_flight: int
    sha256: str
    places: Places
    in_flight: Mapping[int, Sequence[int]]
    """New offsets of manifests without a version, by new partition, sorted."""


def read_contents(
    path: Path, want: Sequence[Wanted] = (), on_progress: OnProgress = lambda *_: None
) -> Contents:
    """Read an archive once and check all of it; ``want``: the numbers of partitions to restore into.

    Raises
    ------
    ArchiveError
        If it is not an archive, is incomplete, or was altered.
    ConfigurationError
        If another release wrote it.
    """
    with ArchiveReader(path) as archive:
        header = archive.header
        _check_known(header, path)
        counts = {wanted.topic.name: wanted.partitions for wanted in want}
        counts = counts or {topic.name: topic.partitions for topic in header.topics}
        places = Places(header, counts)
        versions: dict[str, tuple[int, int]] = {}
        manifests: list[tuple[str, int, Record]] = []
        for number, record in enumerate(archive.records()):
            topic = BY_NAME[record.topic]
            needed = places.needs_reading(topic) or topic in (topics.PLAYBOOKS, topics.BATCHES)
            message = cut.read(topic, record) if needed else None
            places.add(record, places.target(topic, record, message))
            if topic is topics.PLAYBOOKS and (snapshot := topics.PLAYBOOKS.read_or_none(record)):
                versions[snapshot.name] = (snapshot.version, snapshot.batch_sequence)
            if isinstance(message, Batch):
                name, sequence = message.plan.playbook, message.plan.sequence
                if sequence > versions.get(name, (0, 0))[1]:
                    manifests.append((name, sequence, _place_only(record)))
            if number % SHOWN_EVERY == 0:
                on_progress("checking", number, number)
        assert archive.totals is not None  # noqa: S101 - it is known once all records have been read
        names = [topic.name for topic in header.topics]
        firsts = dict(zip(names, archive.totals.firsts, strict=True))
        places.settle({name: first for name, first in firsts.items() if BY_NAME[name].cleanup == "delete"})
        return Contents(
            header=header,
            records=dict(zip(names, archive.totals.records, strict=True)),
            playbooks={name: version for name, (version, _) in sorted(versions.items())},
            batches_in_flight=len(manifests),
            sha256=archive.sha256,
            places=places,
            in_flight=_in_flight(places, manifests),
        )


def _check_known(header: ArchiveHeader, path: Path) -> None:
    known = {kind.type: kind.version_number for topic in TOPICS for kind in (topic.message, *topic.beside)}
    newer = [
        f"{kind} of version {version}"
        for kind, version in header.messages.items()
        if version > known.get(kind, 0)
    ]
    newer += [f"the topic {topic.name}" for topic in header.topics if topic.name not in BY_NAME]
    if newer:
        raise ArchiveError(
            f"{path} was written by Combee {header.written_by}, which has {', '.join(newer)}: upgrade this"
            f" installation"
        )
    foreign = sorted(
        f"{name} of {topic.name}"
        for topic in header.topics
        for name in topic.config.keys() - BY_NAME[topic.name].config().keys()
    )
    if foreign:
        raise ArchiveError(
            f"{path} sets {', '.join(foreign)}, which this version does not set: it is not an archive of"
            f" Combee, or a newer version wrote it"
        )
    missing = {topic.name for topic in NAMED} - {topic.name for topic in header.topics}
    if missing:
        raise ArchiveError(
            f"{path} lacks the topics {', '.join(sorted(missing))}: Combee writes no archive without them"
        )


def _place_only(record: Record) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=None,
        value=None,
    )


def _in_flight(places: Places, manifests: Sequence[tuple[str, int, Record]]) -> Mapping[int, Sequence[int]]:
    by_partition: dict[int, list[int]] = {}
    for _, _, record in manifests:
        place = places.exact(record.topic, record.partition, record.offset)
        if place is not None:
            by_partition.setdefault(place[0], []).append(place[1])
    return {partition: sorted(offsets) for partition, offsets in by_partition.items()}


async def _nothing() -> None:
    return


async def restore(
    log: Log,
    admin: Topics,
    path: Path,
    want: Sequence[Wanted],
    *,
    prefix: str,
    replication: int,
    clock: Clock,
    on_progress: OnProgress = lambda *_: None,
    erased_from: str = "",
    before_open: BeforeOpen = _nothing,
    session_s: float = 0.0,
    tell: Tell = lambda _: None,
) -> Contents:
    """Read an archive into an empty prefix, or continue a restore.

    ``before_open`` runs when all records are written and services may not start yet; ``erased_from`` is written into
    the mark.
    For ``session_s`` and ``tell`` see ``refuse_members``.

    Raises
    ------
    FatalError
        If the archive is not whole, the prefix not empty, or somebody else writes to it; the message has the remedy.
    """
    contents = read_contents(path, want, on_progress)
    await refuse_members(admin, prefix, session_s, tell)
    mark = Restoring(
        archive=contents.sha256,
        later_ms=max(0, clock.now_ms() - contents.header.cut_at_ms),
        erased_from=erased_from,
    )
    restoring = await _begin(log, admin, contents, want, mark, prefix=prefix, replication=replication)
    work = _Restore(log, path, contents, restoring, prefix=prefix, clock=clock, on_progress=on_progress)
    await work.write()
    await _commit(log, admin, contents.places)
    await admin.configure(dict.fromkeys(_open(want), BROKERS_TIME))
    await before_open()
    await admin.delete(RESTORING.name)
    return contents


async def refuse_members(
    admin: Topics, prefix: str, session_s: float = 0.0, tell: Tell = lambda _: None
) -> None:
    """Refuse to continue while services run.

    A stopped service with a slot stays a member of its group until its session of ``session_s`` ends; a starting
    broker restarts all sessions. This function waits for that and calls ``tell``.
    """
    loop = asyncio.get_running_loop()
    wait_s = session_s + EXPIRED_S if session_s else 0.0
    end, is_told = loop.time() + wait_s, False
    while running := [group for group in INPUTS if await admin.members(group)]:
        if loop.time() < end:
            if not is_told:
                tell(
                    f"waiting up to {wait_s:.0f} s until Kafka forgets the services that ran under {prefix}"
                    f" ({', '.join(running)})"
                )
                is_told = True
            await asyncio.sleep(LOOK_AGAIN_S)
            continue
        raise FatalError(
            f"services run under {prefix} ({', '.join(running)}): stop them, and start them after the restore"
            f" (Kafka forgets a stopped service when its session ends)"
        )


async def _begin(
    log: Log,
    admin: Topics,
    contents: Contents,
    want: Sequence[Wanted],
    new: Restoring,
    *,
    prefix: str,
    replication: int,
) -> Restoring:
    """Mark the prefix, create its topics, and return the mark; an existing mark must be for this archive."""
    there = await admin.names()
    mark = await marked(log, admin)
    if mark is not None and mark.archive != contents.sha256:
        raise FatalError(
            f"another archive (SHA-256 {mark.archive[:12]}…) has been read into {prefix} in part: continue"
            f" with that archive, or choose another prefix (--to)"
        )
    if mark is None:
        await _refuse_filled(log, [wanted for wanted in want if wanted.topic.name in there], prefix)
        await admin.create(RESTORING.name, 1, replication, RESTORING.config())
        await admin.wait_created({RESTORING.name: 1})
        await log.produce(RESTORING.record(new))
        mark = await marked(log, admin)
        assert mark is not None  # noqa: S101 - it has just been written
    await admin.create(FORMAT_MARK, 1, replication, {})
    configs = {topic.name: topic.config for topic in contents.header.topics}
    for wanted in want:
        config = wanted.topic.config() | configs.get(wanted.topic.name, {})
        if not await admin.create(wanted.topic.name, wanted.partitions, replication, config):
            await _refuse_other_count(log, wanted, prefix)
    await admin.wait_created({wanted.topic.name: wanted.partitions for wanted in want})
    # Records keep their times while only the restore writes.
    await admin.configure(dict.fromkeys(_open(want), PRODUCERS_TIME))
    return mark


def _open(want: Sequence[Wanted]) -> list[str]:
    return [wanted.topic.name for wanted in want if wanted.topic.is_open]


async def marked(log: Log, admin: Topics) -> Restoring | None:
    """Return the mark under which no service starts; None: there is none."""
    if RESTORING.name not in await admin.names():
        return None
    async with aclosing(log.read(TopicPartition(topic=RESTORING.name, partition=0), 0)) as records:
        async for record in records:
            return RESTORING.read(record)
    return None


async def _refuse_other_count(log: Log, wanted: Wanted, prefix: str) -> None:
    count = await log.partitions(wanted.topic.name)
    if count != wanted.partitions:
        raise FatalError(
            f"{prefix}.{wanted.topic.name} exists with {count} partitions instead of {wanted.partitions}:"
            f" give that number (--partitions, --scan-partitions), or choose another prefix (--to)"
        )


async def _refuse_filled(log: Log, there: Sequence[Wanted], prefix: str) -> None:
    for wanted in there:
        name = wanted.topic.name
        await _refuse_other_count(log, wanted, prefix)
        if any((await log.settled(name)).values()):
            raise FatalError(
                f"{prefix} is not empty: {prefix}.{name} has records, or had some. Choose another prefix (--to)"
            )


class _Restore:
    """Writes the records of an archive, each partition in its fixed order, from its present end on."""

    def __init__(
        self,
        log: Log,
        path: Path,
        contents: Contents,
        restoring: Restoring,
        *,
        prefix: str,
        clock: Clock,
        on_progress: OnProgress,
    ) -> None:
        self._log = log
        self._path = path
        self._contents = contents
        self._places = contents.places
        self._prefix = prefix
        self._on_progress = on_progress
        self._translator = Translator(
            contents.places, contents.in_flight, later_ms=restoring.later_ms, now_ms=clock.now_ms()
        )
        self._next: dict[TopicPartition, int] = {}
        """The next offset of each partition; records before it have been written."""
        self._waiting: list[Outgoing] = []
        self._waiting_bytes = 0

    async def write(self) -> None:
        """Write all missing records."""
        there = await self._ends()
        self._next = dict.fromkeys(there, 0)
        for source in sorted(self._places.cut, key=str):
            await self._put(_before_first(source), there)
        total = sum(self._contents.records.values())
        for reading in range(self._places.readings):
            for done, outgoing in enumerate(self._read(reading)):
                await self._put(outgoing, there)
                if done % SHOWN_EVERY == 0:
                    self._on_progress("writing", done, total)
        await self._flush()
        if await self._ends() != self._places.totals():
            raise self._disturbed("it holds records that are not the archive's")

    async def _ends(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic=topic, partition=number): end
            for topic in sorted({source.topic for source in self._places.totals()})
            for number, end in (await self._log.settled(topic)).items()
        }

    def _read(self, reading: int) -> Iterator[Outgoing]:
        with ArchiveReader(self._path) as archive:
            for record in archive.records():
                topic = BY_NAME[record.topic]
                message = cut.read(topic, record) if self._places.needs_reading(topic) else None
                target = self._places.target(topic, record, message)
                if self._places.is_written_in(reading, record, target):
                    yield self._translated(topic, record, target)
            if archive.sha256 != self._contents.sha256:
                raise ArchiveError(f"{self._path} is another file by now: start again with one that stays")

    def _translated(self, topic: AnyTopic, record: Record, target: int) -> Outgoing:
        try:
            return self._translator.outgoing(topic, record, target)
        except CodecError as error:
            where = f"{record.topic}[{record.partition}]@{record.offset}"
            raise FatalError(f"{where} of the archive cannot be written: {error}") from error

    async def _put(self, outgoing: Outgoing, there: Mapping[TopicPartition, int]) -> None:
        """Write a record, in lots; a record that exists already is only compared."""
        source = _source(outgoing)
        at = self._next[source]
        self._next[source] += 1
        if at == there[source] - 1:
            await self._compare(source, at, outgoing)
        if at < there[source]:
            return
        self._waiting.append(outgoing)
        self._waiting_bytes += len(outgoing.value or b"")
        if len(self._waiting) >= WRITTEN_AT_ONCE or self._waiting_bytes >= BYTES_AT_ONCE:
            await self._flush()

    async def _compare(self, source: TopicPartition, at: int, outgoing: Outgoing) -> None:
        """Refuse to continue after a last record that is not the archive's."""
        record = (await self._log.read_at(source, [at])).get(at)
        if record is not None and (record.key, record.value) != (outgoing.key, outgoing.value):
            raise self._disturbed(f"{source.topic}[{source.partition}]@{at} is not the archive's record")

    async def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        async with asyncio.timeout(WRITE_S):
            offsets = await self._log.produce(*waiting)
        counts: dict[TopicPartition, int] = {}
        for outgoing, offset in reversed(list(zip(waiting, offsets, strict=True))):
            source = _source(outgoing)
            counts[source] = counts.get(source, 0) + 1
            if offset != self._next[source] - counts[source]:
                raise self._disturbed(f"a record was written at {source.topic}[{source.partition}]@{offset}")

    def _disturbed(self, what: str) -> FatalError:
        return FatalError(
            f"somebody else writes to {self._prefix} while it is restored ({what}): restore into another prefix"
            " (--to)"
        )


def _source(outgoing: Outgoing) -> TopicPartition:
    assert outgoing.partition is not None  # noqa: S101 - every restored record has one
    return TopicPartition(topic=outgoing.topic, partition=outgoing.partition)


def _before_first(source: TopicPartition) -> Outgoing:
    """Return a placeholder for expired records, which is deleted afterwards."""
    return Outgoing(topic=source.topic, partition=source.partition, key=None, value=b"")


async def _commit(log: Log, admin: Topics, places: Places) -> None:
    """Commit the groups' offsets, and delete the placeholders of expired records."""
    transactor = await log.transactor(TRANSACTOR)
    try:
        for group, offsets in places.positions().items():
            # aiokafka takes one group per transaction; nobody reads while the mark exists, so several are safe.
            async with asyncio.timeout(WRITE_S), transactor.transaction() as transaction:
                await transaction.commit_offsets(group, offsets)
    finally:
        await transactor.close()
    for topic in sorted({source.topic for source in places.cut}):
        cut_off = {source.partition: BEFORE_FIRST for source in places.cut if source.topic == topic}
        await admin.delete_before(topic, cut_off)
