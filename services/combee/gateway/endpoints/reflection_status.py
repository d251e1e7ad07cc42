"""``GET /v1/reflections/{id}``: the status of one reflection, looked up in the topics on demand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, Path, Query

from combee.adapters.ports import Record, TopicPartition
from combee.core.log.dead_letters.subject import reflection_of
from combee.core.log.fates import Fate, fate_of, fate_of_letter
from combee.core.log.live.values import window_text
from combee.core.names.identity import claimed_identities, full_name, identity_of, is_sent_as, meant_by
from combee.core.names.sources import gateway_source
from combee.core.playbook.retention import UNCOUNTED
from combee.core.playbook.trust import barred_sources, is_uncounted, uncounted_sources
from combee.gateway import playbooks
from combee.gateway.access.access import allowed, check_touch
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.problems import not_found, problems, unavailable
from combee.log.evidence import with_revoked
from combee.log.history import messages, partition_of
from combee_schemas import topics
from combee_schemas.base import PlaybookName, Value
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter, Resolution, claimed_attempt
from combee_schemas.playbook import Playbook

LOOKUP_S = 10.0
MAX_LOOKUPS, MAX_LOOKUPS_PER_KEY = 16, 4
"""Maximum number of concurrent look-ups, in total and per key."""
RECENT = 2_000
"""Number of last offsets whose manifests are read first, as most callers ask about recent reflections."""

Reader = Annotated[Caller, Depends(allowed("playbooks:read"))]
ReflectionId = Annotated[
    str, Path(min_length=1, max_length=200, description="the id that was published or returned")
]
Where = Annotated[PlaybookName, Query(description="the playbook of the reflection")]


class ReflectionStatus(Value):
    """Present status of a reflection."""

    reflection_id: str
    playbook: PlaybookName
    state: Literal["waiting", "in_batch", "applied", "dead_lettered", "dropped"]
    """waiting: in its window; in_batch: in the tree; applied: in ``version``; dead_lettered: see ``detail``;
    dropped: a dead letter that an operator closed."""
    detail: str
    """The state in words."""
    batch_id: str = ""
    batch_sequence: int | None = None
    level: int | None = None
    """In a batch: the level whose calls run now, from 0; None if the gateway does not know the tree."""
    version: int | None = None
    entries: tuple[str, ...] = ()
    """Entries of ``version`` that rest on the reflection; none if it taught nothing new."""
    revoked: bool = False
    repeats: int = 0
    """Number of later records with the same id, which do not count, as far as the log was read."""
    until_ms: int | None = None
    """Waiting: the latest closing time of its window."""
    held: str = ""
    """Waiting: why it is held back and the remedy, by the gateway's own settings; empty if not known."""


class ReflectionStatusLookup:
    """Looks up statuses newest first, within a deadline and a limit of concurrency."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._own_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def reflection(
        self, caller: Reader, reflection_id: ReflectionId, playbook: Where
    ) -> ReflectionStatus:
        """Return a reflection's status: waiting, in a batch, applied (with its entries), dead-lettered or dropped."""
        check_touch(caller, playbook)
        playbooks.check_current(self._context)
        try:
            own = self._own_slots.setdefault(caller.name, asyncio.Semaphore(MAX_LOOKUPS_PER_KEY))
            async with asyncio.timeout(LOOKUP_S), own, self._slots:
                status = await self._status_of(playbook, reflection_id, caller)
        except TimeoutError as error:
            raise unavailable(f"the topics could not be read within {LOOKUP_S:.0f} s") from error
        if status is None:
            first = (await self._context.log.beginnings(topics.REFLECTIONS.name)).values()
            older = ", or it has expired" if any(first) else ""
            raise not_found(f"no reflection of this id is in the log for {playbook}{older}")
        return status

    async def _status_of(self, name: str, sent_id: str, caller: Caller) -> ReflectionStatus | None:
        source = await partition_of(self._context.log, topics.BATCHES, name)
        end = (await self._context.log.ends(source.topic))[source.partition]
        recent = max(0, end - RECENT)
        through = self._context.playbooks.latest(name).through_offset
        batches: list[Batch] = []
        async for batch in messages(self._context.log, topics.BATCHES, name, recent, end):
            through = max(through, batch.plan.through_offset)
            if _sent_as(batch, sent_id):
                batches.append(batch)
        waiting = [record async for record in self._records(name, sent_id, through + 1)]
        if not batches and not waiting:
            async for batch in messages(self._context.log, topics.BATCHES, name, 0, recent):
                batches += [batch] if _sent_as(batch, sent_id) else []
        sent = (own_id for batch in batches for own_id in _sent_as(batch, sent_id))
        # Reflections of the caller's own key come first.
        callers = identity_of(sent_id, gateway_source(caller.name, proven=True).name)
        own_ids = meant_by(sent_id, (*sent, *(own_id for own_id, _ in waiting))) or [sent_id]
        own_ids.sort(key=lambda own_id: own_id != callers)
        records = [record for own_id, record in waiting if own_id == own_ids[0]]
        status = await self._status_under(name, own_ids[0], recent, batches, records)
        if status is None:
            return None
        others = ", ".join(map(full_name, own_ids[1:]))
        said = f"; this is {full_name(own_ids[0])}, and other sources have sent {others}" if others else ""
        return status.model_copy(update={"reflection_id": sent_id, "detail": f"{status.detail}{said}"})

    async def _status_under(
        self, name: str, reflection_id: str, recent: int, batches: Sequence[Batch], records: Sequence[Record]
    ) -> ReflectionStatus | None:
        """Return the status of one identity; ``records`` are its records that no batch has covered yet."""
        manifest, repeats = None, 0
        for batch in batches:
            repeats += sum(member.reflection_id == reflection_id for member in batch.dropped)
            manifest = _in(batch, reflection_id) or manifest
        attempt = manifest[1].attempt if manifest else -1
        # Records of later attempts wait for a batch; the first of them is the reflection, the others repeat it.
        waiting = [record for record in records if _attempt(record) > attempt]
        repeats += len(records) - min(len(waiting), 1)
        if manifest is None and not waiting:
            async for batch in messages(self._context.log, topics.BATCHES, name, 0, recent):
                manifest = _in(batch, reflection_id) or manifest
            attempt = manifest[1].attempt if manifest else -1
        own = manifest[0] if manifest and not waiting else None
        latest = await with_revoked(self._context.log, self._context.playbooks.latest(name))
        is_applied = own is not None and latest.batch_sequence >= own.plan.sequence
        letter = None
        # Reflections that fail in a batch are dead-lettered together with its version.
        if own is None or is_applied:
            since_ms = waiting[0].timestamp_ms if waiting else own.plan.closed_at_ms if own else 0
            letter = await self._letter(name, reflection_id, since_ms, attempt)
        fate = fate_of(
            letter=letter[0] if letter else None,
            batched=own is not None,
            applied=is_applied,
            passed=not waiting,
        )
        if fate == Fate.LOST:
            return None
        told: dict[str, Any] = {}
        counts = True
        if own is not None and manifest is not None:
            told = {"batch_id": own.plan.batch_id, "batch_sequence": own.plan.sequence}
            source, settings = manifest[1].source, own.plan.settings
            is_barred = is_uncounted(source, barred_sources(latest), settings)
            told["revoked"] = reflection_id in latest.revoked or is_barred
            is_theirs = is_uncounted(source, uncounted_sources(latest, settings), settings)
            counts = not (told["revoked"] or is_theirs)
        if letter is not None:
            told["detail"] = f"{letter[1].service} could not use it: {letter[1].reason}"
        elif own is None:
            told |= await self._waiting(name)
        else:
            told |= await (self._applied(name, reflection_id, own) if is_applied else self._in_batch(own))
            if is_applied and not counts:
                told["detail"] += f"; {UNCOUNTED}"
        known = {"reflection_id": reflection_id, "playbook": name, "repeats": repeats}
        return ReflectionStatus.model_validate({**known, "state": fate.name.lower(), **told})

    # ---- the topics

    async def _records(self, name: str, reflection_id: str, start: int) -> AsyncIterator[tuple[str, Record]]:
        """Yield the records sent under an id that no batch has covered yet, with their identities."""
        source = await partition_of(self._context.log, topics.REFLECTIONS, name)
        async for record in self._context.log.read(source, start):
            reflection = topics.REFLECTIONS.read_or_none(record)
            if reflection is None or reflection.playbook != name:  # its record may have another key, or none
                continue
            claimed = claimed_identities(reflection.reflection_id, reflection.source, record.headers)
            own_id = next((own_id for own_id in claimed if is_sent_as(own_id, reflection_id)), None)
            if own_id is not None:
                yield own_id, record

    async def _letter(
        self, name: str, reflection_id: str, since_ms: int, attempt: int
    ) -> tuple[Fate, DeadLetter] | None:
        """Return the dead letter after ``attempt`` and its fate, None without one or if it was retried."""
        log, topic = self._context.log, topics.DEAD_LETTERS.name
        letters: dict[tuple[int, int], DeadLetter] = {}
        resolved: dict[tuple[int, int], Resolution] = {}
        for number, start in (await log.offsets_at(topic, since_ms)).items():
            async for record in log.read(TopicPartition(topic=topic, partition=number), start):
                message = _decoded(record)
                if (
                    isinstance(message, DeadLetter)
                    and _is_about(message, name, reflection_id)
                    and message.attempts > attempt
                ):
                    letters[message.origin_partition, message.origin_offset] = message
                if isinstance(message, Resolution):
                    resolved.setdefault((message.origin_partition, message.origin_offset), message)
        for place, letter in reversed(letters.items()):
            decision = resolved[place].decision if place in resolved else None
            if decision != "retried":
                return fate_of_letter(decision), letter
        return None

    # ---- the answer

    async def _waiting(self, name: str) -> dict[str, Any]:
        picture = await self._context.live.seen()
        waiting, size = picture.windows.count(name), picture.batch_size(name)
        until_ms = playbooks.closes_ms(self._context, picture, name)
        held = playbooks.held(self._context, name)
        due = "or at" if until_ms > self._context.clock.now_ms() else "and was due at"
        closes = held or f"which closes when full {due} {playbooks.moment(until_ms)}"
        detail = f"it waits in its window ({window_text(waiting, size)}), {closes}"
        return {"detail": detail, "until_ms": until_ms, "held": held}

    async def _in_batch(self, batch: Batch) -> dict[str, Any]:
        level, levels = await self._level(batch), len(batch.plan.widths)
        where = "its update waits for publish" if level is None else f"level {level} of {levels}"
        return {"level": level, "detail": f"it is in batch {batch.plan.sequence}: {where}"}

    async def _applied(self, name: str, reflection_id: str, batch: Batch) -> dict[str, Any]:
        version = await self._version(name, batch)
        if version is None:
            return {"detail": f"batch {batch.plan.sequence} became a version that is no longer in the log"}
        entries = tuple(entry.id for entry in version.entries if reflection_id in entry.evidence)
        rests = f"on it rest {', '.join(entries)}" if entries else "it taught nothing new"
        detail = f"batch {batch.plan.sequence} became version {version.version}; {rests}"
        return {"version": version.version, "entries": entries, "detail": detail}

    async def _level(self, batch: Batch) -> int | None:
        seen = (await self._context.live.seen()).batch(batch.plan.batch_id)
        return (
            min((node.level for node in seen.nodes if node.state != "done"), default=None) if seen else None
        )

    async def _version(self, name: str, batch: Batch) -> Playbook | None:
        """Return the version made from a batch, which follows the version on which the batch began."""
        history = self._context.history
        base = await history.exactly(name, batch.plan.base_version)
        async with aclosing(history.between(name, base.history_offset + 1 if base else 0)) as versions:
            async for version in versions:
                if version.batch and version.batch.plan.batch_id == batch.plan.batch_id:
                    return version
        return None


def _sent_as(batch: Batch, sent_id: str) -> list[str]:
    """Return the identities in a manifest that were sent under an id."""
    own_ids = (member.reflection_id for member in (*batch.members, *batch.dropped))
    return [own_id for own_id in own_ids if is_sent_as(own_id, sent_id)]


def _in(batch: Batch, reflection_id: str) -> tuple[Batch, Member] | None:
    return next(((batch, member) for member in batch.members if member.reflection_id == reflection_id), None)


def _attempt(record: Record) -> int:
    claim = claimed_attempt(record.headers)
    return claim.number if claim else 0


def _decoded(record: Record) -> DeadLetter | Resolution | None:
    return topics.DEAD_LETTERS.read_or_none(record) or topics.RESOLUTIONS.read_or_none(record)


def _is_about(letter: DeadLetter, name: str, reflection_id: str) -> bool:
    """Return whether a letter is about this reflection, not about its trace."""
    return letter.origin_topic != topics.TRACES.name and reflection_of(letter) == (name, reflection_id)


def router(context: Context) -> APIRouter:
    """Return the endpoint."""
    routes = APIRouter(tags=["publish"])
    routes.add_api_route(
        "/v1/reflections/{reflection_id:path}",
        ReflectionStatusLookup(context).reflection,
        response_model=ReflectionStatus,
        operation_id="reflection",
        responses=problems(404),
    )
    return routes
