"""The audit: read the topics in an order that a running system cannot upset, and let the ledger judge."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from combee.adapters.ports import Log, Record, TopicPartition, TransientError
from combee.core.log.ledger import (
    NOTHING,
    Checkpoint,
    CheckpointError,
    Evidence,
    Ledger,
    LedgerReport,
    checkpoint,
)
from combee.core.names.identity import claimed_identities, fingerprint
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.codec import CodecError
from combee_schemas.records import PROOF_HEADER, header
from combee_schemas.topics import AnyTopic, Topic, key_of

JUDGED = (
    topics.DECISIONS,
    topics.HISTORY,
    topics.UPDATES,
    topics.BATCHES,
    topics.DEAD_LETTERS,
    topics.REFLECTIONS,
    topics.TRACES,
    topics.COMMANDS,
)
"""Effects before causes: with ends looked up in this order, no effect lacks its cause."""

AGAIN_S = 1.0
"""Seconds to wait before a second reading, by when a transaction's markers have reached all partitions."""

STALL_S = 30.0
"""Seconds without a record after which reading a topic fails as transient."""
NEAR = 2_000
"""Number of records up to which reading over a gap is cheaper than opening another reader."""
TOLD_EVERY = 250
OnProgress = Callable[[str, int, int], None]
Take = Callable[[Record], None]
M = TypeVar("M", bound=Message)


def _silent(_topic: str, _read: int, _total: int) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The result of a reading, and the checkpoint for the next one."""

    report: LedgerReport
    checkpoint: Checkpoint | None
    """None: a guarantee was broken, and the earlier checkpoint stays."""
    remark: str = ""
    """Why everything was read in spite of a checkpoint."""


async def audit(log: Log, on_progress: OnProgress = _silent) -> LedgerReport:
    """Return what the topics prove; violations are read a second time before they are reported.

    ``on_progress`` is called with a topic, the number of its records read, and about how many there are.
    """
    return (await account(log, on_progress=on_progress)).report


async def account(
    log: Log, before: Checkpoint | None = None, *, now_ms: int = 0, on_progress: OnProgress = _silent
) -> Account:
    """Read on from a checkpoint, or read everything if there is none or it does not suffice.

    Violations are thus always reported after a full reading; a checkpoint can only hide them from readings that begin
    with it.
    """
    remark = ""
    if before is not None:
        try:
            read = await _twice(log, before, on_progress)
        except CheckpointError as error:
            remark = str(error)
        else:
            if read.ledger.behind:
                remark = read.ledger.behind[0]
            elif read.report.good:
                return read.account(now_ms)
            else:
                remark = "something is wrong"
    read = await _twice(log, NOTHING, on_progress)
    return replace(read.account(now_ms), remark=remark)


async def _twice(log: Log, before: Checkpoint, on_progress: OnProgress) -> "_Read":
    read = await _read(log, before, on_progress)
    if read.report.good or read.ledger.behind:
        return read
    await asyncio.sleep(AGAIN_S)
    return await _read(log, before, on_progress)


@dataclass(slots=True, kw_only=True)
class _Read:
    """One reading of all topics."""

    ledger: Ledger
    report: LedgerReport
    ends: dict[str, Mapping[int, int]]
    last: dict[str, dict[int, Record]]

    def account(self, now_ms: int) -> Account:
        kept = (
            checkpoint(self.ledger, read=self.ends, last=self.last, now_ms=now_ms)
            if self.report.good
            else None
        )
        return Account(report=self.report, checkpoint=kept)


async def _read(log: Log, before: Checkpoint, on_progress: OnProgress) -> _Read:
    beginnings = {topic.name: await log.beginnings(topic.name) for topic in JUDGED}
    committed = await log.committed("shuffle", topics.REFLECTIONS.name)
    reflected = await log.committed("reflect", topics.TRACES.name)
    settled = await log.ends(topics.HISTORY.name)
    ledger = Ledger(
        beginnings=beginnings, committed=committed, reflected=reflected, settled=settled, checkpoint=before
    )
    feed = _Feed(log, before, on_progress)
    await feed.topic(
        topics.PLAYBOOKS,
        _snapshots(ledger),
        await log.beginnings(topics.PLAYBOOKS.name),
        await log.ends(topics.PLAYBOOKS.name),
    )
    await feed.topic(
        topics.LABELS,
        _each(topics.LABELS, lambda r, label: ledger.decisions.label(_place(r), label)),
        await log.beginnings(topics.LABELS.name),
        await log.ends(topics.LABELS.name),
    )
    ends = {topic.name: await log.ends(topic.name) for topic in JUDGED}
    takes: tuple[tuple[AnyTopic, Take], ...] = (
        (
            topics.DECISIONS,
            _each(topics.DECISIONS, lambda r, decision: ledger.decisions.add(_place(r), decision)),
        ),
        (topics.DEAD_LETTERS, _dead_letters(ledger)),
        (topics.BATCHES, _each(topics.BATCHES, lambda r, batch: ledger.batch(r.partition, r.offset, batch))),
        (
            topics.HISTORY,
            _each(topics.HISTORY, lambda r, version: ledger.version(r.partition, r.offset, version)),
        ),
        (
            topics.UPDATES,
            _each(topics.UPDATES, lambda r, update: ledger.update(r.partition, r.offset, update)),
        ),
        (topics.REFLECTIONS, _reflections(ledger)),
        (topics.TRACES, _traces(ledger)),
        (
            topics.COMMANDS,
            _each(topics.COMMANDS, lambda r, command: ledger.command(r.partition, r.offset, command)),
        ),
    )
    for topic, take in takes:
        await feed.topic(topic, take, beginnings[topic.name], ends[topic.name])
    await _erasures(log, ledger)
    return _Read(ledger=ledger, report=ledger.report(), ends=feed.ends, last=feed.last)


async def _erasures(log: Log, ledger: Ledger) -> None:
    """Read the records of erasures: a few, read completely each time."""
    async with aclosing(log.read(TopicPartition(topic=topics.ERASURES.name, partition=0), 0)) as records:
        async for record in records:
            if (erasure := topics.ERASURES.read_or_none(record)) is not None:
                ledger.erasure(erasure)


class _Feed:
    """Reads topics, each partition in order: a checkpoint's open records, and the records after it."""

    def __init__(self, log: Log, before: Checkpoint, on_progress: OnProgress) -> None:
        self._log = log
        self._before = before
        self._on_progress = on_progress
        self._open = {
            (topic, partition): frozenset(offsets)
            for topic, partitions in before.open.items()
            for partition, offsets in partitions.items()
        }
        self.ends: dict[str, Mapping[int, int]] = {}
        self.last: dict[str, dict[int, Record]] = {}

    async def topic(
        self, topic: AnyTopic, take: Take, beginnings: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        """Read one topic up to these ends.

        Raises
        ------
        CheckpointError
            If the checkpoint is from another log, or unread records expired.
        """
        name = topic.name
        self.ends[name], self.last[name] = ends, {}
        is_compacted = topic.cleanup == "compact"
        if not is_compacted:
            self._check_ends(name, beginnings, ends)
        known = {} if is_compacted else self._evidence(name, beginnings)
        starts = {p: self._start(name, p, known.get(p)) for p in ends}
        async for record in self._far(name, starts):
            take(record)
        if any(starts[p] < end for p, end in ends.items()):
            await self._onward(name, take, starts, ends, known)
        for partition, evidence in known.items():
            raise CheckpointError(_foreign(name, partition, evidence.offset))

    def _check_ends(self, topic: str, beginnings: Mapping[int, int], ends: Mapping[int, int]) -> None:
        for partition, upto in self._before.next.get(topic, {}).items():
            if ends.get(partition, -1) < upto:
                raise CheckpointError(f"{topic}[{partition}] ends before offset {upto}, which had been read")
            if beginnings.get(partition, 0) > upto:
                raise CheckpointError(f"records of {topic}[{partition}] expired before they were read")

    def _next(self, topic: str, partition: int) -> int:
        return self._before.next.get(topic, {}).get(partition, 0)

    def _evidence(self, topic: str, beginnings: Mapping[int, int]) -> dict[int, Evidence]:
        """Return the evidence that must still be in the log; expired records prove nothing."""
        last = self._before.last.get(topic, {})
        return {p: evidence for p, evidence in last.items() if evidence.offset >= beginnings.get(p, 0)}

    def _start(self, topic: str, partition: int, evidence: Evidence | None) -> int:
        """Return where reading continues: at the last record read, or at open ones shortly before it."""
        upto = self._next(topic, partition)
        start = upto if evidence is None else evidence.offset
        near = (at for at in self._open.get((topic, partition), ()) if at >= upto - NEAR)
        return min(start, *near, upto)

    async def _far(self, topic: str, starts: Mapping[int, int]) -> AsyncGenerator[Record, None]:
        """Yield open records long before the others."""
        for partition, start in starts.items():
            source = TopicPartition(topic=topic, partition=partition)
            far = sorted(at for at in self._open.get((topic, partition), ()) if at < start)
            for run in _runs(far):
                records = await self._log.read_at(source, run)
                for offset in sorted(records):
                    yield records[offset]

    async def _onward(
        self,
        topic: str,
        take: Take,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        known: dict[int, Evidence],
    ) -> None:
        """Read on; records that the evidence names are removed from ``known``."""
        total, read = sum(ends.values()) - sum(starts.values()), 0
        async for record in _followed(self._log, topic, starts):
            partition, offset = record.partition, record.offset
            is_known = partition in known and offset == known[partition].offset
            if is_known and Evidence.of(record) != known.pop(partition):
                raise CheckpointError(_foreign(topic, partition, offset))
            if self._next(topic, partition) <= offset < ends[partition]:
                self.last[topic][partition] = record
                take(record)
            elif offset in self._open.get((topic, partition), ()):
                take(record)
            read += 1
            if read % TOLD_EVERY == 0:
                self._on_progress(topic, read, total)


def _foreign(topic: str, partition: int, offset: int) -> str:
    return f"{topic}[{partition}]@{offset} is not the record that was read: the checkpoint belongs to another log"


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Yield offsets in groups for one reader each."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > NEAR:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


async def _followed(log: Log, topic: str, starts: Mapping[int, int]) -> AsyncGenerator[Record, None]:
    """Yield a topic's records from these offsets on, all partitions through one reader."""
    async with aclosing(log.follow(topic, starts)) as changes:
        while True:
            try:
                async with asyncio.timeout(STALL_S):
                    records = await anext(changes)
            except TimeoutError as error:
                raise TransientError(f"{topic} could not be read on for {STALL_S:.0f} s") from error
            if records is None:
                return
            for record in records:
                yield record


def _place(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.offset}"


def _each(topic: Topic[M], take: Callable[[Record, M], None]) -> Take:
    """Pass on readable records; others are not Combee's, and a missing record shows as a gap."""

    def take_readable(record: Record) -> None:
        message = topic.read_or_none(record)
        if message is not None:
            take(record, message)

    return take_readable


def _dead_letters(ledger: Ledger) -> Take:
    letter = _each(topics.DEAD_LETTERS, lambda r, said: ledger.dead_letter(said, (r.partition, r.offset)))
    resolution = _each(topics.RESOLUTIONS, lambda r, said: ledger.resolution(said, (r.partition, r.offset)))

    def take_either(record: Record) -> None:
        letter(record)
        resolution(record)

    return take_either


def _snapshots(ledger: Ledger) -> Take:
    def take_snapshot(record: Record) -> None:
        if record.value is None:
            ledger.snapshot(record.partition, record.offset, key_of(record), None)
            return
        playbook = topics.PLAYBOOKS.read_or_none(record)
        if playbook is not None:
            ledger.snapshot(record.partition, record.offset, playbook.name, playbook)

    return take_snapshot


def _reflections(ledger: Ledger) -> Take:
    def take_reflection(record: Record) -> None:
        try:
            reflection = topics.REFLECTIONS.read(record)
        except CodecError as error:
            ledger.undecodable(record.partition, record.offset, str(error))
            return
        identities = claimed_identities(reflection.reflection_id, reflection.source, record.headers)
        ledger.reflection(
            record.partition,
            record.offset,
            reflection.playbook,
            identities[0],
            fingerprint(reflection),
            identities,
        )

    return take_reflection


def _traces(ledger: Ledger) -> Take:
    def take_trace(record: Record) -> None:
        try:
            trace = topics.TRACES.read(record)
        except CodecError as error:
            ledger.undecodable(record.partition, record.offset, str(error), record.topic)
            return
        signed = header(record.headers, PROOF_HEADER) is not None
        ledger.trace(record.partition, record.offset, trace, signed=signed)

    return take_trace
