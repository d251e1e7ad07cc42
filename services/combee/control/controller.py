"""The control service: each new version may change the batch size in ``batch-sizes``."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from combee.adapters.ports import Clock, Log, PoisonError
from combee.core.batching.sizing.decide import decide
from combee.core.batching.sizing.policy import Iteration, SizingPolicy, iteration_of
from combee.process.worker.views import Playbooks, View
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook

logger = structlog.get_logger()

CURRENT_TIMEOUT_S = 60.0
STOP_CHECK_S = 0.5
"""Seconds between checks whether the service is to stop."""
AT_ONCE = 500
"""Maximum number of decisions written in one call."""


class Controller:
    """Decides batch sizes.

    Its only state is the last decision, which a restart reads back. Two controllers at once decide alike, because a
    decision follows from the one before and the version. A controller that lags may restore an older size for one
    batch.
    """

    def __init__(self, log: Log, clock: Clock, policy: SizingPolicy) -> None:
        self._log = log
        self._clock = clock
        self._policy = policy
        self._seen: asyncio.Queue[Iteration] = asyncio.Queue()
        self._standing: dict[str, BatchSize] = {}
        self.playbooks = Playbooks(log, self._changed)
        self.sizes: View[BatchSize] = View(log, topics.BATCH_SIZES)

    def _changed(self, name: str, playbook: Playbook | None) -> None:
        if playbook is None:
            self._standing.pop(name, None)
        else:
            self._seen.put_nowait(iteration_of(playbook))

    async def session(self, stop: asyncio.Event, on_turn: Callable[[], None]) -> None:
        """Decide until ``stop``, while its views run; ``on_turn`` is called while there is nothing to decide."""
        await self.sizes.wait_current(CURRENT_TIMEOUT_S)
        await self.playbooks.view.wait_current(CURRENT_TIMEOUT_S)
        while not stop.is_set():
            if self._seen.empty():
                on_turn()
            try:
                # Not wait_for: before Python 3.12 it may swallow a cancellation.
                async with asyncio.timeout(STOP_CHECK_S):
                    seen = await self._seen.get()
            except TimeoutError:
                continue
            # At the start every playbook has one.
            waiting = min(AT_ONCE - 1, self._seen.qsize())
            await self._decide([seen, *(self._seen.get_nowait() for _ in range(waiting))])

    def _latest(self, name: str) -> BatchSize | None:
        """Return the newest decision: our own, which may not be in the view yet, or another control's."""
        said = [decision for decision in (self._standing.get(name), self.sizes.get(name)) if decision]
        return max(said, key=lambda decision: decision.sequence, default=None)

    async def _decide(self, seen: Sequence[Iteration]) -> None:
        """Decide about these iterations in order, and write all decisions in one call."""
        before = dict(self._standing)
        records = []
        for iteration in seen:
            decided = self._decided(iteration)
            if decided is None:
                continue
            try:
                records.append(topics.BATCH_SIZES.record(decided))
            except CodecError as error:
                # There is no record to dead-letter: the size stays, and the next version decides again.
                logger.error("batch_size_unwritten", playbook=iteration.playbook, error=str(error))
                continue
            self._standing[iteration.playbook] = decided
        try:
            if records:
                await self._log.produce(*records)
        except PoisonError as error:
            self._standing = before
            logger.error("batch_size_unwritten", playbooks=len(records), error=str(error))

    def _decided(self, seen: Iteration) -> BatchSize | None:
        """Return the decision to write; None: the present one stays."""
        name = seen.playbook
        standing = self._latest(name)
        decided = decide(standing, seen, self._policy)
        if decided == standing:
            return None
        if standing is None or (standing.batch_size, standing.phase) != (decided.batch_size, decided.phase):
            decided = decided.model_copy(update={"decided_at_ms": self._clock.now_ms()})
            logger.info("batch_size", playbook=name, size=decided.batch_size, reason=decided.reason)
        return decided
