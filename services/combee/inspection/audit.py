"""The audit: read the topics in an order that a running system cannot upset, and let the ledger judge."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from combee.core.identity import fingerprint, known_ids
from combee.core.ledger import Ledger, LedgerReport
from combee.ports import CombeeError, Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.codec import CodecError
from combee_schemas.topics import AnyTopic, Topic, key_of

JUDGED = (
    topics.HISTORY,
    topics.UPDATES,
    topics.BATCHES,
    topics.DEAD_LETTERS,
    topics.REFLECTIONS,
    topics.TRACES,
    topics.COMMANDS,
)
"""Effects before causes: ends looked up in this order never show an effect without its cause."""

AGAIN_S = 1.0
"""A transaction's markers reach its partitions one after the other; by then they have."""

TOLD_EVERY = 250
OnProgress = Callable[[str, int, int], None]
Take = Callable[[Record], None]
M = TypeVar("M", bound=Message)


def _silent(_topic: str, _read: int, _total: int) -> None:
    return


async def audit(log: Log, on_progress: OnProgress = _silent) -> LedgerReport:
    """Return what the topics prove; what looks wrong at first is read a second time before it is told.

    ``on_progress`` gets a topic, how many of its records have been read, and about how many there are.
    """
    report = await _read(log, on_progress)
    if report.good:
        return report
    await asyncio.sleep(AGAIN_S)
    return await _read(log, on_progress)


async def _read(log: Log, on_progress: OnProgress) -> LedgerReport:
    beginnings = {topic.name: await log.beginnings(topic.name) for topic in JUDGED}
    committed = await log.committed("shuffle", topics.REFLECTIONS.name)
    reflected = await log.committed("reflect", topics.TRACES.name)
    settled = await log.ends(topics.HISTORY.name)
    ledger = Ledger(beginnings=beginnings, committed=committed, reflected=reflected, settled=settled)
    await _feed(log, topics.PLAYBOOKS, _snapshots(ledger), on_progress)
    ends = {topic.name: await log.ends(topic.name) for topic in JUDGED}
    takes: tuple[tuple[AnyTopic, Take], ...] = (
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
        await _feed(log, topic, take, on_progress, ends[topic.name])
    return ledger.report()


async def _feed(
    log: Log, topic: AnyTopic, take: Take, on_progress: OnProgress, ends: Mapping[int, int] | None = None
) -> None:
    """Read a topic's partitions at once, each in order."""
    ends = await log.ends(topic.name) if ends is None else ends
    total = sum(ends.values()) - sum((await log.beginnings(topic.name)).values())
    read = 0

    async def read_partition(partition: int, end: int) -> None:
        nonlocal read
        async for record in log.read(TopicPartition(topic=topic.name, partition=partition), 0, end):
            take(record)
            read += 1
            if read % TOLD_EVERY == 0:
                on_progress(topic.name, read, total)

    try:
        async with asyncio.TaskGroup() as group:
            for partition, end in ends.items():
                group.create_task(read_partition(partition, end))
    except* CombeeError as failed:
        raise failed.exceptions[0] from failed


def _each(topic: Topic[M], take: Callable[[Record, M], None]) -> Take:
    """Pass on what can be read; the rest was never ours, and a gap where something was shows by itself."""

    def take_readable(record: Record) -> None:
        message = topic.read_or_none(record)
        if message is not None:
            take(record, message)

    return take_readable


def _dead_letters(ledger: Ledger) -> Take:
    letter = _each(topics.DEAD_LETTERS, lambda _, message: ledger.dead_letter(message))
    resolution = _each(topics.RESOLUTIONS, lambda _, message: ledger.resolution(message))

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
        ledger.reflection(
            record.partition,
            record.offset,
            reflection.playbook,
            reflection.reflection_id,
            fingerprint(reflection),
            known_ids(reflection),
        )

    return take_reflection


def _traces(ledger: Ledger) -> Take:
    def take_trace(record: Record) -> None:
        try:
            trace = topics.TRACES.read(record)
        except CodecError as error:
            ledger.undecodable(record.partition, record.offset, str(error), record.topic)
            return
        ledger.trace(record.partition, record.offset, trace)

    return take_trace
