"""What versions rest on and what was revoked, looked up in the log: a snapshot keeps the last ids, and the rules.

Whoever revokes or applies must know all of them: ``publish``, and the commands before they are given.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial

from combee.core.playbook import evidence
from combee.core.playbook.operations import union
from combee.core.playbook.recomputing import Mixed, Recomputation, Recomputed
from combee.core.playbook.versions import empty
from combee.history import History, messages
from combee.ports import Log, PoisonError
from combee_schemas import topics
from combee_schemas.playbook import Asked, Playbook
from combee_schemas.scan import Update

LOOK_UP_S = 60.0
"""Looking up evidence takes no longer: publish does nothing else meanwhile."""


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
    async with in_time(version):
        return await _followed(log, version)


async def with_evidence_left(log: Log, version: Playbook) -> Playbook:
    """Return a version whose entries have all of their evidence, but for what it says is revoked.

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
    """Return a version that names all reflections that its rules mean: those that made the rules say it.

    Raises
    ------
    TransientError
        If one of these versions is not found in time.
    """
    history, rules = History(log), evidence.rules_of(version)
    past = [
        await history.exactly(version.name, number)
        for number in sorted({rule.version for rule in rules} - {version.version})
    ]
    revoked = union(*(each.revoked for each in past if each is not None), version.revoked)
    return version.model_copy(update={"revoked": revoked}) if rules else version


@asynccontextmanager
async def in_time(version: Playbook) -> AsyncIterator[None]:
    """Look up what a version rests on within a minute.

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
            f"what version {version.version} of {version.name} rests on could not be read in {LOOK_UP_S:.0f} s:"
            " try again when the broker is less busy"
        ) from error


async def _followed(log: Log, version: Playbook) -> Playbook:
    before, whole = {0: 0}, {0}
    async with aclosing(_versions(log, version)) as past:
        async for past_version in past:
            before[past_version.version] = evidence.began_with(past_version)
            if evidence.is_whole(past_version):
                whole.add(past_version.version)
    path = frozenset(evidence.ancestry(version.version, before, whole))
    complete = empty(version.name) if 0 in path else None
    async with aclosing(_versions(log, version)) as past, aclosing(_Updates(log, version.name)) as updates:
        async for past_version in past:
            if past_version.version not in path:
                continue
            if complete is None:
                complete = past_version
            else:
                update = await updates.of(past_version) if past_version.origin == "batch" else None
                complete = evidence.followed(complete, past_version, update)
    return complete or version


async def recomputed(
    log: Log, version: Playbook, barred: Playbook, *, retained_from: int, budget_tokens: int
) -> Recomputed:
    """Return a version without what ``barred`` says is revoked, from all that made it.

    ``retained_from`` is the first of ``reflections`` that a call could read again. It follows from the playbook's
    ``history`` and ``updates``, so that it is the same whenever it is recomputed.

    Raises
    ------
    PoisonError
        If reading it takes longer than a minute.
    """
    async with in_time(version):
        before, asked = {0: 0}, dict[int, tuple[Asked, ...]]()
        async with aclosing(_versions(log, version)) as past:
            async for past_version in past:
                before[past_version.version] = evidence.began_with(past_version)
                asked[past_version.version] = past_version.again
        path = frozenset(evidence.ancestry(version.version, before, {0}))
        known = frozenset(place for number in path for place in asked.get(number, ()))

        async def follow(asked: frozenset[Asked]) -> Recomputed:
            start = empty(version.name) if 0 in path else None
            begin = partial(
                Recomputation, barred=barred, retained_from=retained_from, next_id=barred.next_id, asked=asked
            )
            book = begin(start) if start else None
            async with (
                aclosing(_versions(log, version)) as past,
                aclosing(_Updates(log, version.name)) as updates,
            ):
                async for past_version in past:
                    if past_version.version not in path:
                        continue
                    if book is None:
                        book = begin(past_version)
                    else:
                        update = await updates.of(past_version) if past_version.origin == "batch" else None
                        book.follow(past_version, update)
            return (book or begin(version)).result(budget_tokens=budget_tokens)

        # First with the mixed operations: only so it shows which of them matter, and nothing is asked in vain.
        found, asking, mixed = await follow(known), known, list[Mixed]()
        while again := [each for each in found.mixed if each.again]:
            mixed += again
            asking |= {place for each in again for place in each.again}
            found = await follow(asking)
        return replace(found, mixed=(*mixed, *found.mixed))


async def _versions(log: Log, upto: Playbook) -> AsyncGenerator[Playbook, None]:
    """Yield versions up to one, each with all that was revoked by then."""
    revoked: tuple[str, ...] = ()
    async with aclosing(messages(log, topics.HISTORY, upto.name)) as versions:
        async for version in versions:
            revoked = union(revoked, version.revoked) if version.revoked else revoked
            yield version.model_copy(update={"revoked": revoked})
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


async def labels_serving(
    log: Log,
    labels: Mapping[str, int],
    version_of: Callable[[int], Awaitable[Playbook | None]],
    revoked: Collection[str],
) -> dict[str, int]:
    """Return the labels whose versions have an entry that rests on ``revoked`` reflections alone."""
    serving: dict[int, bool] = {}
    for number in sorted(set(labels.values())):
        version = await version_of(number)
        serving[number] = version is not None and await _rests_on(log, version, frozenset(revoked))
    return {label: number for label, number in sorted(labels.items()) if serving[number]}


async def _rests_on(log: Log, version: Playbook, revoked: frozenset[str]) -> bool:
    if evidence.resting_on(version.entries, revoked):
        return True
    doubtful = any(revoked.issuperset(entry.evidence) and entry.evidence_count for entry in version.entries)
    return doubtful and bool(evidence.resting_on((await with_evidence(log, version)).entries, revoked))


async def places_of(log: Log, name: str, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return where reflections stand and in which batch they are: the manifests say it."""
    places: dict[str, tuple[int, int]] = {}
    async for batch in messages(log, topics.BATCHES, name):
        members = (member for member in batch.members if member.reflection_id in ids)
        places |= {member.reflection_id: (member.offset, batch.plan.sequence) for member in members}
    return places
