"""The scan service: it runs the nodes that are ready, gathers children, and writes results for the next level.

``process/worker/loop.py`` calls ``handle`` with each record. The path of a group to the update of its batch:

1. ``_leaf`` takes a group from ``scan.0``. It checks the manifest (``ManifestCache``), reads the version that the
   batch is based on (``_base``), and asks the model (``Aggregator.leaf``).
2. ``_emit`` writes the result as a partial on ``scan.N``, to the partition of its parent.
3. ``_child`` takes a partial. The partial waits in ``Gathering``, its record uncommitted, until its siblings come.
   The last one combines them (``Aggregator.combine``).
4. The root's result is then checked against the batch's reflections (``Aggregator.checked``). A batch of one group
   has no combine: ``Aggregator.leaf`` checks the group's result.
5. ``_emit`` writes the combined result: a partial for the next level, or the root's as the batch's update.

The loop commits an offset once ``handle`` has returned, so the log is the only memory.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from weakref import WeakValueDictionary

import structlog
from structlog.contextvars import bind_contextvars

from combee.adapters.ports import (
    Clock,
    DrainingError,
    LanguageModel,
    Log,
    PoisonError,
    Record,
    TopicPartition,
)
from combee.core.batching import planned, stragglers, tree
from combee.core.batching.tree import Node
from combee.core.names import identity
from combee.log.history import reflections_at
from combee.process.settings.methods import method_of, templates_of
from combee.process.worker import manifest_cache
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee.process.worker.manifest_cache import ManifestCache
from combee.process.worker.retry import retried, write
from combee.process.worker.vectors import Vectors
from combee.process.worker.views import Playbooks
from combee.scan import worth
from combee.scan.aggregate import Aggregator
from combee.scan.head_start import HeadStart
from combee.scan.hedged import HedgedModel
from combee.scan.nodes import Answered, Arrivals, Gathering, GatheringKey, GroupCalls, Wave, key_of
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Group, GroupMember, NodeResult, Partial, Planned

logger = structlog.get_logger()

LEAVES = topics.GROUPS.name
ARRIVAL_S = 0.25
"""Seconds to wait for the base version in the local view before reading it from history."""
LOGGED_KEPT = 100
"""Number of batches remembered whose differing templates were logged."""
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
        self._logged: set[str] = set()
        """Batches whose differing templates were logged."""
        self._limiter = limiter or DeadLetterLimiter(clock)
        self.manifests = ManifestCache(log)
        self._answered = Answered(self.manifests)
        self._gatherings: dict[GatheringKey, Gathering] = {}
        self._groups = GroupCalls()
        self._arrivals = Arrivals()
        self._wave = Wave()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._draining = asyncio.Event()
        # At the start no call runs that a version could end.
        self.playbooks = Playbooks(log, self._published, announces_start=False)

    def _published(self, name: str, playbook: Playbook | None) -> None:
        self._arrivals.arrived(name)
        if playbook is None:
            return
        self._answered.forget(name, playbook.batch_sequence)
        for key, gathering in list(self._gatherings.items()):
            _, batch_of, sequence, *_ = key
            if batch_of == name and sequence <= playbook.batch_sequence:
                # Its batch has a version: no node above takes this result any more.
                gathering.done.set()
                del self._gatherings[key]
        self._groups.published(name, playbook.batch_sequence)

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        """Read which results are in the log already: they are not asked for again."""
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
        message = topics.SCAN[LEVELS[record.topic]].read(record)
        # Each record has a task of its own, so its log lines name its playbook and batch.
        bind_contextvars(playbook=message.plan.playbook, batch=message.plan.batch_id)
        if isinstance(message, Group):
            await self._leaf(message)
        else:
            await self._child(message, record)

    def _is_done(self, record: Planned, node: Node) -> bool:
        """Return whether a node is done: its batch is published, or its result or the root's is in the log."""
        plan = record.plan
        if plan.sequence <= self.playbooks.latest(plan.playbook).batch_sequence:
            return True
        return self._answered.has(record, node.id, identity.node_id(plan.batch_id, len(plan.widths) - 1, 0))

    async def _leaf(self, group: Group) -> None:
        plan = group.plan
        if not tree.is_valid(plan.widths, len(topics.SCAN)):
            raise PoisonError(f"group {group.index} of {plan.batch_id} has no possible tree")
        node = tree.node_at(plan.batch_id, plan.widths, 0, group.index)
        if group.node_id != node.id:
            raise PoisonError(f"group {group.index} of {plan.batch_id} has a foreign node id")
        if self._is_done(group, node):
            return
        await self._refuse_unplanned(group)
        async with self._locks.setdefault(node.id, asyncio.Lock()):
            is_left_out = plan.left_out and tree.is_left_out(plan.widths, group.index, plan.left_out)
            if is_left_out or self._is_done(group, node):
                return
            self._limiter.check(plan.playbook)
            aggregator, base = self._aggregator(plan, 0), await self._base(plan)
            await self._wave.turn()
            result = await self._groups.result(plan, aggregator.leaf(base, group))
            if result is None:
                return
            if result.status == "failed":
                await self._limiter.failed(plan.playbook, len(group.members), control=aggregator.answers)
            else:
                self._limiter.passed(plan.playbook, len(group.members))
            await self._emit(group, node, result)

    async def _child(self, child: Partial, record: Record) -> None:
        level = LEVELS[record.topic]
        node = await self._parent(child, level, record)
        if self._is_done(child, node):
            return
        await self._refuse_unplanned(child)
        key = key_of(child)
        gathering = self._gatherings.setdefault(key, Gathering(record.source))
        gathering.add(child, record)
        wanted = tree.child_indices(child.plan.widths, level, node.index)
        if len(gathering.children) < len(wanted):
            took_s = tuple(gathering.took_s.values())
            grace_s = stragglers.grace_s(child.plan, level, gathering.results, took_s)
            # Without a grace period the wait ends once the parent's result is written, or its batch has a version.
            await self._wait(gathering.done, grace_s)
            if grace_s is None:
                return
        async with self._locks.setdefault(node.id, asyncio.Lock()):
            if not self._is_done(child, node):
                base = await self._base(child.plan)
                aggregator = self._aggregator(child.plan, level)
                results = gathering.results
                children = [gathering.children[i] for i in sorted(results)]
                result = await aggregator.combine(base, level, children)
                if node.parent is None:
                    # An outage of the log is waited out here: otherwise the combine would be paid for again.
                    members = await retried(lambda: self._members(child, result))
                    checked = await aggregator.checked(base, child.plan, result, members)
                    result = stragglers.with_left_out(checked, child.plan, results)
                await self._emit(child, node, result)
        gathering.done.set()
        self._gatherings.pop(key, None)

    async def _members(self, record: Planned, result: NodeResult) -> list[GroupMember]:
        """Return the reflections of a batch that its root's result covers."""
        manifest = await self.manifests.find(await self.manifests.place_of(record))
        if manifest is None:
            return []
        covered = {seen.offset for seen in result.seen if seen.ok} & manifest.members.keys()
        name, own_ids = playbook_of(record.plan.playbook), {at: manifest.members[at] for at in covered}
        read = await reflections_at(self._log, name, own_ids)
        return [GroupMember(offset=at, reflection=reflection) for at, reflection in read.items()]

    async def _wait(self, event: asyncio.Event, timeout_s: float | None) -> None:
        """Wait for ``event``; None: as long as it takes. Draining ends every wait."""
        if event.is_set():
            return
        waits = [asyncio.create_task(ending.wait()) for ending in (event, self._draining)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
        finally:
            for wait in waits:
                wait.cancel()
        if self._draining.is_set() and not event.is_set():
            raise DrainingError("waiting")

    async def _refuse_unplanned(self, record: Planned) -> None:
        """Raise PoisonError for a record that no manifest planned."""
        place = await self.manifests.place_of(record)
        if not self.manifests.has_come(place):
            await self._wait(self.manifests.arrival(place), manifest_cache.ARRIVES_S)
        if forgery := planned.forgery(record, await self.manifests.find(place)):
            raise PoisonError(forgery)

    async def _parent(self, child: Partial, level: int, record: Record) -> Node:
        """Return a child's parent; refuse a child that does not belong where it was found."""
        widths = child.plan.widths
        valid = tree.is_valid(widths, len(topics.SCAN))
        if not (
            valid and child.level == level - 1 < len(widths) - 1 and 0 <= child.index < widths[level - 1]
        ):
            raise PoisonError(f"node {child.node_id} does not belong on {record.topic}")
        parent = tree.node_at(child.plan.batch_id, widths, child.level, child.index).parent
        if parent is None or child.parent_id != parent.id:
            raise PoisonError(f"node {child.node_id} names a foreign parent")
        home = topics.SCAN[level].place(child, await self._log.partitions(record.topic))
        if home != record.partition:
            raise PoisonError(f"node {child.node_id} is not on its siblings' partition")
        return parent

    def _aggregator(self, plan: Plan, level: int) -> Aggregator:
        """Return the aggregator for a node of ``level`` under its batch's settings, never this worker's own."""
        settings, model = plan.settings, self._model
        if settings.stragglers:
            model = self._watched if stragglers.is_covered(plan, level) else self._hedged
        return Aggregator(
            model,
            method_of(settings),
            settings,
            note=self._note(plan),
            vectors=self._vectors,
            head_start=self._head_start,
        )

    def _note(self, plan: Plan) -> str:
        """Return a note for the result if a batch was planned with other prompt templates than this worker has.

        After an upgrade no worker has the old templates, and refusing would dead-letter the batch. So the
        difference is logged, once a batch, and noted in the result; the hashes of the requests identify the prompts.
        """
        planned_with, own = plan.settings.templates, templates_of(plan.settings)
        if planned_with == own:
            return ""
        if plan.batch_id not in self._logged:
            if len(self._logged) >= LOGGED_KEPT:
                self._logged.clear()
            self._logged.add(plan.batch_id)
            logger.error(
                "templates_differ",
                playbook=plan.playbook,
                sequence=plan.sequence,
                method=plan.settings.method,
                planned_with=planned_with,
                own=own,
                remedy="run one version of Combee in all services",
            )
        return f"asked with other templates ({own[:12]}) than it was planned with ({planned_with[:12]})"

    async def _base(self, plan: Plan) -> Playbook:
        with suppress(TimeoutError):
            async with asyncio.timeout(ARRIVAL_S):
                while self.playbooks.latest(plan.playbook).version < plan.base_version:
                    await self._arrivals.next(plan.playbook)
        return await self.playbooks.exactly(plan.playbook, plan.base_version)

    async def _emit(self, record: Planned, node: Node, result: NodeResult) -> None:
        """Write a node's result, so that the tree completes."""
        message, outgoing = worth.fitted(record.plan, record.manifest_offset, node, result)
        if isinstance(message, Partial):
            above = topics.PARTIALS[node.level]
            partition = above.place(message, await self._log.partitions(above.name))
            outgoing = replace(outgoing, partition=partition)
        await write(self._log, outgoing)
        self._answered.add(message)
