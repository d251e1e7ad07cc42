"""Batches without a version for too long: emitted again, and at last closed without a result."""

import structlog

from combee.adapters.ports import Clock
from combee.process.settings.batch import BatchSettings
from combee.shuffle.cutting import Cutter
from combee.shuffle.manifests import InFlight
from combee.shuffle.partition import ShuffleState

logger = structlog.get_logger()

ANSWERING_S = 60.0
"""How long after an answer the model still counts as answering."""


class Overdue:
    """Checks batches in flight; only time during which the model answers counts against them."""

    def __init__(self, clock: Clock, settings: BatchSettings, cutter: Cutter, retries: int) -> None:
        self._clock = clock
        self._settings = settings
        self._cutter = cutter
        self._retries = retries
        self._answered_at = float("-inf")

    def model_heartbeat(self) -> None:
        """Record that the model has just answered a call."""
        self._answered_at = self._clock.monotonic()

    async def look_after(self, state: ShuffleState, passed: float) -> None:
        """Emit overdue batches again, or give them up; ``passed``: seconds since the last check."""
        now = self._clock.monotonic()
        answered_s = min(passed, ANSWERING_S) if now - self._answered_at <= ANSWERING_S else 0.0
        for in_flight in state.manifests.all_in_flight():
            in_flight.answered_s += answered_s
        for in_flight in state.manifests.all_in_flight():
            is_overdue = now - in_flight.since >= self._settings.batch_timeout_s
            # Its version may come while another one is written.
            if is_overdue and state.manifests.is_in_flight(in_flight):
                await self._emit_or_give_up(state, in_flight)

    async def _emit_or_give_up(self, state: ShuffleState, in_flight: InFlight) -> None:
        """Emit a batch's groups again under the same ids; at last close it without a result."""
        plan, tries = in_flight.batch.plan, in_flight.emissions
        logger.error(
            "batch_overdue",
            playbook=plan.playbook,
            batch=plan.batch_id,
            sequence=plan.sequence,
            tries=tries,
        )
        # A later batch may be complete and wait for this one: only the first in line is ever given up.
        is_first = plan.sequence == min(state.manifests.in_flight[plan.playbook])
        had_its_time = in_flight.answered_s >= self._settings.batch_timeout_s
        if is_first and had_its_time and tries > self._retries:
            await self._cutter.give_up(state, in_flight, "no result within the batch time-out")
        else:
            await self._cutter.emit_again(state, in_flight)
