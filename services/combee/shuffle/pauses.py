"""Which playbooks wait for the next day because of their spend cap; said aloud once each."""

import structlog

from combee.core.playbook import spend
from combee.core.playbook.spend import Pause, SpendPolicy
from combee.ports import Clock
from combee.shuffle.partition import PartitionState
from combee.worker.views import Playbooks

logger = structlog.get_logger()


class Pauses:
    """Asks ``core`` whether a playbook's next batch may go; remembers only what it has said."""

    def __init__(self, policy: SpendPolicy, playbooks: Playbooks, clock: Clock) -> None:
        self.policy = policy
        self._playbooks = playbooks
        self._clock = clock
        self._paused: dict[str, Pause] = {}

    def at_once(self, playbook: str, limit: int) -> int:
        """Return how many batches of a playbook may be in flight."""
        if not self.policy.is_capped:
            return limit
        return spend.at_once(self._playbooks.latest(playbook).spend, self.policy, limit)

    def holds(self, playbook: str, *, in_flight: int, batch_size: int) -> bool:
        """Return whether the next batch, which is due, must wait."""
        if not self.policy.is_capped:
            return False
        found = spend.pause(
            self._playbooks.latest(playbook).spend,
            self.policy,
            in_flight=in_flight,
            batch_size=batch_size,
            now_ms=self._clock.now_ms(),
        )
        known = self._paused.pop(playbook, None)
        if found is not None:
            self._paused[playbook] = found
            if known is None:
                logger.warning("paused", playbook=playbook, reason=found.reason, until_ms=found.until_ms)
        elif known is not None:
            logger.info("resumed", playbook=playbook)
        return found is not None

    def tell(self, state: PartitionState) -> None:
        """Say once of every flush that waits for a paused playbook that it does: it overrides no cap."""
        for offset in state.flushes.keys() - state.told:
            flush = state.flushes[offset]
            pause = self._paused.get(flush.playbook)
            if pause is not None:
                state.told.add(offset)
                logger.warning(
                    "flush_waits", playbook=flush.playbook, reason=pause.reason, until_ms=pause.until_ms
                )
