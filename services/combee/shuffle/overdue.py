"""Overdue batches: they are written again, and after some attempts closed without a result."""

from collections.abc import Sequence

import structlog

from combee.adapters.ports import NO_TRACING, Origin, Outgoing, TopicPartition
from combee.core.batching.plan import without_result
from combee.shuffle.cutting import Cutter, notes_of
from combee.shuffle.partition import InFlight, ShuffleState
from combee_schemas import topics

logger = structlog.get_logger()

ANSWERING_S = 60.0
"""Seconds after an answer during which the model counts as answering."""


class Overdue:
    """Checks batches in flight; only time during which the model answers counts towards giving a batch up."""

    def __init__(self, cutter: Cutter, retries: int) -> None:
        self._cutter = cutter
        self._clock = cutter.clock
        self._timeout_s = cutter.rules.settings.batch_timeout_s
        self._retries = retries
        self._answered_at = float("-inf")

    def model_heartbeat(self) -> None:
        """Record that the model has just answered a call."""
        self._answered_at = self._clock.monotonic()

    async def look_after(self, state: ShuffleState, passed: float) -> None:
        """Write overdue batches again, or give them up; ``passed`` is the number of seconds since the last check."""
        now = self._clock.monotonic()
        answered_s = min(passed, ANSWERING_S) if now - self._answered_at <= ANSWERING_S else 0.0
        for in_flight in state.manifests.all_in_flight():
            in_flight.answered_s += answered_s
        for in_flight in state.manifests.all_in_flight():
            is_overdue = now - in_flight.since >= self._timeout_s
            # Its version may have come while another batch was written.
            if is_overdue and state.manifests.is_in_flight(in_flight):
                await self._retry_or_give_up(state, in_flight)

    async def _retry_or_give_up(self, state: ShuffleState, in_flight: InFlight) -> None:
        plan, tries = in_flight.batch.plan, in_flight.emissions
        logger.error(
            "batch_overdue",
            playbook=plan.playbook,
            batch=plan.batch_id,
            sequence=plan.sequence,
            tries=tries,
        )
        # Only the oldest batch is given up: a later one may be complete and wait only for it.
        is_first = plan.sequence == min(state.manifests.in_flight[plan.playbook])
        had_enough_time = in_flight.answered_s >= self._timeout_s
        if is_first and had_enough_time and tries > self._retries:
            await self._give_up(state, in_flight, "no result within the batch time-out")
        else:
            await self._write_again(state, in_flight)

    async def _write_again(self, state: ShuffleState, in_flight: InFlight) -> None:
        """Write a batch's groups again, under the same ids; close it if its reflections have expired."""
        batch = in_flight.batch
        bodies = await self._cutter.read(state, [member.offset for member in batch.members])
        if len(bodies) < len(batch.members):
            await self._give_up(state, in_flight, "its reflections have expired")
            return
        await self._write(state, in_flight, await self._cutter.groups_of(batch, in_flight.offset, bodies))

    async def _give_up(self, state: ShuffleState, in_flight: InFlight, reason: str) -> None:
        """Close a batch without a result."""
        update = without_result(in_flight.batch, in_flight.offset, "failed", reason)
        await self._write(state, in_flight, [topics.UPDATES.record(update)])

    async def _write(self, state: ShuffleState, in_flight: InFlight, outgoing: Sequence[Outgoing]) -> None:
        origins = await self._span_of_cut(state, in_flight)
        with self._cutter.tracing.gathered("batch again", origins, notes_of(in_flight.batch)):
            async with state.transactor.transaction() as transaction:
                await transaction.send(*outgoing)
        in_flight.since = self._clock.monotonic()
        in_flight.emissions += 1

    async def _span_of_cut(self, state: ShuffleState, in_flight: InFlight) -> list[Origin]:
        """Return the span in which a batch was cut, from its manifest's headers."""
        tracing = self._cutter.tracing
        if tracing is NO_TRACING:
            return []
        source = TopicPartition(topic=topics.BATCHES.name, partition=state.number)
        records = await self._cutter.log.read_at(source, [in_flight.offset])
        contexts = map(tracing.context_of, records.values())
        return [Origin(context=context) for context in contexts if context is not None]
