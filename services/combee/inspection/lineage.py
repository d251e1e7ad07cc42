"""From an entry back to the runs that taught it: versions, reflections, traces; read from the topics.

``await lineage(log, playbook, entry_id, traces=True, on_progress=report)`` reads it all, on demand and without a
consumer group: the playbook's partitions of ``history`` and ``batches``, the very records of ``reflections``, and of
``traces`` the partitions that hold the wanted keys. ``combee why`` and the dashboard show the same answer.
"""

from collections.abc import (
    Callable,
    Collection,
    Mapping,
)
from dataclasses import dataclass, field

from combee.core.identity import fingerprint
from combee.evidence import places_of, with_evidence
from combee.history import messages, partition_of
from combee.ports import FatalError, Log, TopicPartition
from combee_schemas import topics
from combee_schemas.playbook import Change, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import key_of
from combee_schemas.trace import Trace

PROGRESS_EVERY = 250
"""Records of ``traces`` between two reports of progress."""
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
    newest, ids, is_live = None, dict[str, None](), False
    changes: list[tuple[Playbook, Change]] = []
    async for version in messages(log, topics.HISTORY, name):
        entry = next((entry for entry in version.entries if entry.id == entry_id), None)
        is_live = entry is not None
        if entry is not None:
            newest = version
            ids |= dict.fromkeys(entry.evidence)
        changes += [(version, change) for change in version.changes if change.entry_id == entry_id]
    if newest is None:
        raise FatalError(f"{name} has and had no entry {entry_id}; 'combee playbook show {name}' lists them")
    (entry,) = (entry for entry in newest.entries if entry.id == entry_id)
    if entry.evidence_count > len(entry.evidence):
        whole = await with_evidence(log, newest)
        (all_of_it,) = (entry.evidence for entry in whole.entries if entry.id == entry_id)
        ids = dict.fromkeys(all_of_it) | ids
    return Lineage(
        playbook=name,
        version=newest.version,
        entry=entry,
        is_live=is_live,
        changes=changes,
        sources=await _sources(log, name, ids, traces=traces, on_progress=on_progress),
    )


async def _sources(
    log: Log, name: str, ids: Collection[str], *, traces: bool, on_progress: OnProgress
) -> list[Source]:
    places = await places_of(log, name, ids)
    source = await partition_of(log, topics.REFLECTIONS, name)
    records = await log.read_at(source, sorted(offset for offset, _ in places.values()))
    reflections = {
        reflection.reflection_id: reflection
        for reflection in topics.REFLECTIONS.under(name, records.values())
    }
    wanted = {
        reflection.trace_id: reflection.trace_digest
        for reflection in reflections.values()
        if reflection.trace_id
    }
    by_trace_id = await _traces(log, name, wanted, on_progress) if traces else {}
    return [
        Source(
            reflection_id=reflection_id,
            sequence=places[reflection_id][1] if reflection_id in places else None,
            reflection=(reflection := reflections.get(reflection_id)),
            trace=by_trace_id.get(reflection.trace_id or "") if reflection else None,
        )
        for reflection_id in ids
    ]


async def last_taught(log: Log, version: Playbook, ids: Collection[str]) -> dict[str, Reflection]:
    """Return those of the reflections that were in the last batch of a version: two short reads find them."""
    if version.manifest_offset < 0:
        return {}
    number = await log.partition_for(topics.BATCHES.name, version.name.encode())
    source = TopicPartition(topic=topics.BATCHES.name, partition=number)
    manifests = topics.BATCHES.under(
        version.name, (await log.read_at(source, [version.manifest_offset])).values()
    )
    offsets = sorted(
        member.offset for batch in manifests for member in batch.members if member.reflection_id in ids
    )
    number = await log.partition_for(topics.REFLECTIONS.name, version.name.encode())
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=number)
    records = (await log.read_at(source, offsets)).values() if offsets else ()
    return {
        reflection.reflection_id: reflection for reflection in topics.REFLECTIONS.under(version.name, records)
    }


async def _traces(log: Log, name: str, ids: Mapping[str, str], on_progress: OnProgress) -> dict[str, Trace]:
    """Return a playbook's traces by id; they are looked for only where their keys put them.

    ``ids`` has the fingerprint of each, empty if unknown: then the first trace under the id is the one.
    """
    topic = topics.TRACES.name
    numbers = {(await partition_of(log, topics.TRACES, trace_id)).partition for trace_id in ids}
    first, ends = await log.beginnings(topic), await log.ends(topic)
    total, read = sum(ends[number] - first[number] for number in numbers), 0
    traces: dict[str, Trace] = {}
    for number in sorted(numbers):
        async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
            read += 1
            if read % PROGRESS_EVERY == 0:
                on_progress(topic, read, total)
            key = key_of(record)
            if key in ids:
                for trace in topics.TRACES.under(key, [record]):
                    mine = (trace.playbook, trace.trace_id) == (name, key)
                    if mine and ids[key] in {"", fingerprint(trace)}:
                        traces.setdefault(key, trace)
    return traces
