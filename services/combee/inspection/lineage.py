"""From an entry back to the runs that taught it: versions, reflections, traces; read from the topics.

``await lineage(log, playbook, entry_id, traces=True, on_progress=told)`` reads it all, on demand and without a
consumer group: the playbook's partitions of ``history`` and ``batches``, the very records of ``reflections``, and of
``traces`` the partitions that hold the wanted keys. ``combee why`` and the dashboard show the same answer.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from combee.core.identity import fingerprint
from combee.core.playbook import evidence
from combee.core.playbook.versions import empty
from combee.history import messages, partition_of
from combee.ports import FatalError, Log, PoisonError, TopicPartition
from combee_schemas import topics
from combee_schemas.playbook import Change, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from combee_schemas.topics import key_of
from combee_schemas.trace import Trace

TOLD_EVERY = 250
LOOK_UP_S = 60.0
"""Looking up evidence takes no longer: publish does nothing else meanwhile."""
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
        ids = (
            dict.fromkeys(
                reflection_id
                for entry in whole.entries
                if entry.id == entry_id
                for reflection_id in entry.evidence
            )
            | ids
        )
    return Lineage(
        playbook=name,
        version=newest.version,
        entry=entry,
        is_live=is_live,
        changes=changes,
        sources=await _sources(log, name, ids, traces=traces, on_progress=on_progress),
    )


# ---- evidence that a snapshot no longer names


async def with_evidence(log: Log, version: Playbook) -> Playbook:
    """Return a version whose entries have all of their evidence, what was revoked since included.

    Nothing is read for one that names it all itself. Else it follows from the playbook's ``history`` and
    ``updates``, so that it is the same whenever it is looked up.

    Raises
    ------
    PoisonError
        If that takes longer than a minute.
    """
    if evidence.is_whole(version):
        return version
    async with _in_time(version):
        return await _followed(log, version)


@asynccontextmanager
async def _in_time(version: Playbook) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(LOOK_UP_S):
            yield
    except TimeoutError as error:
        raise PoisonError(
            f"what version {version.version} of {version.name} rests on could not be read in {LOOK_UP_S:.0f} s:"
            " try again when the broker is less busy"
        ) from error


async def _followed(log: Log, version: Playbook) -> Playbook:
    before, whole = {0: 0}, {0}
    async with aclosing(_versions(log, version)) as past:
        async for other_version in past:
            before[other_version.version] = evidence.began_with(other_version)
            if evidence.is_whole(other_version):
                whole.add(other_version.version)
    path = frozenset(evidence.ancestry(version.version, before, whole))
    found = empty(version.name) if 0 in path else None
    async with aclosing(_versions(log, version)) as past, aclosing(_Updates(log, version.name)) as updates:
        async for one in past:
            if one.version in path:
                update = await updates.of(one) if found and one.origin == "batch" else None
                found = evidence.followed(found, one, update) if found else one
    return found or version


async def _versions(log: Log, upto: Playbook) -> AsyncGenerator[Playbook, None]:
    async with aclosing(messages(log, topics.HISTORY, upto.name)) as versions:
        async for version in versions:
            yield version
            if version.version == upto.version:
                return


class _Updates:
    """The updates of one playbook, for versions that are asked for in order."""

    def __init__(self, log: Log, name: str) -> None:
        self._messages = messages(log, topics.UPDATES, name)
        self._early: dict[tuple[int, int], Update] = {}
        """By sequence and place of the manifest; with overlapping batches some come before their turn."""

    async def of(self, version: Playbook) -> Update | None:
        """Return the update that made a version: the first in the log is the one that was applied."""
        wanted = (version.batch_sequence, version.manifest_offset)
        self._early = {key: update for key, update in self._early.items() if key >= wanted}
        while wanted not in self._early:
            update = await anext(self._messages, None)
            if update is None:
                return None
            key = (update.plan.sequence, update.manifest_offset)
            if key >= wanted:
                self._early.setdefault(key, update)
        return self._early[wanted]

    async def aclose(self) -> None:
        """Stop reading."""
        await self._messages.aclose()


async def unknown(log: Log, current: Playbook, ids: Collection[str]) -> list[str]:
    """Return the ids that no reflection of a playbook has: in no batch, and none that waits for one.

    Raises
    ------
    PoisonError
        If looking them up takes longer than a minute.
    """
    known = {
        *current.revoked,
        *(reflection_id for entry in current.entries for reflection_id in entry.evidence),
    }
    left = dict.fromkeys(identity for identity in ids if identity not in known)
    if not left:
        return []
    async with _in_time(current):
        batched = await _places(log, current.name, left)
        waiting = messages(log, topics.REFLECTIONS, current.name, current.through_offset + 1)
        async with aclosing(waiting) as reflections:
            there = {reflection.reflection_id async for reflection in reflections}
    return [one for one in left if one not in batched and one not in there]


async def labels_serving(
    log: Log,
    labels: Mapping[str, int],
    version_of: Callable[[int], Awaitable[Playbook | None]],
    gone: Collection[str],
) -> dict[str, int]:
    """Return the labels whose versions have an entry that rests on reflections which are ``gone`` alone."""
    found: dict[int, bool] = {}
    for number in sorted(set(labels.values())):
        version = await version_of(number)
        found[number] = version is not None and await _rests_on(log, version, frozenset(gone))
    return {label: number for label, number in sorted(labels.items()) if found[number]}


async def _rests_on(log: Log, version: Playbook, gone: frozenset[str]) -> bool:
    if evidence.resting_on(version.entries, gone):
        return True
    doubtful = any(gone.issuperset(entry.evidence) and entry.evidence_count for entry in version.entries)
    return doubtful and bool(evidence.resting_on((await with_evidence(log, version)).entries, gone))


async def _sources(
    log: Log, name: str, ids: Collection[str], *, traces: bool, on_progress: OnProgress
) -> list[Source]:
    places = await _places(log, name, ids)
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
    told = await _traces(log, name, wanted, on_progress) if traces else {}
    return [
        Source(
            reflection_id=identity,
            sequence=places[identity][1] if identity in places else None,
            reflection=(reflection := reflections.get(identity)),
            trace=told.get(reflection.trace_id or "") if reflection else None,
        )
        for identity in ids
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


async def _places(log: Log, name: str, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return where reflections stand and in which batch they are: the manifests say it."""
    found: dict[str, tuple[int, int]] = {}
    async for batch in messages(log, topics.BATCHES, name):
        here = (member for member in batch.members if member.reflection_id in ids)
        found |= {one.reflection_id: (one.offset, batch.plan.sequence) for one in here}
    return found


async def _traces(log: Log, name: str, ids: Mapping[str, str], on_progress: OnProgress) -> dict[str, Trace]:
    """Return a playbook's traces by id; they are looked for only where their keys put them.

    ``ids`` has the fingerprint of each, empty if unknown: then the first trace under the id is the one.
    """
    topic = topics.TRACES.name
    numbers = {(await partition_of(log, topics.TRACES, identity)).partition for identity in ids}
    first, ends = await log.beginnings(topic), await log.ends(topic)
    total, read = sum(ends[number] - first[number] for number in numbers), 0
    found: dict[str, Trace] = {}
    for number in sorted(numbers):
        async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
            read += 1
            if read % TOLD_EVERY == 0:
                on_progress(topic, read, total)
            key = key_of(record)
            if key in ids:
                for trace in topics.TRACES.under(key, [record]):
                    mine = (trace.playbook, trace.trace_id) == (name, key)
                    if mine and ids[key] in {"", fingerprint(trace)}:
                        found.setdefault(key, trace)
    return found
