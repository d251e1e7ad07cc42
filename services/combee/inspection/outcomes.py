"""The statistics of outcomes, from the topics."""

import asyncio
from collections.abc import Mapping

from combee.history import messages, whole
from combee.ports import Clock, Log
from combee_schemas import topics
from combee_schemas.outcome import OutcomeStatistics

KEPT_S = 2.0


async def outcomes_by_line(log: Log) -> dict[str, OutcomeStatistics]:
    """Return the newest statistics of each playbook and branch."""
    read = map(topics.OUTCOME_STATISTICS.read_or_none, await whole(log, topics.OUTCOME_STATISTICS))
    return {statistics.line: statistics for statistics in read if statistics is not None}


async def outcomes_of(log: Log, line: str) -> OutcomeStatistics | None:
    """Return the newest statistics of one of them; None if no run was told of."""
    newest = None
    async for statistics in messages(log, topics.OUTCOME_STATISTICS, line):
        newest = statistics
    return newest


class RecentOutcomes:
    """The statistics as they were a moment ago, read once for all who ask."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._reading = asyncio.Lock()
        self._known: tuple[float, dict[str, OutcomeStatistics]] | None = None

    async def by_line(self) -> Mapping[str, OutcomeStatistics]:
        """Return the statistics of each playbook and branch."""
        async with self._reading:
            now_s = self._clock.monotonic()
            if self._known is None or now_s - self._known[0] > KEPT_S:
                self._known = now_s, await outcomes_by_line(self._log)
            return self._known[1]
