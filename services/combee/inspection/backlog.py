"""The backlog of a service: records it has not committed, and how long the oldest has waited."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from combee.ports import Clock, Log, TopicPartition
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.topics import AnyTopic

INPUTS: Mapping[str, tuple[AnyTopic, ...]] = {
    "reflect": (topics.TRACES,),
    "shuffle": (topics.REFLECTIONS, topics.COMMANDS),
    "scan": topics.SCAN,
    "publish": (topics.UPDATES, topics.COMMANDS),
}
"""What each consumer group reads."""

COUNTED = 10_000
"""So far records are read and counted; beyond, offsets are, transaction markers included."""

TAIL = 50
"""So many offsets before the end of ``batches`` there is usually a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Records of a group that are not committed; the oldest one's age in seconds, None without any."""

    lag: int
    oldest_uncommitted_s: float | None


async def backlog(log: Log, group: str, clock: Clock) -> Backlog:
    """Return what ``group`` has not committed; what is left of a partition may be markers only, hence 0."""
    parts = [await _of_topic(log, group, topic) for topic in INPUTS[group]]
    times = [at for _, at in parts if at is not None]
    age_s = max(0, clock.now_ms() - min(times)) / 1000 if times else None
    return Backlog(lag=sum(lag for lag, _ in parts), oldest_uncommitted_s=age_s)


async def _of_topic(log: Log, group: str, topic: AnyTopic) -> tuple[int, int | None]:
    committed, ends = await log.committed(group, topic.name), await log.ends(topic.name)
    starts = {p: max(first, committed.get(p, 0)) for p, first in (await log.beginnings(topic.name)).items()}
    behind = {p: (at, ends[p]) for p, at in starts.items() if at < ends[p]}
    parts = await asyncio.gather(
        *(_count(log, TopicPartition(topic=topic.name, partition=p), *span) for p, span in behind.items())
    )
    return _total(parts)


def _total(parts: Sequence[tuple[int, int | None]]) -> tuple[int, int | None]:
    times = [at for _, at in parts if at is not None]
    return sum(lag for lag, _ in parts), min(times, default=None)


async def _count(log: Log, source: TopicPartition, start: int, end: int) -> tuple[int, int | None]:
    """Return how many records there are and when the first was written."""
    read_to = min(end, start + COUNTED)
    count, first = 0, None
    async for record in log.read(source, start, read_to):
        first = record.timestamp_ms if first is None else first
        count += 1
    return count + (end - read_to), first


async def newest_batches(log: Log) -> dict[str, int]:
    """Return the sequence of the newest manifest of every playbook that may have batches in flight.

    Every manifest says where the oldest of its partition stood that had no version then, so that neither
    all manifests nor all versions need be read.
    """
    newest: dict[str, int] = {}
    for batch in await _candidates(log):
        newest[batch.plan.playbook] = max(batch.plan.sequence, newest.get(batch.plan.playbook, 0))
    return newest


async def unpublished(log: Log, published: Mapping[str, int]) -> list[Batch]:
    """Return the manifests without a version; ``published`` is the last sequence of each playbook's versions."""
    found = {(batch.plan.playbook, batch.plan.sequence): batch for batch in await _candidates(log)}
    return [batch for (name, sequence), batch in found.items() if sequence > published.get(name, 0)]


async def _candidates(log: Log) -> list[Batch]:
    found: list[Batch] = []
    first = await log.beginnings(topics.BATCHES.name)
    for partition, end in (await log.ends(topics.BATCHES.name)).items():
        source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
        found += await _latest_manifests(log, source, first[partition], end)
    return found


async def _latest_manifests(log: Log, source: TopicPartition, first: int, end: int) -> list[Batch]:
    start, span = end, TAIL
    found: list[Batch] = []
    while start > first and not found:
        start, span = max(first, end - span), span * 8
        found = [batch async for batch in _manifests(log, source, start, end)]
    oldest = found[-1].oldest_unpublished_offset if found else -1
    if 0 <= oldest < start:
        found += [batch async for batch in _manifests(log, source, oldest, start)]
    return found


async def _manifests(log: Log, source: TopicPartition, start: int, end: int) -> AsyncIterator[Batch]:
    async for record in log.read(source, start, end):
        batch = topics.BATCHES.read_or_none(record)
        if batch is not None:
            yield batch
