"""Cutting a batch: its plan, then manifest, groups and offsets in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from combee.adapters.ports import Clock, Log, Notes, Origin, Outgoing, TopicPartition, Tracing, Transaction
from combee.core.batching import plan
from combee.core.batching.window import Taken, Waiting
from combee.core.names.tenants import tenant_of
from combee.core.playbook.shown import needless_bytes, without_needless
from combee.core.playbook.spend import bounded, total
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import Playbooks
from combee.shuffle.partition import GROUP, REFLECTIONS, ShuffleState
from combee.shuffle.rules import BatchRules
from combee_schemas import topics
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Batch
from combee_schemas.reflection import Reflection

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
    playbooks: Playbooks
    provenance: Provenance
    tracing: Tracing

    async def cut(self, state: ShuffleState, line: str, taken: Taken) -> None:
        """Cut a batch of reflections that were taken from their window, or are asked about again."""
        in_memory = {item.member.offset: item.body for item in taken.items if item.body is not None}
        missing = [item.member.offset for item in taken.items if item.body is None]
        bodies = in_memory | (await self.read(state, missing) if missing else {})
        await self.write(state, self._planned(state, line, taken, bodies), bodies, taken.items)

    def _planned(self, state: ShuffleState, line: str, taken: Taken, bodies: Bodies) -> Batch:
        members = [(item, bodies[item.member.offset]) for item in taken.items]
        # The playbook has paid for the reflections of its branch. Reflections that are asked about again were paid
        # for with their first batch.
        is_paid = line in state.branches or taken.reason == "revoke"
        reflect_usage = NOTHING_SPENT if is_paid else self._spent([body for _, body in members])
        settings = self.rules.settings_of(line, state.branches.get(line))
        sequence, through_offset = state.manifests.next_sequence(line), state.through(line)
        return plan.plan_batch(
            line,
            sequence,
            [plan.with_run(item.member, body) for item, body in members],
            [item.size - needless_bytes(body, line) for item, body in members],
            settings=settings,
            base=plan.base_of(self.playbooks.latest(line)),
            reason=taken.reason,
            batch_size=self.rules.batch_size(state, line),
            through_offset=through_offset,
            dropped=taken.dropped,
            waiting=taken.waiting,
            left_out=taken.left_out,
            reflect_usage=reflect_usage,
            closed_at_ms=self.clock.now_ms(),
        )

    def _spent(self, reflections: Sequence[Reflection]) -> Usage:
        """Return the reflections' usage, capped at the limit per reflection; larger claims are logged."""
        most = self.rules.spending.reflection_tokens
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
        return total(usages)

    async def write(
        self, state: ShuffleState, batch: Batch, bodies: Bodies = NO_BODIES, taken: Sequence[Waiting] = ()
    ) -> None:
        """Write a batch and commit the offsets; first take its reflections, or its command, out of the state."""
        batch = batch.model_copy(
            update={
                "oldest_unpublished_offset": state.manifests.oldest_unpublished,
                "oldest_beyond_offset": state.manifests.oldest_beyond,
                "max_inflight_batches": self.rules.settings.max_inflight_batches,
            }
        )
        now = self.clock.monotonic()
        origins = [
            Origin(context=w.context, waited_s=now - w.seen_at) for w in taken if w.context is not None
        ]
        with self.tracing.gathered("batch", origins, notes_of(batch)):
            async with state.transactor.transaction() as transaction:
                (offset,) = await transaction.send(topics.BATCHES.record(batch, partition=state.number))
                await transaction.send(*await self.groups_of(batch, offset, bodies))
                await self._commit(state, transaction)
        state.written()
        state.manifests.add(batch, offset, self.clock.monotonic())
        tenant = tenant_of(batch.plan.playbook)
        self.rules.tenants.admit(tenant, len(batch.members), self.clock.monotonic())
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

    async def commit(self, state: ShuffleState) -> None:
        """Commit offsets and write dead letters."""
        async with state.transactor.transaction() as transaction:
            await self._commit(state, transaction)
        state.written()

    async def _commit(self, state: ShuffleState, transaction: Transaction) -> None:
        await transaction.send(*state.outbox)
        offsets = {TopicPartition(topic=t, partition=state.number): at for t, at in state.low().items()}
        await transaction.commit_offsets(GROUP, offsets)

    async def groups_of(self, batch: Batch, manifest_offset: int, bodies: Bodies) -> Sequence[Outgoing]:
        """Return the records of a batch's groups; a fork has none, and is closed at once."""
        if batch.plan.branch is not None:
            update = plan.without_result(batch, manifest_offset, "empty", "a fork asks no model")
            return [topics.UPDATES.record(update)]
        count = await self.log.partitions(topics.GROUPS.name)
        needed = {at: without_needless(body, batch.plan.playbook) for at, body in bodies.items()}
        groups = plan.make_groups(batch, manifest_offset, needed)
        return [topics.GROUPS.record(group, partition=topics.GROUPS.place(group, count)) for group in groups]

    async def read(self, state: ShuffleState, offsets: Sequence[int]) -> dict[int, Reflection]:
        """Return reflections of a partition by offset; expired ones are missing."""
        source = TopicPartition(topic=REFLECTIONS, partition=state.number)
        records = await self.log.read_at(source, offsets)
        return {at: self.provenance.reflection(record, is_reread=True) for at, record in records.items()}


def notes_of(batch: Batch) -> Notes:
    """Return the attributes of a batch's span."""
    return {
        "combee.playbook": batch.plan.playbook,
        "combee.batch": batch.plan.batch_id,
        "combee.sequence": batch.plan.sequence,
        "combee.reason": batch.plan.reason,
        "messaging.batch.message_count": len(batch.members),
    }
