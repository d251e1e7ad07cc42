"""What services look up in the log: the manifest that a record names, and at a restart what was written since."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from combee.history import partition_of
from combee.ports import CombeeError, Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan

MANIFEST_S = 30.0
"""A manifest and its groups become visible at once, but for the moment it takes to mark each partition: so
long nobody concludes from a manifest's absence. A transaction lasts half of it at most."""

# ---- restoring: partitions and topics are read side by side, for a restart waits for all of them


async def read_since(log: Log, topic: str, since_ms: int, take: Callable[[Record], None]) -> None:
    """Give every record of ``topic`` from ``since_ms`` on to ``take``, in order per partition."""
    starts, ends = await asyncio.gather(log.offsets_at(topic, since_ms), log.ends(topic))

    async def read_partition(partition: int) -> None:
        async for record in log.read(TopicPartition(topic=topic, partition=partition), starts[partition]):
            take(record)

    try:
        async with asyncio.TaskGroup() as group:
            for partition in (p for p in starts if starts[p] < ends[p]):
                group.create_task(read_partition(partition))
    except* CombeeError as failed:
        raise failed.exceptions[0] from failed


async def oldest_timestamp(log: Log, starts: Mapping[TopicPartition, int]) -> int | None:
    """Return the time of the oldest record at or after ``starts``; None if there is none."""
    names = sorted({tp.topic for tp in starts})
    ends = dict(zip(names, await asyncio.gather(*map(log.ends, names)), strict=True))
    waiting = {tp: at for tp, at in starts.items() if at < ends[tp.topic][tp.partition]}
    times = await asyncio.gather(*(_first_timestamp(log, tp, at) for tp, at in waiting.items()))
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


async def _first_timestamp(log: Log, source: TopicPartition, start: int) -> int | None:
    async with aclosing(log.read(source, start)) as records:
        async for record in records:
            return record.timestamp_ms
    return None


# ---- manifests


async def is_planned(log: Log, plan: Plan, manifest_offset: int) -> bool:
    """Return whether the manifest of this plan stands there."""
    return await manifest_of(log, plan, manifest_offset) is not None


async def manifest_of(log: Log, plan: Plan, manifest_offset: int) -> Batch | None:
    """Return the manifest of this plan, if it stands there."""
    source = await partition_of(log, topics.BATCHES, plan.playbook)
    record = (await log.read_at(source, [manifest_offset])).get(manifest_offset)
    batch = topics.BATCHES.read_or_none(record)
    return batch if batch is not None and _is_of(batch.plan, plan) else None


def _is_of(header: Plan, plan: Plan) -> bool:
    """Return whether a plan is a manifest's own; the plans of version 1 said less than their manifests."""
    if header.sha256:
        return header == plan
    known = header.model_copy(update={"settings": plan.settings})
    return known == plan and header.settings.method == plan.settings.method
