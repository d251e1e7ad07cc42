"""Dead letters and the decisions about them, read from their topic."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from combee.adapters.ports import Clock, Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.dead_letter import DeadLetter, HeldBack, LetterId, Resolution

TOPIC = topics.DEAD_LETTERS.name
OnRead = Callable[[int, int], None]

RECENT_MS = 3_600_000
"""Maximum milliseconds for which a playbook is held back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A record of ``dead-letters`` that is not a decision; ``letter`` is None if it is unreadable."""

    id: LetterId
    record: Record
    letter: DeadLetter | None

    @property
    def as_read(self) -> DeadLetter:
        """The letter; of an unreadable one, what its record says."""
        record = self.record
        return self.letter or DeadLetter(
            origin_topic=record.topic,
            origin_partition=record.partition,
            origin_offset=record.offset,
            service="",
            reason="this dead letter itself cannot be read",
            value=record.value,
            size=len(record.value or b""),
            at_ms=record.timestamp_ms,
        )


def stored_letter(record: Record) -> StoredLetter | None:
    """Return the dead letter, readable or not, in a record of ``dead-letters``; None if it is something else."""
    identity = LetterId(partition=record.partition, offset=record.offset)
    letter = topics.DEAD_LETTERS.read_or_none(record)
    if letter is None and (topics.RESOLUTIONS.read_or_none(record) or topics.HELD_BACK.read_or_none(record)):
        return None
    return StoredLetter(id=identity, record=record, letter=letter)


async def resolutions(log: Log) -> dict[LetterId, Resolution]:
    """Return every decision, by its dead letter; the first one counts."""
    decisions: dict[LetterId, Resolution] = {}
    async for record in _records(log, lambda _read, _total: None):
        resolution = topics.RESOLUTIONS.read_or_none(record)
        if resolution is not None:
            decisions.setdefault(resolution.letter, resolution)
    return decisions


async def letters(log: Log, on_read: OnRead) -> AsyncIterator[StoredLetter]:
    """Yield all dead letters, oldest first; ``on_read`` gets the number of records read and about the total."""
    async for record in _records(log, on_read):
        letter = stored_letter(record)
        if letter is not None:
            yield letter


async def recent_letters(log: Log, since_ms: int, most: int) -> tuple[int, list[StoredLetter]]:
    """Return the number of records in the topic, and the open dead letters since a time.

    Only the last ``most`` records of each partition are read: there may be a flood of them.
    """
    beginnings, ends = await log.beginnings(TOPIC), await log.ends(TOPIC)
    starts = await log.offsets_at(TOPIC, since_ms)
    open_letters: dict[LetterId, StoredLetter] = {}
    for partition, end in ends.items():
        source = TopicPartition(topic=TOPIC, partition=partition)
        async for record in log.read(source, max(starts[partition], end - most), end):
            if (resolution := topics.RESOLUTIONS.read_or_none(record)) is not None:
                open_letters.pop(resolution.letter, None)
            elif (letter := stored_letter(record)) is not None:
                open_letters[letter.id] = letter
    return sum(ends.values()) - sum(beginnings.values()), list(open_letters.values())


async def _records(log: Log, on_read: OnRead) -> AsyncIterator[Record]:
    ends, read = await log.ends(TOPIC), 0
    total = sum(ends.values()) - sum((await log.beginnings(TOPIC)).values())
    for partition, end in ends.items():
        async for record in log.read(TopicPartition(topic=TOPIC, partition=partition), 0, end):
            yield record
            read += 1
            on_read(read, total)


async def letters_at(log: Log, ids: Sequence[LetterId]) -> dict[LetterId, StoredLetter]:
    """Return the existing dead letters among these ids."""
    letters: dict[LetterId, StoredLetter] = {}
    for partition in range(await log.partitions(TOPIC)):
        offsets = [identity.offset for identity in ids if identity.partition == partition]
        records = await log.read_at(TopicPartition(topic=TOPIC, partition=partition), offsets)
        letters |= {
            letter.id: letter for letter in map(stored_letter, records.values()) if letter is not None
        }
    return letters


async def held_back(log: Log, clock: Clock) -> list[HeldBack]:
    """Return the playbooks that services recently reported as held back."""
    now_ms = clock.now_ms()
    latest: dict[tuple[str, str], HeldBack] = {}
    for partition, start in (await log.offsets_at(TOPIC, now_ms - RECENT_MS)).items():
        async for record in log.read(TopicPartition(topic=TOPIC, partition=partition), start):
            pause = topics.HELD_BACK.read_or_none(record)
            if pause is not None:
                latest[pause.service, pause.playbook] = pause
    return [pause for _, pause in sorted(latest.items()) if pause.until_ms > now_ms]
