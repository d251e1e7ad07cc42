"""Batches without a version for too long: emitted again, and at last closed without a result."""

import structlog

from combee.ports import Clock
from combee.settings.batch import BatchSettings
from combee.shuffle.cutting import Cutter
from combee.shuffle.manifests import InFlight
from combee.shuffle.partition import PartitionState

logger = structlog.get_logger()

ANSWERING_S = 60.0
"""How long after an answer the model still counts as answering."""


class Overdue:
    """Looks after batches in flight; only time counts against them in which the model answers."""

    def __init__(self, clock: Clock, settings: BatchSettings, cutter: Cutter) -> None:
        self._clock = clock
        self._settings = settings
        self._cutter = cutter
        self._answered_at = float("-inf")

    def model_heartbeat(self) -> None:
        """Take note that the model answered somebody just now."""
        self._answered_at = self._clock.monotonic()

    async def look_after(self, state: PartitionState) -> None:
        """Emit again, or give up, what is overdue."""
        now = self._clock.monotonic()
        passed = now - state.looked_at if now - self._answered_at <= ANSWERING_S else 0.0
        state.looked_at = now
        for in_flight in state.manifests.all_in_flight():
            in_flight.answered_s += min(passed, ANSWERING_S)
            if now - in_flight.since >= self._settings.batch_timeout_s:
                await self._end(state, in_flight)

    async def _end(self, state: PartitionState, in_flight: InFlight) -> None:
        batch, tries = in_flight.batch.plan, in_flight.emissions
        logger.error(
            "batch_overdue",
            playbook=batch.playbook,
            batch=batch.batch_id,
            sequence=batch.sequence,
            tries=tries,
        )
        # What waits for an earlier batch may be complete: only the first in line is ever given up.
        is_first = batch.sequence == min(state.manifests.in_flight[batch.playbook])
        had_its_time = in_flight.answered_s >= self._settings.batch_timeout_s
        if is_first and had_its_time and tries > self._settings.batch_retries:
            await self._cutter.give_up(state, in_flight, "no result within the batch time-out")
        else:
            await self._cutter.emit_again(state, in_flight)
