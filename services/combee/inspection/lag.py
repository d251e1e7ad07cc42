"""Lag: what a consumer group has not committed, from offsets and the first waiting record alone.

Cheap enough to look at every few seconds under any backlog; ``runtime.backlog`` counts records instead.
"""

from contextlib import aclosing
from dataclasses import dataclass

from combee.inspection.backlog import INPUTS
from combee.ports import Log, TopicPartition
from combee_schemas.topics import AnyTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Offsets that wait (a transaction's markers among them), and when the oldest record was written."""

    records: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The first waiting record of a partition as it was found; none: only markers up to ``end``."""

    low: int
    end: int
    at_ms: int | None


class Lags:
    """The lag of one group; remembers first records, so that only what moved is read again."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self._group = group
        self._firsts: dict[TopicPartition, _First] = {}

    async def look(self) -> dict[str, Lag]:
        """Return the lag per topic, of all partitions, whoever works on them."""
        return {topic.name: await self._of(topic) for topic in INPUTS[self._group]}

    async def _of(self, topic: AnyTopic) -> Lag:
        ends = await self._log.ends(topic.name)
        lows = dict(await self._log.committed(self._group, topic.name))
        if lows.keys() < ends.keys():
            lows = {**await self._log.beginnings(topic.name), **lows}
        records, times = 0, []
        for partition, low in lows.items():
            source = TopicPartition(topic=topic.name, partition=partition)
            at_ms = await self._first(source, low, ends[partition]) if low < ends[partition] else None
            if at_ms is not None:
                records += ends[partition] - low
                times.append(at_ms)
        return Lag(records=records, oldest_ms=min(times, default=None))

    async def _first(self, source: TopicPartition, low: int, end: int) -> int | None:
        known = self._firsts.get(source)
        if known is None or known.low != low or (known.at_ms is None and known.end != end):
            at_ms = None
            async with aclosing(self._log.read(source, low, end)) as records:
                async for record in records:
                    at_ms = record.timestamp_ms
                    break
            known = self._firsts[source] = _First(low=low, end=end, at_ms=at_ms)
        return known.at_ms
