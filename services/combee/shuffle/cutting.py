"""Closing the windows that are due, and cutting a batch: its manifest, groups and offsets in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    Log,
    Notes,
    Origin,
    Outgoing,
    TopicPartition,
    Tracing,
    Transaction,
)
from combee.core.batching import plan
from combee.core.batching.window import Close, Waiting
from combee.core.playbook.shown import needless_bytes, without_needless
from combee.core.playbook.spend import bounded, total
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import Playbooks
from combee.shuffle import partition
from combee.shuffle.admission import Admission
from combee.shuffle.manifests import InFlight
from combee.shuffle.partition import GROUP, REFLECTIONS, ShuffleState
from combee.shuffle.rules import BatchRules
from combee_schemas import topics
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, NodeStatus, Seen, Update

logger = structlog.get_logger()

Bodies = Mapping[int, Reflection]
"""Reflections by their offsets."""
NO_BODIES: Bodies = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Writes batches; its knowledge of a partition is in ``ShuffleState``."""

    log: Log
    clock: Clock
    rules: BatchRules
    admission: Admission
    playbooks: Playbooks
    provenance: Provenance
    tracing: Tracing

    async def close(self, state: ShuffleState, line: str, close: Close) -> None:
        """Cut a batch of the first reflections in a line's window."""
        taken, dropped = state.window(line).take(close.count)
        bodies = await self.bodies(state, taken)
        batch = self.planned(state, line, close, taken, bodies, dropped)
        # Released first: the offsets written with the manifest must not count these as waiting.
        state.release(line, taken)
        await self.cut(state, batch, bodies, taken)

    def planned(
        self,
        state: ShuffleState,
        line: str,
        close: Close,
        taken: Sequence[Waiting],
        bodies: Bodies,
        dropped: Sequence[Member] = (),
    ) -> Batch:
        """Return the batch that these reflections make."""
        window = state.window(line)
        return plan.plan_batch(
            line,
            state.manifests.sequences.get(line, 0) + 1,
            [plan.with_run(item.member, bodies[item.member.offset]) for item in taken],
            [item.size - needless_bytes(bodies[item.member.offset], line) for item in taken],
            settings=self.rules.settings_of(line, state.branches.get(line)),
            base=base_of(self.playbooks.latest(line)),
            reason=close.reason,
            batch_size=self.rules.batch_size(state, line),
            through_offset=state.through(line),
            dropped=dropped,
            waiting=len(window),
            left_out=window.left_out if close.reason == "flush" else None,
            # Reflections of a branch were paid for on the playbook's account, and reflections that are asked about
            # again with its first batch.
            reflect_usage=NOTHING_SPENT
            if line in state.branches or close.reason == "revoke"
            else total(self._usages([bodies[item.member.offset] for item in taken])),
            closed_at_ms=self.clock.now_ms(),
        )

    def _usages(self, reflections: Sequence[Reflection]) -> list[Usage]:
        """Return the reflections' usage, capped at the limit per reflection; larger claims are logged."""
        most = self.admission.spend.policy.reflection_tokens
        usages = [bounded(reflection.usage, most) for reflection in reflections]
        oversized = [
            reflection.reflection_id
            for reflection, usage in zip(reflections, usages, strict=True)
            if usage.tokens_in != reflection.usage.tokens_in
            or usage.tokens_out != reflection.usage.tokens_out
        ]
        if oversized:
            logger.warning(
                "usage_bounded", playbook=reflections[0].playbook, reflections=oversized, most_tokens=most
            )
        return usages

    async def cut(
        self, state: ShuffleState, batch: Batch, bodies: Bodies = NO_BODIES, taken: Sequence[Waiting] = ()
    ) -> None:
        """Write a batch and commit the offsets; its reflections or its order must be released before."""
        batch = batch.model_copy(
            update={
                "oldest_unpublished_offset": state.manifests.oldest_unpublished,
                "oldest_beyond_offset": state.manifests.oldest_beyond,
                "max_inflight_batches": self.rules.settings.max_inflight_batches,
            }
        )
        with self.tracing.gathered("batch", self._origins(taken), _named(batch)):
            async with state.transactor.transaction() as transaction:
                (offset,) = await transaction.send(topics.BATCHES.record(batch, partition=state.number))
                await transaction.send(*await self._groups(batch, offset, bodies))
                await self._commit(state, transaction)
        state.written()
        state.manifests.add(batch, offset, self.clock.monotonic())
        self.admission.tenant.cut(batch.plan.playbook, len(batch.members))
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

    def _origins(self, taken: Sequence[Waiting]) -> list[Origin]:
        now = self.clock.monotonic()
        return [
            Origin(context=item.context, waited_s=now - item.seen_at)
            for item in taken
            if item.context is not None
        ]

    async def commit(self, state: ShuffleState) -> None:
        """Commit offsets and write dead letters, if there is anything to commit or to write."""
        if state.outbox or state.low() != state.committed:
            async with state.transactor.transaction() as transaction:
                await self._commit(state, transaction)
            state.written()

    async def _commit(self, state: ShuffleState, transaction: Transaction) -> None:
        await transaction.send(*state.outbox)
        offsets = {TopicPartition(topic=t, partition=state.number): at for t, at in state.low().items()}
        await transaction.commit_offsets(GROUP, offsets)

    async def emit_again(self, state: ShuffleState, in_flight: InFlight) -> None:
        """Write a batch's groups again, under the same ids; close it if its reflections have expired."""
        batch = in_flight.batch
        bodies = await self._read(state.number, [member.offset for member in batch.members])
        if len(bodies) < len(batch.members):
            await self.give_up(state, in_flight, "its reflections have expired")
            return
        await self._emit(state, in_flight, await self._groups(batch, in_flight.offset, bodies))

    async def give_up(self, state: ShuffleState, in_flight: InFlight, reason: str) -> None:
        """Close a batch without a result."""
        await self._emit(
            state, in_flight, [without_result(in_flight.batch, in_flight.offset, "failed", reason)]
        )

    async def _emit(self, state: ShuffleState, in_flight: InFlight, outgoing: Sequence[Outgoing]) -> None:
        with self.tracing.gathered(
            "batch again", await self._cut_in(state, in_flight), _named(in_flight.batch)
        ):
            async with state.transactor.transaction() as transaction:
                await transaction.send(*outgoing)
        in_flight.since = self.clock.monotonic()
        in_flight.emissions += 1

    async def _cut_in(self, state: ShuffleState, in_flight: InFlight) -> list[Origin]:
        """Return the span in which a batch was cut, from its manifest's headers."""
        if self.tracing is NO_TRACING:
            return []
        source = TopicPartition(topic=topics.BATCHES.name, partition=state.number)
        records = await self.log.read_at(source, [in_flight.offset])
        contexts = map(self.tracing.context_of, records.values())
        return [Origin(context=context) for context in contexts if context is not None]

    async def bodies(self, state: ShuffleState, taken: Sequence[Waiting]) -> Bodies:
        """Return the bodies of these reflections, reading those that are not in memory."""
        in_memory = {item.member.offset: item.body for item in taken if item.body is not None}
        missing = [item.member.offset for item in taken if item.body is None]
        return in_memory | await self._read(state.number, missing)

    async def _read(self, number: int, offsets: Sequence[int]) -> dict[int, Reflection]:
        source = TopicPartition(topic=REFLECTIONS, partition=number)
        records = await self.log.read_at(source, offsets)
        return {
            offset: self.provenance.reflection(record, is_reread=True) for offset, record in records.items()
        }

    async def _groups(self, batch: Batch, offset: int, bodies: Bodies) -> Sequence[Outgoing]:
        if batch.plan.branch is not None:
            return [without_result(batch, offset, "empty", "a fork asks no model")]
        count = await self.log.partitions(topics.GROUPS.name)
        needed = {at: without_needless(body, batch.plan.playbook) for at, body in bodies.items()}
        groups = plan.make_groups(batch, offset, needed)
        return [topics.GROUPS.record(group, partition=topics.GROUPS.place(group, count)) for group in groups]


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes windows: the rules say what may close, the admission what must wait, and the cutter cuts the batch."""

    rules: BatchRules
    admission: Admission
    cutter: Cutter

    async def close_full(self, state: ShuffleState, line: str) -> None:
        """Close a window that holds a whole batch; ``close_due`` handles all other reasons to close."""
        window = state.windows.get(line)
        if window is not None and len(window.waiting) >= self.rules.batch_size(state, line):
            await self._close_window(state, line)

    async def close_due(self, state: ShuffleState) -> list[str]:
        """Cut batches from every window that is due; return the lines that were checked."""
        lines = self.rules.lines_to_look_at(state)
        for line in lines:
            await self._close_window(state, line)
        return lines

    async def _close_window(self, state: ShuffleState, line: str) -> None:
        """Cut batches from a window until it is not due any more or must wait."""
        while (window := state.windows.get(line)) is not None:
            close = self.rules.close(state, line, window)
            if close is None:
                state.remind(line)
                return
            if self.admission.is_busy(state, line):
                return  # the line's next version makes it change
            # Asked last: the admission logs each batch that it holds back.
            if self.admission.hold_back(state, line):
                state.blocked.add(line)
                return
            await self.cutter.close(state, line, close)

    def to_read_again(self, state: ShuffleState, lines: Iterable[str]) -> dict[str, list[int]]:
        """Remove from windows the offsets of reflections that now fit into memory, and return them by line.

        They belong to windows with less than a batch in memory.
        """
        offsets: dict[str, list[int]] = {}
        for line in lines:
            window = state.windows.get(line)
            if window is None or not (window.overflow or window.over_share):
                continue
            size = self.rules.batch_size(state, line)
            lack = size - len(window.waiting)
            if lack > 0:
                offsets[line] = window.take_offsets(max(size, partition.WINDOW_KEPT), lack)
        return offsets


def base_of(playbook: Playbook) -> plan.Base:
    """Return a manifest's description of the version that its batch is planned on."""
    return plan.Base(version=playbook.version, sequence=playbook.batch_sequence)


def _named(batch: Batch) -> Notes:
    """Return the attributes of a batch's span."""
    return {
        "combee.playbook": batch.plan.playbook,
        "combee.batch": batch.plan.batch_id,
        "combee.sequence": batch.plan.sequence,
        "combee.reason": batch.plan.reason,
        "messaging.batch.message_count": len(batch.members),
    }


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
