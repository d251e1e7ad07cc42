"""Lag of a service: the records that its consumer group has not committed, and since when the oldest waits.

It asks for offsets and the first waiting record alone: cheap enough for every few seconds under any backlog.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from combee.adapters.ports import Clock, Log, TopicPartition
from combee_schemas import topics
from combee_schemas.topics import AnyTopic

INPUTS: Mapping[str, tuple[AnyTopic, ...]] = {
    "reflect": (topics.TRACES,),
    "shuffle": (topics.REFLECTIONS, topics.COMMANDS),
    "scan": topics.SCAN,
    "publish": (topics.UPDATES, topics.COMMANDS, topics.VERDICTS),
    "control": (topics.OUTCOMES,),
}
"""Topics that each consumer group reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The number of waiting offsets (including transactions' markers), and the time of the oldest record."""

    records: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The waiting offsets of all topics; the age of the oldest record in seconds, None without any."""

    lag: int
    oldest_uncommitted_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The first waiting record of a partition; none: only markers up to ``end``."""

    low: int
    end: int
    at_ms: int | None


class Lags:
    """The lag of one group; it remembers first records, so that only moved partitions are read again."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self._group = group
        self._firsts: dict[TopicPartition, _First] = {}

    async def look(self) -> dict[str, Lag]:
        """Return the lag per topic, over all partitions and all workers."""
        return {topic.name: await self._of(topic) for topic in INPUTS[self._group]}

    async def _of(self, topic: AnyTopic) -> Lag:
        ends = await self._log.ends(topic.name)
        committed = await self._log.committed(self._group, topic.name)
        firsts = await self._log.beginnings(topic.name)
        lows = {partition: max(first, committed.get(partition, 0)) for partition, first in firsts.items()}
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


async def waiting(log: Log) -> list[tuple[int | None, int]]:
    """Return the time of the oldest record that a pause would hold back, and its retention: traces, reflections."""
    return [
        ((await Lags(log, group).look())[topic.name].oldest_ms, await log.retention_ms(topic.name))
        for group, topic in (("reflect", topics.TRACES), ("shuffle", topics.REFLECTIONS))
    ]


async def backlog(log: Log, group: str, clock: Clock) -> Backlog:
    """Return the lag of a group over all its topics."""
    lags = (await Lags(log, group).look()).values()
    times = [lag.oldest_ms for lag in lags if lag.oldest_ms is not None]
    age_s = max(0, clock.now_ms() - min(times)) / 1000 if times else None
    return Backlog(lag=sum(lag.records for lag in lags), oldest_uncommitted_s=age_s)
