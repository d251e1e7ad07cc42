"""The retained input of a playbook's learning, which variants replay."""

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, field

from combee.adapters.clock import moment
from combee.adapters.ports import FatalError, Log, Outgoing, Record
from combee.core.log.replaying.selection import Selection
from combee.core.log.replaying.steps import Arrival
from combee.core.names.sources import NOBODY, UNPROVEN, KnownSources, counted_name
from combee.core.playbook.shown import needless_bytes
from combee.core.playbook.trust import barred_sources, names_counted
from combee.log.history import History, messages, partition_of
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.records import IDENTITY_HEADER

READ_CHUNK = 500
"""Maximum number of records read in one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Part of a history: everything within all given bounds."""

    versions: tuple[int, int] | None = None
    """First and last version, both included."""
    offsets: tuple[int, int] | None = None
    """Offsets of ``reflections``; the last is excluded."""
    times_ms: tuple[int, int] | None = None
    """Closing times of batches; the last is excluded."""


@dataclass(slots=True, kw_only=True)
class Recording:
    """The counted reflections of a range, the versions made from them, and the version before."""

    arrivals: list[Arrival] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    """By sequence."""
    versions: list[Playbook] = field(default_factory=list)
    """Versions of the range's batches; only the last has its entries."""
    commands: int = 0
    """Number of versions in between that people made, which a variant does not repeat."""
    unproven: Counter[str] = field(default_factory=Counter)
    """By source, how many reflections count as unproven once they are copied: no secret known here proves them."""


def check_replayable(name: str) -> None:
    """Refuse a branch, which learns from its playbook's reflections.

    Raises
    ------
    FatalError
        If it is a branch.
    """
    if (playbook := playbook_of(name)) != name:
        raise FatalError(
            f"{name} learns from {playbook}'s reflections and is not replayed by itself: replay {playbook}, with"
            " --variant and the branch's settings"
        )


async def recording(
    log: Log,
    name: str,
    wanted: Range,
    without: Sequence[Selection] = (),
    known: KnownSources = NOBODY,
) -> Recording:
    """Return a range's recording; ``without`` excludes reflections, and then all that is revoked today, too.

    ``known``: what proves sources where the copies are read.

    Raises
    ------
    FatalError
        If there is nothing in it, some of it has expired, or it is a branch's.
    """
    check_replayable(name)
    read = Recording()
    last: Playbook | None = None
    made_by_people: list[int] = []
    revoked, sources = set[str](), frozenset[str]()
    async for version in History(log).between(name, 0):
        revoked.update(version.revoked)
        sources = barred_sources(version)
        if wanted.versions and not wanted.versions[0] <= version.version <= wanted.versions[1]:
            continue
        if version.origin != "batch":
            made_by_people.append(version.version)
            last = version
            continue
        read.versions.append(version.model_copy(update={"entries": (), "changes": ()}))
        last = version
    if last is None:
        raise FatalError(
            f"{name} has no version in that range; 'combee playbook show {name} --history' lists them"
        )
    made = {version.batch_sequence for version in read.versions}
    async for batch in messages(log, topics.BATCHES, name):
        if batch.plan.sequence in made:
            read.batches.setdefault(batch.plan.sequence, batch)
    read.commands = len(made_by_people)
    if without:
        without = (*without, *(Selection("source", source) for source in sources))
    await _arrivals(log, name, wanted, without, read, revoked if without else (), known)
    if not read.arrivals:
        raise FatalError(f"no reflection that counted for {name} is in that range")
    kept = {arrival.sequence for arrival in read.arrivals}
    read.versions = [version for version in read.versions if version.batch_sequence in kept]
    if read.versions and last.version >= read.versions[-1].version:
        end = await History(log).exactly(name, read.versions[-1].version)
        read.versions[-1] = end or read.versions[-1]
    return read


async def _arrivals(
    log: Log,
    name: str,
    wanted: Range,
    without: Sequence[Selection],
    read: Recording,
    gone: Collection[str],
    known: KnownSources,
) -> None:
    source = await partition_of(log, topics.REFLECTIONS, name)
    places = {
        member.offset: (member, batch.plan)
        for batch in read.batches.values()
        if batch.plan.reason != "revoke"  # its members belong to earlier batches
        and (not wanted.times_ms or wanted.times_ms[0] <= batch.plan.closed_at_ms < wanted.times_ms[1])
        for member in batch.members
        if not wanted.offsets or wanted.offsets[0] <= member.offset < wanted.offsets[1]
    }
    first = (await log.beginnings(topics.REFLECTIONS.name))[source.partition]
    kept = [offset for offset in sorted(places) if offset >= first]
    since_ms = places[kept[0]][1].closed_at_ms if kept else None
    begins_later = wanted.times_ms and since_ms is not None and since_ms <= wanted.times_ms[0]
    if len(kept) < len(places) and not begins_later:
        raise FatalError(_expired(first, since_ms, len(places) - len(kept)))
    async for record in records_at(log, name, kept):
        member, plan = places[record.offset]
        reflection, names = topics.REFLECTIONS.read_or_none(record), names_counted(plan.settings)
        if reflection is None or member.reflection_id in gone:
            continue
        counted = {"reflection_id": member.reflection_id, "source": member.source}
        counts = reflection.model_copy(update=counted)
        if any(rule.matches(counts, plan.closed_at_ms, names) for rule in without):
            continue
        copied = known.effective(record.topic, record.value or b"", record.headers, reflection.source)
        owner = counted_name(member.source, names)
        if owner not in {UNPROVEN, counted_name(copied.source, names)}:
            read.unproven[owner] += 1
        read.arrivals.append(
            Arrival(
                offset=record.offset,
                reflection_id=member.reflection_id,
                at_ms=record.timestamp_ms,
                size=len(record.value or b"") - needless_bytes(counts, name),
                sequence=plan.sequence,
            )
        )


def _expired(first: int, since_ms: int | None, count: int) -> str:
    since = "" if since_ms is None else f", from {moment(since_ms)} UTC"
    return (
        f"{count} reflections of that range have expired: they are kept from offset {first} on{since}. Choose a later"
        f" range (--since, --versions), or restore an archive that has them"
    )


async def records_at(log: Log, name: str, offsets: Sequence[int]) -> AsyncGenerator[Record, None]:
    """Yield a playbook's reflections at these ascending offsets."""
    source = await partition_of(log, topics.REFLECTIONS, name)
    for start in range(0, len(offsets), READ_CHUNK):
        records = await log.read_at(source, offsets[start : start + READ_CHUNK])
        for offset in sorted(records):
            yield records[offset]


def again(record: Record, identity: str = "") -> Outgoing:
    """Return a record to be written to another log; ``identity`` is the id under which it counted."""
    copy = record.to_copy
    headers = tuple(shown for shown in copy.headers if shown[0] != IDENTITY_HEADER)
    if identity:
        headers = (*headers, (IDENTITY_HEADER, identity.encode()))
    return Outgoing(topic=copy.topic, key=copy.key, value=copy.value, headers=headers)
