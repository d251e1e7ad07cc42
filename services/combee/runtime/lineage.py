"""From an entry back to the runs that taught it: versions, reflections, traces; read from the topics.

``await lineage(log, playbook, entry_id, traces=True, on_progress=told)`` reads it all, on demand and without a
consumer group: the playbook's partitions of ``history`` and ``batches``, the very records of ``reflections``, and of
``traces`` the partitions that hold the wanted keys. ``combee why`` and the dashboard show the same answer.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from combee.ports import FatalError, Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError, decode
from combee_schemas.playbook import Change, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import Topic
from combee_schemas.trace import Trace

TOLD_EVERY = 250
M = TypeVar("M", bound=Message)
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A reflection that an entry rests on; ``reflection`` None: it is no longer in the log."""

    reflection_id: str
    sequence: int | None
    """Of its batch."""
    reflection: Reflection | None
    trace: Trace | None


@dataclass(slots=True, kw_only=True)
class Lineage:
    """Where one entry comes from."""

    playbook: str
    version: int
    """The newest version that has the entry."""
    entry: Entry
    is_live: bool = True
    changes: list[tuple[Playbook, Change]] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)


async def lineage(log: Log, name: str, entry_id: str, *, traces: bool, on_progress: OnProgress) -> Lineage:
    """Return everything the log says about an entry, evidence in the order in which it came.

    Raises
    ------
    FatalError
        If the playbook never had such an entry.
    """
    found, evidence, is_live = None, dict[str, None](), False
    changes: list[tuple[Playbook, Change]] = []
    async for version in messages(log, topics.HISTORY, Playbook, name):
        entry = next((one for one in version.entries if one.id == entry_id), None)
        is_live = entry is not None
        if entry is not None:
            found = Lineage(playbook=name, version=version.version, entry=entry)
            evidence |= dict.fromkeys(entry.evidence)
        changes += [(version, change) for change in version.changes if change.entry_id == entry_id]
    if found is None:
        raise FatalError(f"{name} has and had no entry {entry_id}; 'combee playbook show {name}' lists them")
    found.is_live, found.changes = is_live, changes
    found.sources = await _sources(log, name, evidence, traces=traces, on_progress=on_progress)
    return found


async def _sources(
    log: Log, name: str, ids: Collection[str], *, traces: bool, on_progress: OnProgress
) -> list[Source]:
    places = await _places(log, name, ids)
    number = await log.partition_for(topics.REFLECTIONS.name, name.encode())
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=number)
    records = await log.read_at(source, sorted(offset for offset, _ in places.values()))
    reflections = {one.reflection_id: one for one in readable(records.values(), Reflection, name)}
    wanted = {one.trace_id for one in reflections.values() if one.trace_id}
    told = await _traces(log, wanted, on_progress) if traces else {}
    return [
        Source(
            reflection_id=one,
            sequence=places[one][1] if one in places else None,
            reflection=(reflection := reflections.get(one)),
            trace=told.get(reflection.trace_id or "") if reflection else None,
        )
        for one in ids
    ]


async def _places(log: Log, name: str, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return where reflections stand and in which batch they are: the manifests say it."""
    found: dict[str, tuple[int, int]] = {}
    async for batch in messages(log, topics.BATCHES, Batch, name):
        here = (one for one in batch.members if one.reflection_id in ids)
        found |= {one.reflection_id: (one.offset, batch.sequence) for one in here}
    return found


async def _traces(log: Log, ids: Collection[str], on_progress: OnProgress) -> dict[str, Trace]:
    """Return traces by id; they are looked for only where their keys put them."""
    topic = topics.TRACES.name
    numbers = {await log.partition_for(topic, one.encode()) for one in ids}
    first, ends = await log.beginnings(topic), await log.ends(topic)
    total, read = sum(ends[one] - first[one] for one in numbers), 0
    found: dict[str, Trace] = {}
    for number in sorted(numbers):
        async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
            read += 1
            if read % TOLD_EVERY == 0:
                on_progress(topic, read, total)
            key = (record.key or b"").decode(errors="replace")
            if key in ids:
                found |= {one.trace_id: one for one in readable([record], Trace, key)}
    return found


async def messages(log: Log, topic: Topic, kind: type[M], name: str) -> AsyncIterator[M]:
    """Yield a playbook's messages in a topic that is keyed by playbook."""
    number = await log.partition_for(topic.name, name.encode())
    async for record in log.read(TopicPartition(topic=topic.name, partition=number), 0):
        for message in readable([record], kind, name):
            yield message


def readable(records: Iterable[Record], kind: type[M], key: str) -> Iterator[M]:
    """Yield the messages under a key; what cannot be read is passed over."""
    for record in records:
        if record.key == key.encode():
            with suppress(CodecError):
                yield decode(record.value, kind)
