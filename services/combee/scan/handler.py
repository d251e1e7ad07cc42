"""The scan service: it runs the nodes that are ready, gathers children, and writes results for the next level.

The path of a group to the update of its batch:

1. ``_leaf`` takes a group from ``scan.0``. It checks the manifest (``ManifestCache``), reads the version that the
   batch is based on (``_base``), and asks the model (``Aggregator.group``).
2. ``_emit`` writes the result: a partial on ``scan.N``, to the partition of its parent; of the root the update.
3. ``_child`` takes a partial. It waits in ``Gathering``, with its record uncommitted, until its siblings have come.
   The last one combines them (``Aggregator.combine``); ``_emit`` writes the result in the same way.
4. The root's result is checked against the batch's reflections before that (``Aggregator.checked``).

Offsets are committed once a record's task has returned, so the log is the only memory.
"""

import asyncio
from collections.abc import Iterable
from itertools import chain
from weakref import WeakValueDictionary

from structlog.contextvars import bind_contextvars

from combee.adapters.ports import (
    Clock,
    DrainingError,
    LanguageModel,
    Log,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
)
from combee.core.batching import stragglers, tree
from combee.core.methods.method import shaped
from combee.core.names import identity
from combee.core.playbook.shown import as_seen_on
from combee.core.playbook.trust import names_counted
from combee.core.playbook.versions import empty
from combee.core.text.similarity.embeddings import model_and_thresholds
from combee.log.history import reflections_at
from combee.process.settings.methods import method
from combee.process.worker import manifest_cache
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee.process.worker.manifest_cache import ManifestCache
from combee.process.worker.retry import retried, write
from combee.process.worker.vectors import Vectors
from combee.process.worker.views import Playbooks
from combee.scan.aggregate import Aggregator
from combee.scan.answered import Answered
from combee.scan.gathering import Arrivals, Gathering, GatheringKey, GroupCalls, Wave, key_of
from combee.scan.head_start import HeadStart
from combee.scan.hedged import HedgedModel
from combee.scan.templates import Templates
from combee.scan.worth import shorter
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.codec import CodecError
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, GroupMember, NodeResult, Partial, Planned, Update

LEAVES = topics.GROUPS.name
CONTROL = GroupMember(
    offset=0,
    reflection=Reflection(
        reflection_id="control",
        playbook="control",
        error_identification="2 and 3 were added instead of 2 and 2.",
        correct_approach="Add the numbers that the task names.",
        key_insight="Read the numbers in the task again before you add them.",
    ),
)
"""A lesson that every model can turn into a proposal."""
ARRIVAL_S = 0.25
"""Seconds to wait for the base version in the local view before reading it from history."""
LEVELS = {topic.name: level for level, topic in enumerate(topics.SCAN)}


class ScanHandler:
    """One worker's nodes. Any worker can do any node: its record carries all it needs."""

    service = "scan"
    topics = tuple(topic.name for topic in topics.SCAN)
    bounded_topics = frozenset({LEAVES})

    def __init__(
        self,
        log: Log,
        model: LanguageModel,
        clock: Clock,
        *,
        limiter: DeadLetterLimiter | None = None,
        vectors: Vectors | None = None,
        head_start: HeadStart | None = None,
    ) -> None:
        self._log = log
        self._model = model
        self._hedged = HedgedModel(model, clock)
        self._watched = self._hedged.watching()
        self._head_start = head_start
        self._vectors = vectors or Vectors()
        self._templates = Templates()
        self._limiter = limiter or DeadLetterLimiter(clock)
        self.manifests = ManifestCache(log)
        self._answered = Answered(self.manifests)
        self._gatherings: dict[GatheringKey, Gathering] = {}
        self._groups = GroupCalls()
        self._arrivals = Arrivals()
        self._wave = Wave()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._draining = asyncio.Event()
        # At the start there is nothing yet that a version could end.
        self.playbooks = Playbooks(log, self._published, announces_start=False)

    def _published(self, name: str, playbook: Playbook | None) -> None:
        self._arrivals.arrived(name)
        if playbook is None:
            return
        self._answered.forget(name, playbook.batch_sequence)
        for key, gathering in list(self._gatherings.items()):
            _, batch_of, sequence, *_ = key
            if batch_of == name and sequence <= playbook.batch_sequence:
                # Its batch was closed without it: nobody waits for this node any more.
                gathering.done.set()
                del self._gatherings[key]
        self._groups.published(name, playbook.batch_sequence)

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        """Results that are in the log already are not asked for again."""
        for key in [k for k, gathering in self._gatherings.items() if gathering.source in starts]:
            del self._gatherings[key]
        await self._answered.restore(self._log, starts)

    def drain(self) -> None:
        self._draining.set()
        if self._head_start:
            self._head_start.drain()
        self._model.drain()

    def poisoned(self, record: Record) -> tuple[str, str]:
        return (record.key or b"").decode(errors="replace"), ""

    async def handle(self, record: Record) -> None:
        planned = topics.SCAN[LEVELS[record.topic]].read(record)
        # Each record has a task of its own, so its log lines name its playbook and batch.
        bind_contextvars(playbook=planned.plan.playbook, batch=planned.plan.batch_id)
        if isinstance(planned, Group):
            await self._leaf(planned)
        else:
            await self._child(planned, record)

    def _over(self, record: Planned, node_id: str) -> bool:
        """Return whether a node needs no work: its batch is published, or its result or the root's is in the log."""
        plan = record.plan
        if plan.sequence <= self.playbooks.latest(plan.playbook).batch_sequence:
            return True
        root = identity.node_id(plan.batch_id, len(plan.widths) - 1, 0)
        return self._answered.has(record, node_id) or self._answered.has(record, root)

    async def _leaf(self, group: Group) -> None:
        if not tree.is_valid(group.plan.widths, len(topics.SCAN)):
            raise PoisonError(f"group {group.index} of {group.plan.batch_id} has no possible tree")
        if group.node_id != identity.node_id(group.plan.batch_id, 0, group.index):
            raise PoisonError(f"group {group.index} of {group.plan.batch_id} has a foreign node id")
        if self._over(group, group.node_id):
            return
        await self._refuse_unplanned(group)
        async with self._lock(group.node_id):
            if self._over(group, group.node_id) or stragglers.is_left_out(group.plan, 0, group.index):
                return
            self._limiter.check(group.plan.playbook)
            aggregator = self._aggregator(group, 0)
            base = await self._base(group)
            await self._wave.turn()
            result = await self._groups.result(group.plan, _of_group(aggregator, base, group))
            if result is not None:
                if result.status == "failed":
                    await self._limiter.failed(
                        group.plan.playbook, len(group.members), control=lambda: self._answers(group)
                    )
                else:
                    self._limiter.passed(group.plan.playbook, len(group.members))
                await self._emit(group, 0, group.index, result)

    async def _answers(self, group: Group) -> bool:
        """Return whether the model gives a usable reply about the control, asked in the way of this group."""
        base = empty(CONTROL.reflection.playbook)  # a model may take a name for an instruction
        return (await self._aggregator(group, 0).group(base, [CONTROL])).status != "failed"

    async def _child(self, child: Partial, record: Record) -> None:
        level = LEVELS[record.topic]
        index = await self._check(child, level, record)
        if self._over(child, child.parent_id):
            return
        await self._refuse_unplanned(child)
        key = key_of(child)
        gathering = self._gatherings.setdefault(key, Gathering(record.source))
        gathering.add(child, record)
        wanted = tree.child_indices(child.plan.widths, level, index)
        if len(gathering.children) < len(wanted) and not await self._may_go_on(gathering, child, level):
            # The record stays open until its parent is done: the log is the only memory of it.
            await self._waited(gathering.done)
            return
        async with self._lock(child.parent_id):
            if not self._over(child, child.parent_id):
                base = await self._base(child)
                aggregator = self._aggregator(child, level)
                results = gathering.results
                children = [gathering.children[i] for i in sorted(results)]
                result = await aggregator.combine(base, level, children)
                if tree.is_root(child.plan.widths, level):
                    # Not asked again if the log is away: the combine is paid for.
                    members = await retried(lambda: self._members(child, result))
                    checked = await aggregator.checked(base, child.plan, result, _as_seen_on(base, members))
                    result = stragglers.with_left_out(checked, child.plan, results)
                await self._emit(child, level, index, result)
        gathering.done.set()
        self._gatherings.pop(key, None)

    async def _members(self, record: Planned, result: NodeResult) -> list[GroupMember]:
        """Return the reflections of a batch that got through to its root's result."""
        manifest = await self.manifests.find(await self.manifests.place_of(record))
        if manifest is None:
            return []
        through = {seen.offset for seen in result.seen if seen.ok} & manifest.members.keys()
        name, own_ids = playbook_of(record.plan.playbook), {at: manifest.members[at] for at in through}
        read = await reflections_at(self._log, name, own_ids)
        return [GroupMember(offset=at, reflection=reflection) for at, reflection in read.items()]

    async def _may_go_on(self, gathering: Gathering, child: Partial, level: int) -> bool:
        """Wait for a parent's other children as long as they may take; return whether it may go on without them."""
        grace_s = gathering.grace_s(child, level)
        if grace_s is None:
            return False
        await self._waited(gathering.done, grace_s)
        return True

    async def _waited(self, event: asyncio.Event, timeout_s: float | None = None) -> bool:
        """Return whether ``event`` came in time; draining ends every wait."""
        if event.is_set():
            return True
        waits = [asyncio.create_task(ending.wait()) for ending in (event, self._draining)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
        finally:
            for wait in waits:
                wait.cancel()
        if self._draining.is_set() and not event.is_set():
            raise DrainingError("waiting")
        return event.is_set()

    async def _refuse_unplanned(self, record: Planned) -> None:
        """Raise PoisonError for a record that no manifest planned: its siblings would never come."""
        arrival = self.manifests.arrival(await self.manifests.place_of(record))
        await self._waited(arrival, manifest_cache.ARRIVES_S)
        if forgery := await self.manifests.forgery(record):
            raise PoisonError(forgery)

    async def _check(self, child: Partial, level: int, record: Record) -> int:
        """Return the parent's index; refuse a child that does not belong where it was found."""
        widths = child.plan.widths
        valid = tree.is_valid(widths, len(topics.SCAN))
        if not (
            valid and child.level == level - 1 < len(widths) - 1 and 0 <= child.index < widths[level - 1]
        ):
            raise PoisonError(f"node {child.node_id} does not belong on {record.topic}")
        index = tree.parent_index(widths, child.level, child.index)
        if child.parent_id != identity.node_id(child.plan.batch_id, level, index):
            raise PoisonError(f"node {child.node_id} names a foreign parent")
        home = topics.SCAN[level].place(child, await self._log.partitions(record.topic))
        if home != record.partition:
            raise PoisonError(f"node {child.node_id} is not on its siblings' partition")
        return index

    def _aggregator(self, record: Planned, level: int) -> Aggregator:
        """Return the aggregator for a node of ``level`` under its batch's settings, never this worker's own."""
        settings = record.plan.settings
        named = method(settings.method)
        note = self._templates.difference(record.plan, named)
        model = self._model
        if settings.stragglers:
            model = self._watched if stragglers.is_covered(record.plan, level) else self._hedged
        return Aggregator(
            model,
            shaped(named, settings),
            carry=settings.carry,
            sources=names_counted(settings),
            note=note,
            vectors=self._vectors,
            thresholds=model_and_thresholds(settings.embeddings)[1],
            head_start=self._head_start,
        )

    def _lock(self, node_id: str) -> asyncio.Lock:
        return self._locks.setdefault(node_id, asyncio.Lock())

    async def _base(self, record: Planned) -> Playbook:
        plan = record.plan
        latest = self.playbooks.latest
        await self._arrivals.wait(
            plan.playbook, lambda: latest(plan.playbook).version >= plan.base_version, ARRIVAL_S
        )
        return await self.playbooks.exactly(plan.playbook, plan.base_version)

    async def _emit(self, record: Planned, level: int, index: int, result: NodeResult) -> None:
        """Write a node's result; a result too large for a record is shortened, so that the tree completes."""
        for candidate in chain([result], shorter(result)):
            try:
                outgoing = await self._result(record, level, index, candidate)
            except CodecError:
                continue
            break
        await write(self._log, outgoing)
        self._answered.add(record, identity.node_id(record.plan.batch_id, level, index))

    async def _result(self, record: Planned, level: int, index: int, result: NodeResult) -> Outgoing:
        plan = record.plan
        node_id = identity.node_id(plan.batch_id, level, index)
        result = result.model_copy(update={"reason": result.reason[:500]})
        if tree.is_root(plan.widths, level):
            return topics.UPDATES.record(
                Update(plan=plan, manifest_offset=record.manifest_offset, node_id=node_id, result=result)
            )
        above = topics.SCAN[level + 1]
        partial = Partial(
            plan=plan,
            manifest_offset=record.manifest_offset,
            node_id=node_id,
            parent_id=identity.node_id(
                plan.batch_id, level + 1, tree.parent_index(plan.widths, level, index)
            ),
            level=level,
            index=index,
            result=result,
        )
        partition = above.place(partial, await self._log.partitions(above.name))
        return above.record(partial, partition=partition)


async def _of_group(aggregator: Aggregator, base: Playbook, group: Group) -> NodeResult:
    """Return a group's result; if it is the whole batch, the result is checked as the root's."""
    if group.plan.reason == "consolidate":
        return await aggregator.consolidate(base, group.plan, group.clusters)
    members = _as_seen_on(base, group.members)
    result = await aggregator.group(base, members, group.index)
    is_root = tree.is_root(group.plan.widths, 0)
    return await aggregator.checked(base, group.plan, result, members) if is_root else result


def _as_seen_on(base: Playbook, members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return reflections with the tags and shown entries that count on the line of a version."""
    own = ((member, as_seen_on(base, member.reflection)) for member in members)
    return [
        member if seen is member.reflection else member.model_copy(update={"reflection": seen})
        for member, seen in own
    ]
