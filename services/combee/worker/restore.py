"""Restoring from the log: where the unfinished work begins, and what was written since.

Partitions and topics are read side by side: one after the other, a restart would wait for each of them.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from combee.ports import CombeeError, Log, Record, TopicPartition


async def read_since(log: Log, topic: str, since_ms: int, take: Callable[[Record], None]) -> None:
    """Give every record of ``topic`` from ``since_ms`` on to ``take``, in order per partition."""
    starts, ends = await asyncio.gather(log.offsets_at(topic, since_ms), log.ends(topic))

    async def one(partition: int) -> None:
        async for record in log.read(TopicPartition(topic=topic, partition=partition), starts[partition]):
            take(record)

    try:
        async with asyncio.TaskGroup() as group:
            for partition in (p for p in starts if starts[p] < ends[p]):
                group.create_task(one(partition))
    except* CombeeError as failed:
        raise failed.exceptions[0] from failed


async def oldest_timestamp(log: Log, starts: Mapping[TopicPartition, int]) -> int | None:
    """Return the time of the oldest record at or after ``starts``; None if there is none."""
    names = sorted({tp.topic for tp in starts})
    ends = dict(zip(names, await asyncio.gather(*map(log.ends, names)), strict=True))
    waiting = {tp: at for tp, at in starts.items() if at < ends[tp.topic][tp.partition]}
    found = await asyncio.gather(*(_first_timestamp(log, tp, at) for tp, at in waiting.items()))
    return min((one for one in found if one is not None), default=None)


async def _first_timestamp(log: Log, source: TopicPartition, start: int) -> int | None:
    async with aclosing(log.read(source, start)) as records:
        async for record in records:
            return record.timestamp_ms
    return None
