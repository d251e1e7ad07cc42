"""The control service: publishes the configured batch size for every playbook that appears."""

import asyncio
from collections.abc import Callable

import structlog

from combee.ports import Clock, Log, Outgoing
from combee.runtime.playbooks import Playbooks
from combee.runtime.view import View
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook

logger = structlog.get_logger()

CURRENT_TIMEOUT_S = 60.0


class Controller:
    """States the batch size and why; idempotent: what already stands is not said again."""

    def __init__(self, log: Log, clock: Clock, *, batch_size: int) -> None:
        self._log = log
        self._clock = clock
        self._batch_size = batch_size
        self._appeared: asyncio.Queue[str] = asyncio.Queue()
        self.playbooks = Playbooks(log, self._changed)
        self.sizes: View[BatchSize] = View(log, topics.BATCH_SIZES, BatchSize)

    def _changed(self, name: str, playbook: Playbook | None) -> None:
        if playbook is not None:
            self._appeared.put_nowait(name)

    async def session(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Publish until ``stop``; views run beside it."""
        await self.sizes.wait_current(CURRENT_TIMEOUT_S)
        await self.playbooks.view.wait_current(CURRENT_TIMEOUT_S)
        while not stop.is_set():
            if self._appeared.empty():
                ready()
            try:
                # Not wait_for: before Python 3.12 it may swallow a cancellation.
                async with asyncio.timeout(0.5):
                    name = await self._appeared.get()
            except TimeoutError:
                continue
            await self._state(name)

    async def _state(self, name: str) -> None:
        known = self.sizes.get(name)
        if known is not None and known.batch_size == self._batch_size:
            return
        size = BatchSize(
            playbook=name,
            batch_size=self._batch_size,
            reason="configured: COMBEE_BATCH_SIZE",
            decided_at_ms=self._clock.now_ms(),
        )
        await self._log.produce(
            Outgoing(topic=topics.BATCH_SIZES.name, key=name.encode(), value=encode(size))
        )
        logger.info("batch_size", playbook=name, batch_size=self._batch_size)
