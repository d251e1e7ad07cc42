"""The statistics of outcomes, and the progress of canaries, from the topics."""

import asyncio
from collections.abc import Mapping

from combee.adapters.ports import Clock, Log, Record, TopicPartition
from combee.core.gate.canary import terms_of
from combee.core.gate.canary_fold import Canary, resumed
from combee.core.gate.canary_verdict import CanaryReport, canary_report
from combee.log.history import all_labels, messages
from combee_schemas import topics
from combee_schemas.canary import CanaryStatistics
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import CANDIDATE, Label

KEPT_S = 2.0


async def outcomes_by_line(log: Log) -> dict[str, OutcomeStatistics]:
    """Return the newest statistics of each playbook and branch."""
    read = map(topics.OUTCOME_STATISTICS.read_or_none, (await _newest(log)).values())
    return {statistics.line: statistics for statistics in read if statistics is not None}


async def _newest(log: Log) -> dict[str, Record]:
    """Return the newest records by key. Those that are not compacted yet may be many times as large: none is kept."""
    topic, newest = topics.OUTCOME_STATISTICS.name, dict[str, Record]()
    for number in range(await log.partitions(topic)):
        async for record in log.read(TopicPartition(topic=topic, partition=number), 0):
            newest[topics.key_of(record)] = record
    return newest


async def outcomes_of(log: Log, line: str) -> OutcomeStatistics | None:
    """Return the newest statistics of a playbook or branch; None if there is no outcome."""
    newest = None
    async for statistics in messages(log, topics.OUTCOME_STATISTICS, line):
        newest = statistics
    return newest


async def canaries(log: Log, now_ms: int) -> dict[str, CanaryReport]:
    """Return the progress of each canary under way, by playbook."""
    candidates = [label for label in await all_labels(log) if label.label == CANDIDATE and terms_of(label)]
    if not candidates:
        return {}
    read = map(topics.CANARY_STATISTICS.read_or_none, (await _newest(log)).values())
    known = {statistics.playbook: statistics for statistics in read if statistics is not None}
    canaries = {label.playbook: _report(label, known.get(label.playbook), now_ms) for label in candidates}
    return {name: canary for name, canary in canaries.items() if canary is not None}


def _report(label: Label, known: CanaryStatistics | None, now_ms: int) -> CanaryReport | None:
    """Return the progress of a candidate's canary; statistics of another candidate do not count."""
    terms = terms_of(label)
    if terms is None:
        return None
    is_its_own = known is not None and known.terms == terms
    canary = resumed(known) if known and is_its_own else Canary(playbook=label.playbook, terms=terms)
    return canary_report(canary, now_ms)


class RecentOutcomes:
    """Statistics of a moment ago, read once for all callers."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._reading = asyncio.Lock()
        self._known: tuple[float, dict[str, OutcomeStatistics], dict[str, CanaryReport]] | None = None

    async def by_line(self) -> Mapping[str, OutcomeStatistics]:
        """Return the statistics of each playbook and branch."""
        return (await self._recent())[1]

    async def canary(self, playbook: str) -> CanaryReport | None:
        """Return the progress of a playbook's canary; None: there is none under way."""
        return (await self._recent())[2].get(playbook)

    async def _recent(self) -> tuple[float, Mapping[str, OutcomeStatistics], Mapping[str, CanaryReport]]:
        async with self._reading:
            now_s = self._clock.monotonic()
            if self._known is None or now_s - self._known[0] > KEPT_S:
                under_way = await canaries(self._log, self._clock.now_ms())
                self._known = now_s, await outcomes_by_line(self._log), under_way
            return self._known
