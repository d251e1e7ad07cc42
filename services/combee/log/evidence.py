"""Evidence of versions, and revoked reflections, looked up in the log: a snapshot keeps the last ids and the rules.

Publish and the commands need all of them to revoke or to apply.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from combee.adapters.ports import Log, PoisonError, Record
from combee.core.names.identity import claimed_identities, identity_of, owner_of
from combee.core.names.sources import NOBODY, KnownSources
from combee.core.playbook.lineage import evidence
from combee.core.playbook.lineage.branching import Adoption
from combee.core.playbook.lineage.evidence import Place
from combee.core.playbook.lineage.recomputing import Mixed, Recomputation, Recomputed
from combee.core.playbook.operations import union
from combee.core.playbook.trust import barred
from combee.core.playbook.versions import empty
from combee.log.history import History, messages, partition_of
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Source, playbook_of
from combee_schemas.batch import Member
from combee_schemas.playbook import Asked, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from combee_schemas.topics import key_of

LOOK_UP_S = 60.0
"""Maximum seconds to look up evidence: publish does nothing else meanwhile."""
CLOCKS_MS = DAY_MS
"""Milliseconds by which clocks may differ: what follows a version may seem older than it."""


async def with_evidence(log: Log, version: Playbook) -> Playbook:
    """Return a version whose entries have all of their evidence, including reflections revoked since.

    Nothing is read for a version that names all of it. Otherwise it follows from the playbook's ``history`` and
    ``updates``, so that every look-up gives the same result.

    Raises
    ------
    PoisonError
        If that takes longer than a minute.
    """
    if evidence.is_whole(version):
        return version
    async with in_time(version):
        return await _followed(log, version)


async def with_evidence_left(log: Log, version: Playbook) -> Playbook:
    """Return a version whose entries have all of their evidence except the reflections that it names as revoked.

    Raises
    ------
    PoisonError
        If that takes longer than a minute.
    """
    gone = frozenset(version.revoked)
    whole = await with_evidence(log, version)
    entries = tuple(evidence.without(entry, gone) for entry in whole.entries)
    return version.model_copy(update={"entries": entries})


async def with_revoked(log: Log, version: Playbook) -> Playbook:
    """Return a version that names all reflections revoked by its rules, from the versions that added the rules.

    Raises
    ------
    TransientError
        If such a version is not found in time.
    """
    history, rules = History(log), version.revocations
    past = [
        await history.exactly(version.name, number)
        for number in sorted({rule.version for rule in rules} - {version.version})
    ]
    revoked = union(*(earlier.revoked for earlier in past if earlier is not None), version.revoked)
    return version.model_copy(update={"revoked": revoked}) if rules else version


@asynccontextmanager
async def in_time(version: Playbook) -> AsyncIterator[None]:
    """Bound the look-up of a version's evidence to a minute.

    Raises
    ------
    PoisonError
        If it takes longer.
    """
    try:
        async with asyncio.timeout(LOOK_UP_S):
            yield
    except TimeoutError as error:
        raise PoisonError(
            f"the evidence of version {version.version} of {version.name} could not be read in"
            f" {LOOK_UP_S:.0f} s: try again when the broker is less busy"
        ) from error


async def _followed(log: Log, version: Playbook) -> Playbook:
    complete: Playbook | None = None
    async with aclosing((await _path(log, version, to_whole=True)).read()) as path:
        async for past_version, update in path:
            complete = evidence.followed(complete, past_version, update) if complete else past_version
    return complete or version


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """The versions that lead to a version, on its line and on the lines that it came from."""

    log: Log
    version: Playbook
    places: tuple[Place, ...]
    """Oldest first, from version 0 or the oldest retained one."""
    asked: frozenset[Asked]
    """Reflections that one of them wants, or wanted, asked again."""

    async def read(self) -> AsyncGenerator[tuple[Playbook, Update | None], None]:
        """Yield the versions, each with the update of its batch."""
        line, first = self.places[0]
        if not first:
            yield empty(line), None
        wanted = frozenset(self.places)
        async with aclosing(_versions(self.log, self.version)) as past, AsyncExitStack() as stack:
            updates = {
                line: await stack.enter_async_context(aclosing(_Updates(self.log, line)))
                for line, _ in wanted
            }
            async for past_version in past:
                if evidence.place(past_version) in wanted:
                    is_batch = past_version.origin == "batch"
                    yield (
                        past_version,
                        await updates[past_version.name].of(past_version) if is_batch else None,
                    )


async def _path(log: Log, version: Playbook, *, to_whole: bool = False) -> _Path:
    """Return the path to a version; ``to_whole``: only from the last version that names all of its evidence."""
    before: dict[Place, Place] = {}
    asked: dict[Place, tuple[Asked, ...]] = {}
    whole: set[Place] = set()
    async with aclosing(_versions(log, version)) as past:
        async for past_version in past:
            place = evidence.place(past_version)
            before[place], asked[place] = evidence.began_with(past_version), past_version.again
            if to_whole and evidence.is_whole(past_version):
                whole.add(place)
    places = tuple(evidence.ancestry(evidence.place(version), before, whole))
    on_path = frozenset(wanted for place in places for wanted in asked.get(place, ()))
    return _Path(log=log, version=version, places=places, asked=on_path)


async def recomputed(
    log: Log, version: Playbook, barred: Playbook, *, retained_from: int, budget_tokens: int
) -> Recomputed:
    """Return a version recomputed without the reflections revoked in ``barred``, from all updates that made it.

    ``retained_from`` is the first offset of ``reflections`` that a call could read again. The result follows from the
    playbook's ``history`` and ``updates``, so that every recomputation gives the same.

    Raises
    ------
    PoisonError
        If reading it takes longer than a minute.
    """

    def begin(start: Playbook, asked: frozenset[Asked]) -> Recomputation:
        return Recomputation(start, barred, retained_from=retained_from, next_id=barred.next_id, asked=asked)

    async def follow(path: _Path, asked: frozenset[Asked]) -> Recomputed:
        book: Recomputation | None = None
        async with aclosing(path.read()) as past:
            async for past_version, update in past:
                if book is None:
                    book = begin(past_version, asked)
                else:
                    book.follow(past_version, update)
        return (book or begin(version, asked)).result(budget_tokens=budget_tokens)

    async with in_time(version):
        path = await _path(log, version)
        # First with the mixed operations, which shows which of them matter, so that no call is wasted.
        followed, asking, mixed = await follow(path, path.asked), path.asked, list[Mixed]()
        while again := [mixed_operation for mixed_operation in followed.mixed if mixed_operation.again]:
            mixed += again
            asking |= {place for mixed_operation in again for place in mixed_operation.again}
            followed = await follow(path, asking)
        return replace(followed, mixed=(*mixed, *followed.mixed))


async def _versions(log: Log, upto: Playbook) -> AsyncGenerator[Playbook, None]:
    """Yield the versions of all lines of a playbook up to one, which include all versions that it came from.

    Each names all reflections revoked on its line by then.
    """
    source, playbook = await partition_of(log, topics.HISTORY, upto.name), playbook_of(upto.name)
    revoked: dict[str, tuple[str, ...]] = {}
    async with aclosing(log.read(source, 0)) as records:
        async for record in records:
            if playbook_of(key_of(record)) != playbook:
                continue
            version = topics.HISTORY.read_or_none(record)
            if version is not None:
                if version.revoked:
                    revoked[version.name] = union(revoked.get(version.name, ()), version.revoked)
                yield version.model_copy(update={"revoked": revoked.get(version.name, ())})
                if evidence.place(version) == evidence.place(upto):
                    return


class _Updates:
    """The updates of one playbook, for versions that are asked for in order."""

    def __init__(self, log: Log, name: str) -> None:
        self._messages = messages(log, topics.UPDATES, name)
        self._early: dict[tuple[int, int], Update] = {}
        """By sequence and place of the manifest; with overlapping batches some updates come before their turn."""

    async def of(self, version: Playbook) -> Update | None:
        """Return the update that made a version: the first one in the log was applied."""
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


async def updates_between(log: Log, name: str, after: int, through: int) -> list[Update]:
    """Return the updates that made a line's batches after one, up to another, in their order."""
    async with aclosing(_applied(log, name, after, through)) as updates:
        return sorted([update async for update in updates], key=lambda update: update.plan.sequence)


async def _applied(
    log: Log, name: str, after: int, through: int, start: int = 0
) -> AsyncGenerator[Update, None]:
    """Yield the updates that made a line's batches after one, up to another, as they are in the log."""
    known = set[int]()
    async with aclosing(messages(log, topics.UPDATES, name, start)) as updates:
        async for update in updates:
            sequence = update.plan.sequence
            if after < sequence <= through and sequence not in known:
                known.add(sequence)  # the first one in the log was applied
                yield update


async def adoption_of(
    log: Log,
    current: Playbook,
    line: Playbook,
    target: Playbook,
    version_of: Callable[[Playbook, int], Awaitable[Playbook | None]],
) -> Adoption:
    """Return the conditions for adopting ``target``, a version of a branch (``line``: its newest).

    Raises
    ------
    PoisonError
        If looking up reflections that the branch has not read takes longer than a minute.
    """
    forked = await version_of(current, target.branch.version) if target.branch else None
    here, unread = _Read(), 0
    if forked is not None:
        # What is beyond its source's share waits while later ones are batched: no offset tells what was read. What
        # failed, on either line, is a dead letter, and counts where it is sent again.
        async with in_time(target):
            since_ms, revoking = forked.created_at_ms - CLOCKS_MS, await with_revoked(log, current)
            here = await _read(log, current, forked.batch_sequence, since_ms, revoking)
            there = await _read(log, target, 0, since_ms, revoking)
            # The branch began with what the playbook was asked about again since.
            known = (
                dict.fromkeys(here.last_ok, True) | dict.fromkeys(here.came.values(), False) | there.last_ok
            )
            unread = sum(is_ok and not known[one] for one, is_ok in here.last_ok.items())
    return Adoption(line=line, target=target, forked=forked, unread=unread, learned=frozenset(here.came))


@dataclass(frozen=True, slots=True)
class _Read:
    """The reflections that count of a line's batches."""

    came: dict[int, str] = field(default_factory=dict)
    """Ids by offset, without those that were only asked about again."""
    last_ok: dict[str, bool] = field(default_factory=dict)
    """By id: whether it got through when it was last in a batch."""


async def _read(log: Log, version: Playbook, after: int, since_ms: int, revoking: Playbook) -> _Read:
    """Return what a line's batches after one have read, since its fork if that is later."""
    source = await partition_of(log, topics.UPDATES, version.name)
    start = (await log.offsets_at(source.topic, since_ms))[source.partition]
    read = _Read()
    async with aclosing(_applied(log, version.name, after, version.batch_sequence, start)) as updates:
        async for update in updates:
            if update.plan.branch is not None:
                read = _Read()
            gone = frozenset(barred(revoking, update))
            for one in update.result.seen:
                if one.reflection_id not in gone:
                    read.last_ok[one.reflection_id] = one.ok
                    if update.plan.reason != "revoke":
                        read.came[one.offset] = one.reflection_id
    return read


class Taught(NamedTuple):
    """A reflection in the manifest of its batch."""

    offset: int
    sequence: int
    """Of the batch."""
    source: Source | None
    """The verified source."""


async def places_of(log: Log, name: str, ids: Collection[str]) -> dict[str, Taught]:
    """Return the places, batches and sources of reflections, from the manifests."""
    places: dict[str, Taught] = {}
    async for batch in messages(log, topics.BATCHES, name):
        members = (member for member in batch.members if member.reflection_id in ids)
        places |= {
            member.reflection_id: Taught(member.offset, batch.plan.sequence, member.source)
            for member in members
        }
    return places


async def members_of(log: Log, name: str) -> dict[int, Member]:
    """Return all reflections in a playbook's batches, by their places, from the manifests."""
    members: dict[int, Member] = {}
    async with aclosing(messages(log, topics.BATCHES, name)) as batches:
        async for batch in batches:
            members |= {member.offset: member for member in batch.members}
    return members


async def identified(
    log: Log,
    name: str,
    start: int = 0,
    members: Mapping[int, Member] | None = None,
    known: KnownSources = NOBODY,
) -> AsyncGenerator[tuple[Record, Reflection], None]:
    """Yield a playbook's retained reflections from a place on, under their identities, with their records.

    A reflection in no batch yet is verified by what is ``known``; where nothing is, it has the identity that it
    claims. One under the identity of another that was batched is left out: it repeats it, or is forged.
    """
    members = await members_of(log, name) if members is None else members
    batched = {member.reflection_id for member in members.values()}
    source = await partition_of(log, topics.REFLECTIONS, name)
    async with aclosing(log.read(source, start)) as records:
        async for record in records:
            reflection = topics.REFLECTIONS.read_or_none(record)
            if reflection is None or reflection.playbook != name:  # its record may have another key, or none
                continue
            if member := members.get(record.offset):
                yield record, reflection.model_copy(update={"reflection_id": member.reflection_id})
                continue
            own_id = claimed_identities(reflection.reflection_id, reflection.source, record.headers)[0]
            claimed = reflection.source
            if known.can_prove:
                claimed = known.effective(record.topic, record.value or b"", record.headers, claimed).source
                own_id = identity_of(reflection.reflection_id, owner_of(claimed))
            if own_id not in batched:
                yield record, reflection.model_copy(update={"reflection_id": own_id, "source": claimed})
