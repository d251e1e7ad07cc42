"""From an entry back to the runs that taught it: versions, reflections, traces; read from the topics.

``await lineage(log, playbook, entry_id, traces=True, on_progress=report)`` reads, on demand and without a consumer
group, the playbook's partitions of ``history`` and ``batches``, the wanted records of ``reflections``, and the
partitions of ``traces`` with the wanted keys. ``combee why`` and the dashboard show the same answer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from combee.adapters.ports import FatalError, Log, PoisonError, TopicPartition
from combee.core.names.identity import claimed_owner, fingerprint, owner_of
from combee.core.playbook.lineage.evidence import Place, ancestry, began_with, has_all, place
from combee.core.playbook.shown import shown
from combee.log.evidence import Taught, places_of, with_evidence, with_revoked
from combee.log.history import messages, newest_playbook, partition_of, reflections_at
from combee_schemas import base, topics
from combee_schemas.base import playbook_of
from combee_schemas.playbook import Change, ChangeKind, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import key_of
from combee_schemas.trace import Trace

PROGRESS_EVERY = 250
"""Number of records of ``traces`` between two reports of progress."""
TOOK_OVER: frozenset[ChangeKind] = frozenset({"import", "adopt"})
"""Kinds of the change, about no entry, that names the version of another line whose entries were taken over."""
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A reflection in an entry's evidence; ``reflection`` None: it is no longer in the log."""

    reflection_id: str
    line: str
    """The line of its batch: the playbook or a branch."""
    sequence: int | None
    """Of its batch."""
    taught_by: base.Source | None
    """Its verified source by the manifest; without one, the source that the reflection claims, as unproven."""
    reflection: Reflection | None
    trace: Trace | None


@dataclass(slots=True, kw_only=True)
class Lineage:
    """The origin of one entry."""

    playbook: str
    version: int
    """The newest version that has the entry."""
    entry: Entry
    is_live: bool = True
    changes: list[tuple[Playbook, Change]] = field(default_factory=list)
    """Oldest first, on each line that the entry comes from."""
    sources: list[Source] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """An entry's changes on one line, since it came there."""

    line: str
    newest: Playbook | None
    """The newest version that has the entry."""
    is_live: bool
    changes: list[tuple[Playbook, Change]]
    ids: list[str]
    """The evidence named by versions."""
    origin: Playbook | None
    """The version that took the entry over from another line; None: it began here."""


async def lineage(
    log: Log, name: str, entry_id: str, *, traces: bool, on_progress: OnProgress, upto: int | None = None
) -> Lineage:
    """Return the log's whole record of an entry, with evidence in the order of its arrival.

    ``upto``: the last version that is looked at; None: the newest. From an adopted entry it continues to the branch's
    versions, and from there to the versions before the fork.

    Raises
    ------
    FatalError
        If the playbook never had such an entry.
    """
    last = await _stretch(log, name, entry_id, upto)
    newest = last.newest
    if newest is None:
        raise FatalError(
            f"{name} never had an entry {entry_id}; 'combee playbook show {name}' lists its entries"
        )
    stretches, own_id = [last], entry_id
    while (origin := stretches[0].origin) is not None:
        line, version = began_with(origin)
        own_id = origin.adopted.renamed.get(own_id, own_id) if origin.adopted else own_id
        stretches.insert(0, await _stretch(log, line, own_id, version))
    (entry,) = (entry for entry in newest.entries if entry.id == entry_id)
    lines: dict[str, str] = {}
    for stretch in stretches:
        lines |= {reflection_id: stretch.line for reflection_id in stretch.ids if reflection_id not in lines}
    if not has_all(entry):
        whole = await with_evidence(log, newest)
        (all_of_it,) = (entry.evidence for entry in whole.entries if entry.id == entry_id)
        lines = {reflection_id: lines.get(reflection_id, "") for reflection_id in (*all_of_it, *lines)}
    return Lineage(
        playbook=name,
        version=newest.version,
        entry=entry,
        is_live=last.is_live,
        changes=[change for stretch in stretches for change in stretch.changes],
        sources=await _sources(
            log, lines, [stretch.line for stretch in stretches], traces=traces, on_progress=on_progress
        ),
    )


async def lineage_read(log: Log, read: Playbook, entry_id: str) -> Lineage:
    """Return the record of an entry that agents are shown in a version, without what came later or is revoked.

    Raises
    ------
    PoisonError
        If they are shown no such entry.
    """
    if all(entry.id != entry_id for entry in shown(read).entries):
        raise PoisonError(f"{read.name} has no entry {entry_id} in version {read.version}")
    origins = await lineage(
        log, read.name, entry_id, upto=read.version, traces=True, on_progress=lambda *_: None
    )
    newest = await newest_playbook(log, read.name)
    gone = frozenset((await with_revoked(log, newest)).revoked if newest else ())
    left = [source for source in origins.sources if source.reflection_id not in gone]
    return replace(origins, sources=left)


async def _stretch(log: Log, line: str, entry_id: str, upto: int | None) -> _Stretch:
    """Return an entry's changes in the versions of one line, up to ``upto`` if given."""
    newest, is_live = None, False
    before: dict[Place, Place] = {}
    took_over: dict[Place, Playbook] = {}
    named: dict[str, int] = {}  # evidence → the last version that names it
    changes: list[tuple[Playbook, Change]] = []
    async for version in messages(log, topics.HISTORY, line):
        if upto is not None and version.version > upto:
            break
        before[place(version)] = began_with(version)
        entry = next((entry for entry in version.entries if entry.id == entry_id), None)
        is_live = entry is not None
        if entry is not None:
            newest = version
            named |= dict.fromkeys(entry.evidence, version.version)
            if began_with(version)[0] != line:
                took_over[place(version)] = version
                # A version that was shortened to fit a record may lack this change.
                taking = (
                    change for change in version.changes if change.kind in TOOK_OVER and not change.entry_id
                )
                changes += [(version, change) for change in islice(taking, 1)]
        changes += [(version, change) for change in version.changes if change.entry_id == entry_id]
    path = ancestry(place(newest), before) if newest else []
    origin = next(
        (took_over[reflection_id] for reflection_id in reversed(path) if reflection_id in took_over), None
    )
    since = origin.version if origin else 0
    return _Stretch(
        line=line,
        newest=newest,
        is_live=is_live,
        changes=[(version, change) for version, change in changes if version.version >= since],
        ids=[reflection_id for reflection_id, number in named.items() if number >= since],
        origin=origin,
    )


async def _sources(
    log: Log, lines: Mapping[str, str], on: Sequence[str], *, traces: bool, on_progress: OnProgress
) -> list[Source]:
    """Return reflections with their known facts; ``lines`` gives the line of each, empty: one of ``on``."""
    places: dict[str, tuple[str, Taught]] = {}
    for line in dict.fromkeys(on):
        ids = [reflection_id for reflection_id, own in lines.items() if own in {line, ""}]
        for reflection_id, taught in (await places_of(log, line, ids)).items():
            places.setdefault(reflection_id, (line, taught))
    name = playbook_of(on[0])
    own_ids = {taught.offset: reflection_id for reflection_id, (_, taught) in places.items()}
    read = await reflections_at(log, name, own_ids)
    reflections = {reflection.reflection_id: reflection for reflection in read.values()}
    owners = {reflection_id: owner_of(taught.source) for reflection_id, (_, taught) in places.items()}
    runs = {own_id: _run_of(reflection, owners.get(own_id, "")) for own_id, reflection in reflections.items()}
    wanted = {run for run in runs.values() if run}
    by_run = await _traces(log, name, wanted, on_progress) if traces else {}
    return [
        Source(
            reflection_id=reflection_id,
            line=places[reflection_id][0] if reflection_id in places else line,
            sequence=places[reflection_id][1].sequence if reflection_id in places else None,
            reflection=(reflection := reflections.get(reflection_id)),
            taught_by=_taught_by(places.get(reflection_id), reflection),
            trace=by_run.get(runs.get(reflection_id)),
        )
        for reflection_id, line in lines.items()
    ]


def _run_of(reflection: Reflection, owner: str) -> tuple[str, str] | None:
    """Return the id of a reflection's trace and its fingerprint, its sender if unknown; None: it has no trace."""
    return (reflection.trace_id, reflection.trace_digest or _sent_by(owner)) if reflection.trace_id else None


def _sent_by(owner: str) -> str:
    """Return what stands for a sender, no fingerprint: any source may name another's run, or use its id first."""
    return f"by {owner}"


def _taught_by(place: tuple[str, Taught] | None, reflection: Reflection | None) -> base.Source | None:
    """Return a reflection's source from its manifest, else the source that it claims."""
    if place is not None and place[1].source is not None:
        return place[1].source
    claimed = reflection.source if reflection else None
    return claimed.model_copy(update={"proven": ""}) if claimed else None


async def last_taught(log: Log, version: Playbook, ids: Collection[str]) -> dict[str, Reflection]:
    """Return the reflections that were in the last batch of a version, found by two short reads."""
    if version.manifest_offset < 0:
        return {}
    number = await log.partition_for(topics.BATCHES.name, version.name.encode())
    source = TopicPartition(topic=topics.BATCHES.name, partition=number)
    manifests = topics.BATCHES.under(
        version.name, (await log.read_at(source, [version.manifest_offset])).values()
    )
    own_ids = {
        member.offset: member.reflection_id
        for batch in manifests
        for member in batch.members
        if member.reflection_id in ids
    }
    read = await reflections_at(log, playbook_of(version.name), own_ids)
    return {reflection.reflection_id: reflection for reflection in read.values()}


async def _traces(
    log: Log, name: str, runs: Collection[tuple[str, str]], on_progress: OnProgress
) -> dict[tuple[str, str] | None, Trace]:
    """Return a playbook's traces by id and fingerprint; only the partitions of their keys are read.

    If the fingerprint is unknown, the first trace of the reflection's source under the id counts.
    """
    topic = topics.TRACES.name
    ids: dict[str, set[str]] = {}
    for trace_id, link in runs:
        ids.setdefault(trace_id, set()).add(link)
    numbers = {(await partition_of(log, topics.TRACES, trace_id)).partition for trace_id in ids}
    first, ends = await log.beginnings(topic), await log.ends(topic)
    total, read = sum(ends[number] - first[number] for number in numbers), 0
    traces: dict[tuple[str, str] | None, Trace] = {}
    for number in sorted(numbers):
        async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
            read += 1
            if read % PROGRESS_EVERY == 0:
                on_progress(topic, read, total)
            key = key_of(record)
            if key in ids:
                for trace in topics.TRACES.under(key, [record]):
                    if (trace.playbook, trace.trace_id) == (name, key):
                        owner = claimed_owner(trace.source, record.headers)
                        for link in ids[key] & {_sent_by(owner), fingerprint(trace)}:
                            traces.setdefault((key, link), trace)
    return traces
