"""Closing windows, and batches that are overdue.

A window is closed by cutting a batch, planning it, and writing manifest, groups and offsets in one transaction. A
batch without a version is emitted again after its time-out, and at last closed without a result.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import structlog

from combee.core.batching import plan
from combee.core.batching.window import Close, Share, Waiting, WindowPolicy, due
from combee.core.commands import consolidation
from combee.core.playbook import probation
from combee.core.playbook.clusters import clusters, has_grown
from combee.core.playbook.lines import needless_bytes, without_needless
from combee.core.playbook.spend import bounded, total
from combee.ports import NO_TRACING, Clock, Log, Notes, Origin, Outgoing, TopicPartition, Tracing, Transaction
from combee.settings.batch import BatchSettings
from combee.settings.methods import configured_method, plan_settings
from combee.shuffle import partition
from combee.shuffle.again import read_again
from combee.shuffle.gates import MethodGate, SpendGate, TenantGate
from combee.shuffle.manifests import InFlight
from combee.shuffle.neighbours import NOTHING, Neighbours
from combee.shuffle.partition import GROUP, REFLECTIONS, PartitionState
from combee.worker.provenance import Provenance
from combee.worker.views import Playbooks, View
from combee_schemas import topics
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.command import Command
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch, BranchSettings, PlanSettings
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, NodeStatus, Seen, Update

logger = structlog.get_logger()

ASKED_TOKENS = 32_000
"""Of entries that one consolidation asks about, where no bound is set."""
ANSWERING_S = 60.0
"""How long after an answer the model still counts as answering."""
LOOK_S = 1.0
"""How often it is asked what nothing tells: whether a gate has opened, whether a batch is overdue."""


class Closer:
    """Cuts and writes batches as ``core`` decides; what it knows of a partition is in its ``PartitionState``."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        settings: BatchSettings,
        settings_of_plans: PlanSettings,
        playbooks: Playbooks,
        sizes: View[BatchSize],
        spend_gate: SpendGate,
        neighbours: Neighbours,
        *,
        tenant_gate: TenantGate,
        provenance: Provenance,
        tracing: Tracing,
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._playbooks = playbooks
        self._sizes = sizes
        self._spend_gate = spend_gate
        self._tenant_gate = tenant_gate
        self._method_gate = MethodGate(configured_method(settings).HOLDS, settings.method, playbooks)
        self._answered_at = float("-inf")
        self._settings_of_plans = settings_of_plans
        self._neighbours = neighbours
        self._provenance = provenance
        self._tracing = tracing

    def _policy(self, state: PartitionState, playbook: str) -> WindowPolicy:
        return WindowPolicy(
            batch_size=self.batch_size(state, playbook),
            max_wait_s=self._settings.max_wait_s,
            max_bytes=self._settings.max_batch_bytes,
            max_span=self._settings.max_span,
        )

    def batch_size(self, state: PartitionState, playbook: str) -> int:
        """Return how many reflections make a batch of a playbook."""
        branch = state.branches.get(playbook)
        if branch and branch.settings.batch_size:
            return branch.settings.batch_size
        decided = self._sizes.get(playbook)
        return decided.batch_size if decided else self._settings.batch_size

    def share(self, state: PartitionState, line: str) -> Share | None:
        """Return how much of a batch one source may fill; None: all of it."""
        if not self._settings_of_plans.source_share < 1:
            return None
        known = [source.name for source in self._playbooks.latest(line).taught_by]
        return Share(most=self._most_of_one(state, line), known=known)

    def _most_of_one(self, state: PartitionState, line: str) -> int:
        return max(1, int(self._settings_of_plans.source_share * self.batch_size(state, line)))

    def _settings_for(self, branch: Branch | None) -> PlanSettings:
        """Return what manifests of a branch say of its settings; None: of a playbook."""
        if branch is None:
            return self._settings_of_plans
        settings = self._settings.model_copy(update=branch.settings.own())
        return plan_settings(settings, self._settings_of_plans.playbook_tokens)

    def to_read_again(self, state: PartitionState, lines: Iterable[str]) -> dict[str, list[int]]:
        """Take the offsets out of windows that these have room for now, and return them by line.

        Those are of full windows with less than a batch in memory, and of sources with less than their share there.
        """
        again: dict[str, list[int]] = {}
        for name in lines:
            window = state.windows.get(name)
            if window is None or not (window.beyond or window.held):
                continue
            size, most = self.batch_size(state, name), self._most_of_one(state, name)
            is_short = window.beyond and len(window.waiting) < size
            if is_short or window.has_room(most):
                count = max(size, partition.WINDOW_KEPT) if is_short else 0
                again[name] = window.take_offsets(count, most)
        return again

    async def close_full(self, state: PartitionState, line: str) -> None:
        """Close a window that has a whole batch; what else may close it can wait for ``close_due``."""
        window = state.windows.get(line)
        if window is not None and len(window.waiting) >= self.batch_size(state, line):
            await self._close_window(state, line)

    async def _close_window(self, state: PartitionState, line: str) -> None:
        """Close a window as often as it is due and may."""
        policy = self._policy(state, line)
        while (window := state.windows.get(line)) is not None:
            newest, now = state.seen[REFLECTIONS], self._clock.monotonic()
            close = due(window, policy, now=now, newest_offset=newest)
            if close is None:
                state.remind(line)
                return
            if self._is_busy(state, line):
                return  # the next version is news of this line
            # Asked last: a gate logs what it keeps waiting.
            if self._is_held(state, line):
                state.held.add(line)
                return
            await self._close(state, line, close)

    async def close_due(self, state: PartitionState) -> list[str]:
        """Close every window that is due; re-emit what is overdue; commit what only needs committing.

        Return the lines that were looked at: those that something has changed about.
        """
        if self._clock.monotonic() - state.looked_at >= LOOK_S:
            await self._look_after(state)
        state.settle_flushes()
        state.end_branches()
        for _, command in sorted(state.orders.items()):
            cut = self._fork if command.kind == "branch" else self._consolidate
            if await cut(state, command):
                state.settle_order(command)
        for name in sorted(state.again):
            await self._ask_again(state, name)
        for name in sorted(state.grown):
            await self._consolidate_grown(state, name)
        lines = self._changed(state)
        for name in lines:
            await self._close_window(state, name)
        state.settle_flushes()
        self._spend_gate.log_waiting_flushes(state)
        if state.outbox or state.low() != state.committed:
            async with state.transactor.transaction() as transaction:
                await self._commit(state, transaction)
            self._committed(state)
        return lines

    def _changed(self, state: PartitionState) -> list[str]:
        return state.take_changed(
            seen_by=self._clock.monotonic() - self._settings.max_wait_s,
            before=state.seen[REFLECTIONS] - self._settings.max_span,
        )

    def due_in(self, state: PartitionState) -> float:
        """Return in how many seconds a window may be due by time alone."""
        since, now = state.waiting_since, self._clock.monotonic()
        waits = [since + self._settings.max_wait_s - now] if since is not None else []
        return max(0.0, min(waits, default=math.inf))

    async def _close(self, state: PartitionState, name: str, close: Close) -> None:
        taken, dropped = state.window(name).take(close.count)
        bodies = await self._bodies(state.number, taken)
        batch = self._batch(state, name, close, taken, dropped, bodies)
        # First: the offsets written with the manifest say that these no longer wait.
        state.release(name, taken)
        self._cut(state, batch, await self._write(state, batch, bodies, taken))

    async def _write(
        self,
        state: PartitionState,
        batch: Batch,
        bodies: dict[int, Reflection],
        taken: Sequence[Waiting] = (),
    ) -> int:
        """Write a manifest with its groups and return its offset."""
        with self._tracing.gathered("batch", self._origins(taken), _named(batch)):
            async with state.transactor.transaction() as transaction:
                (offset,) = await transaction.send(topics.BATCHES.record(batch, partition=state.number))
                await transaction.send(*await self._groups(batch, offset, bodies))
                await self._commit(state, transaction)
        self._committed(state)
        return offset

    async def _cut_in(self, state: PartitionState, in_flight: InFlight) -> list[Origin]:
        """Return the span that a batch was cut in, as its manifest's headers name it: whoever cut it."""
        if self._tracing is NO_TRACING:
            return []
        source = TopicPartition(topic=topics.BATCHES.name, partition=state.number)
        records = await self._log.read_at(source, [in_flight.offset])
        contexts = map(self._tracing.context_of, records.values())
        return [Origin(context=context) for context in contexts if context is not None]

    def _origins(self, taken: Sequence[Waiting]) -> list[Origin]:
        now = self._clock.monotonic()
        return [Origin(context=i.context, waited_s=now - i.seen_at) for i in taken if i.context is not None]

    def _cut(self, state: PartitionState, batch: Batch, offset: int) -> None:
        state.manifests.add(batch, offset, self._clock.monotonic())
        self._tenant_gate.cut(batch.plan.playbook, len(batch.members))
        logger.info(
            "batch",
            playbook=batch.plan.playbook,
            batch=batch.plan.batch_id,
            sequence=batch.plan.sequence,
            reflections=len(batch.members),
            widths=batch.plan.widths,
            reason=batch.plan.reason,
            dropped=len(batch.dropped),
        )

    async def _consolidate_grown(self, state: PartitionState, name: str) -> None:
        """Cut a batch that nobody asked for, if the playbook still has grown so far; then look again when it changes.

        Everything that decides is in the log: who takes over decides the same, and never twice about one growth.
        """
        base, budget = self._playbooks.latest(name), self._settings_of_plans.playbook_tokens
        in_flight = state.manifests.in_flight.get(name, {}).values()
        is_under_way = any(batch.batch.plan.reason == "consolidate" for batch in in_flight)
        is_due = not is_under_way and has_grown(base, self._settings.consolidate_above, budget)
        if not is_due or await self._consolidate(state, consolidation(base), automatic=True):
            state.grown.discard(name)

    async def _consolidate(self, state: PartitionState, command: Command, *, automatic: bool = False) -> bool:
        """Cut a batch without reflections; return whether it is over, or else waits for its turn."""
        name = command.playbook
        base = self._playbooks.latest(name)
        is_done = (
            command.command_id in base.commands or (name, command.command_id) in state.manifests.executed
        )
        if is_done or not base.entries or base.holds != "entries":
            return True
        if not self._may_go(state, name):
            return False
        entries = probation.shown(base).entries
        neighbours = NOTHING if command.clusters is not None else self._neighbours.of(name, entries)
        if neighbours is None:
            return False
        asked = command.clusters
        if asked is None:
            asked = clusters(entries, self._settings.aggregate_tokens or ASKED_TOKENS, neighbours.pairs)
        batch = plan.plan_consolidation(
            name,
            state.manifests.sequences.get(name, 0) + 1,
            asked,
            settings=self._settings_for(state.branches.get(name)),
            base=_base_of(base),
            command_id=command.command_id,
            automatic=automatic,
            embeddings=neighbours.embeddings,
            usage=neighbours.usage,
            through_offset=state.through(name),
            waiting=len(state.windows.get(name, ())),
            closed_at_ms=self._clock.now_ms(),
        )
        batch = batch.model_copy(update=self._in_flight_fields(state))
        # First: the offsets written with the manifest say that it is over.
        state.settle_order(command)
        self._cut(state, batch, await self._write(state, batch, {}))
        return True

    async def _ask_again(self, state: PartitionState, name: str) -> None:
        """Cut a batch of reflections that a version wants to be asked about again; the rest waits for its version."""
        wanted = self._playbooks.latest(name).again
        in_flight = state.manifests.in_flight.get(name, {}).values()
        if not wanted or any(batch.batch.plan.reason == "revoke" for batch in in_flight):
            state.again.discard(name)
        elif self._may_go(state, name):
            is_known = partial(state.manifests.knows, name)
            taken = await read_again(self._log, state.number, wanted, is_known, self._provenance)
            state.again.discard(name)
            if taken:
                bodies = {item.member.offset: item.body for item in taken if item.body is not None}
                close = Close(count=len(taken), reason="revoke")
                batch = self._batch(state, name, close, taken, (), bodies)
                self._cut(state, batch, await self._write(state, batch, bodies))

    async def _fork(self, state: PartitionState, command: Command) -> bool:
        """Begin a branch between two batches of its playbook; return whether it is over, or else waits for that.

        Then every reflection of the playbook is in the version that the branch begins with, or in its window.
        """
        line, playbook = command.line, self._playbooks.latest(command.playbook)
        current = self._playbooks.latest(line)
        is_done = (
            command.command_id in current.commands or (line, command.command_id) in state.manifests.executed
        )
        if is_done or line in state.branches or not playbook.version or playbook.origin == "delete":
            return True
        if state.manifests.count_in_flight(playbook.name) or state.manifests.count_in_flight(line):
            return False
        branch = Branch(
            of=playbook.name,
            version=playbook.version,
            sequence=playbook.batch_sequence,
            settings=command.settings or BranchSettings(),
        )
        batch = plan.plan_fork(
            line,
            state.manifests.sequences.get(line, 0) + 1,
            branch,
            settings=self._settings_for(branch),
            base=_base_of(current),
            command_id=command.command_id,
            through_offset=state.through(playbook.name),
            closed_at_ms=self._clock.now_ms(),
        )
        batch = batch.model_copy(update=self._in_flight_fields(state))
        # First: the offsets written with the manifest say that it is over, and that its window waits.
        state.settle_order(command)
        state.fork(line, branch)
        self._cut(state, batch, await self._write(state, batch, {}))
        return True

    def _may_go(self, state: PartitionState, name: str) -> bool:
        """Return whether a playbook may have another batch now."""
        return not (self._is_busy(state, name) or self._is_held(state, name))

    def _is_busy(self, state: PartitionState, name: str) -> bool:
        """Return whether a playbook has as many batches in flight as it may."""
        limit = self._spend_gate.at_once(name, self._settings.max_inflight_batches)
        return state.manifests.count_in_flight(name) >= limit

    def _is_held(self, state: PartitionState, name: str) -> bool:
        """Return whether something else than batches in flight holds back a playbook's next one."""
        return (
            state.is_forking(name)
            or self._method_gate.blocks(name)
            or self._spend_gate.blocks(state, name, partial(self.batch_size, state))
            or self._tenant_gate.blocks(name)
        )

    def _in_flight_fields(self, state: PartitionState) -> dict[str, int]:
        return {
            "oldest_unpublished_offset": state.manifests.oldest_unpublished,
            "oldest_beyond_offset": state.manifests.oldest_beyond,
            "max_inflight_batches": self._settings.max_inflight_batches,
        }

    def _batch(
        self,
        state: PartitionState,
        name: str,
        close: Close,
        taken: Sequence[Waiting],
        dropped: Sequence[Member],
        bodies: Mapping[int, Reflection],
    ) -> Batch:
        base = self._playbooks.latest(name)
        batch = plan.plan_batch(
            name,
            state.manifests.sequences.get(name, 0) + 1,
            [plan.with_run(item.member, bodies[item.member.offset]) for item in taken],
            [item.size - needless_bytes(bodies[item.member.offset], name) for item in taken],
            settings=self._settings_for(state.branches.get(name)),
            base=_base_of(base),
            reason=close.reason,
            batch_size=self.batch_size(state, name),
            through_offset=state.through(name),
            dropped=dropped,
            waiting=len(state.window(name)),
            left_out=state.window(name).left_out if close.reason == "flush" else None,
            # A reflection that a branch learns from was paid for on its playbook's account, one that is asked about
            # again with its first batch.
            reflect_usage=NOTHING_SPENT
            if name in state.branches or close.reason == "revoke"
            else total(self._usages([bodies[item.member.offset] for item in taken])),
            closed_at_ms=self._clock.now_ms(),
        )
        return batch.model_copy(update=self._in_flight_fields(state))

    def _usages(self, members: Sequence[Reflection]) -> list[Usage]:
        """Return what the reflections took, as far as that is believed; what is not is logged."""
        most = self._spend_gate.policy.reflection_tokens
        usages = [bounded(member.usage, most) for member in members]
        beyond = [
            member.reflection_id
            for member, usage in zip(members, usages, strict=True)
            if usage.tokens_in != member.usage.tokens_in or usage.tokens_out != member.usage.tokens_out
        ]
        if beyond:
            logger.warning(
                "usage_bounded", playbook=members[0].playbook, reflections=beyond, most_tokens=most
            )
        return usages

    async def _bodies(self, number: int, taken: Sequence[Waiting]) -> dict[int, Reflection]:
        in_memory = {item.member.offset: item.body for item in taken if item.body is not None}
        missing = [item.member.offset for item in taken if item.body is None]
        return in_memory | await self._read_bodies(number, missing)

    async def _read_bodies(self, number: int, offsets: Sequence[int]) -> dict[int, Reflection]:
        source = TopicPartition(topic=REFLECTIONS, partition=number)
        records = await self._log.read_at(source, offsets)
        return {offset: self._provenance.reflection(record, again=True) for offset, record in records.items()}

    async def _groups(self, batch: Batch, offset: int, bodies: dict[int, Reflection]) -> Sequence[Outgoing]:
        if batch.plan.branch is not None:
            return [without_result(batch, offset, "empty", "a fork asks no model")]
        count = await self._log.partitions(topics.GROUPS.name)
        needed = {at: without_needless(body, batch.plan.playbook) for at, body in bodies.items()}
        groups = plan.make_groups(batch, offset, needed)
        return [topics.GROUPS.record(group, partition=topics.GROUPS.place(group, count)) for group in groups]

    async def _commit(self, state: PartitionState, transaction: Transaction) -> None:
        await transaction.send(*state.outbox)
        offsets = {TopicPartition(topic=t, partition=state.number): at for t, at in state.low().items()}
        await transaction.commit_offsets(GROUP, offsets)

    def _committed(self, state: PartitionState) -> None:
        state.outbox.clear()
        state.committed = state.low()

    def model_heartbeat(self) -> None:
        """Take note that the model answered somebody just now."""
        self._answered_at = self._clock.monotonic()

    async def _look_after(self, state: PartitionState) -> None:
        """Ask gates again; emit overdue batches again, against which only time counts in which the model answers."""
        now = self._clock.monotonic()
        passed = now - state.looked_at if now - self._answered_at <= ANSWERING_S else 0.0
        state.looked_at = now
        state.changed |= state.held
        state.held.clear()
        for in_flight in state.manifests.all_in_flight():
            in_flight.answered_s += min(passed, ANSWERING_S)
            if now - in_flight.since >= self._settings.batch_timeout_s:
                await self._overdue(state, in_flight)

    async def _overdue(self, state: PartitionState, in_flight: InFlight) -> None:
        """Emit a batch's groups again under the same ids; at last close it degraded."""
        batch, tries = in_flight.batch, in_flight.emissions
        logger.error(
            "batch_overdue",
            playbook=batch.plan.playbook,
            batch=batch.plan.batch_id,
            sequence=batch.plan.sequence,
            tries=tries,
        )
        # What waits for an earlier batch may be complete: only the first in line is ever given up.
        first = all(
            batch.plan.sequence <= sequence for sequence in state.manifests.in_flight[batch.plan.playbook]
        )
        patient = not first or in_flight.answered_s < self._settings.batch_timeout_s
        if patient or tries <= self._settings.batch_retries:
            bodies = await self._read_bodies(state.number, [m.offset for m in batch.members])
            outgoing = await self._groups(batch, in_flight.offset, bodies)
        else:
            outgoing = [
                without_result(batch, in_flight.offset, "failed", "no result within the batch time-out")
            ]
        with self._tracing.gathered("batch again", await self._cut_in(state, in_flight), _named(batch)):
            async with state.transactor.transaction() as transaction:
                await transaction.send(*outgoing)
        in_flight.since = self._clock.monotonic()
        in_flight.emissions += 1


def _named(batch: Batch) -> Notes:
    """Return what the span of a batch says of it."""
    return {
        "combee.playbook": batch.plan.playbook,
        "combee.batch": batch.plan.batch_id,
        "combee.sequence": batch.plan.sequence,
        "combee.reason": batch.plan.reason,
        "messaging.batch.message_count": len(batch.members),
    }


def _base_of(playbook: Playbook) -> plan.Base:
    return plan.Base(
        version=playbook.version, sequence=playbook.batch_sequence, history_offset=playbook.history_offset
    )


def without_result(batch: Batch, manifest_offset: int, status: NodeStatus, reason: str) -> Outgoing:
    """Return an update that closes a batch without a result: its reflections, if any, go to the dead letters."""
    result = NodeResult(
        status=status,
        reason=reason,
        seen=tuple(
            Seen(reflection_id=member.reflection_id, offset=member.offset, ok=False, source=member.source)
            for member in batch.members
        ),
        usage=Usage(skips=sum(batch.plan.widths)),
    )
    node_id = f"{'degraded' if status == 'failed' else status}-{batch.plan.batch_id}"
    return topics.UPDATES.record(
        Update(plan=batch.plan, manifest_offset=manifest_offset, node_id=node_id, result=result)
    )
