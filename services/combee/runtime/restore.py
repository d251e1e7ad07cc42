"""Restoring from the log: where the unfinished work begins, and what was written since."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from combee.ports import Log, Record, TopicPartition


async def read_since(log: Log, topic: str, since_ms: int) -> AsyncIterator[Record]:
    """Yield every record of ``topic`` from ``since_ms`` on, partition by partition."""
    starts, ends = await log.offsets_at(topic, since_ms), await log.ends(topic)
    for partition in (p for p in starts if starts[p] < ends[p]):
        async for record in log.read(TopicPartition(topic=topic, partition=partition), starts[partition]):
            yield record


async def oldest_timestamp(log: Log, starts: Mapping[TopicPartition, int]) -> int | None:
    """Return the time of the oldest record at or after ``starts``; None if there is none."""
    ends = {name: await log.ends(name) for name in {tp.topic for tp in starts}}
    waiting = {tp: at for tp, at in starts.items() if at < ends[tp.topic][tp.partition]}
    found = await asyncio.gather(*(_first_timestamp(log, tp, at) for tp, at in waiting.items()))
    return min((one for one in found if one is not None), default=None)


async def _first_timestamp(log: Log, source: TopicPartition, start: int) -> int | None:
    async with aclosing(log.read(source, start)) as records:
        async for record in records:
            return record.timestamp_ms
    return None
