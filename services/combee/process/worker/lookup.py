"""What services look up in the log at a restart: what was written since their oldest unfinished record."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from combee.adapters.ports import CombeeError, Log, Record, TopicPartition

CLOCKS_ASKED, BYTES_ASKED = 1_000, 64 << 20
"""Minimum records and bytes in memory per partition whose times are compared: producers give them; many may be far
ahead."""

# Partitions and topics are read side by side, for a restart waits for all of them.


async def read_since(log: Log, topic: str, since_ms: int, take: Callable[[Record], Awaitable[None]]) -> None:
    """Give every record of ``topic`` from ``since_ms`` on to ``take``, in order per partition."""
    starts, ends = await asyncio.gather(log.offsets_at(topic, since_ms), log.ends(topic))

    async def read_partition(partition: int) -> None:
        async for record in log.read(TopicPartition(topic=topic, partition=partition), starts[partition]):
            await take(record)

    try:
        async with asyncio.TaskGroup() as group:
            for partition in (p for p in starts if starts[p] < ends[p]):
                group.create_task(read_partition(partition))
    except* CombeeError as failed:
        raise failed.exceptions[0] from failed


async def oldest_timestamp(log: Log, starts: Mapping[TopicPartition, int]) -> int | None:
    """Return the earliest time of the first records at or after ``starts``; None if there is none."""
    names = sorted({tp.topic for tp in starts})
    ends = dict(zip(names, await asyncio.gather(*map(log.ends, names)), strict=True))
    waiting = {tp: at for tp, at in starts.items() if at < ends[tp.topic][tp.partition]}
    times = await asyncio.gather(*(_earliest(log, tp, at) for tp, at in waiting.items()))
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


async def _earliest(log: Log, source: TopicPartition, start: int) -> int | None:
    earliest, count, size = None, 0, 0
    async with aclosing(log.read(source, start)) as records:
        async for record in records:
            time_ms = record.timestamp_ms
            earliest = time_ms if earliest is None else min(earliest, time_ms)
            count, size = count + 1, size + record.memory
            if count >= CLOCKS_ASKED and size >= BYTES_ASKED:
                break
    return earliest
