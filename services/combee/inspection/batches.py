"""Batches without a version yet, from the last manifests of each partition."""

from collections.abc import AsyncIterator, Mapping

from combee.ports import Log, TopicPartition
from combee_schemas import topics
from combee_schemas.batch import Batch

TAIL = 50
"""So many offsets before the end of ``batches`` there is usually a manifest."""


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
    candidates = {(batch.plan.playbook, batch.plan.sequence): batch for batch in await _candidates(log)}
    return [batch for (name, sequence), batch in candidates.items() if sequence > published.get(name, 0)]


async def _candidates(log: Log) -> list[Batch]:
    batches: list[Batch] = []
    first = await log.beginnings(topics.BATCHES.name)
    for partition, end in (await log.ends(topics.BATCHES.name)).items():
        source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
        batches += await _latest_manifests(log, source, first[partition], end)
    return batches


async def _latest_manifests(log: Log, source: TopicPartition, first: int, end: int) -> list[Batch]:
    start, span = end, TAIL
    manifests: list[Batch] = []
    while start > first and not manifests:
        start, span = max(first, end - span), span * 8
        manifests = [batch async for batch in _manifests(log, source, start, end)]
    oldest = manifests[-1].oldest_unpublished_offset if manifests else -1
    if 0 <= oldest < start:
        manifests += [batch async for batch in _manifests(log, source, oldest, start)]
    return manifests


async def _manifests(log: Log, source: TopicPartition, start: int, end: int) -> AsyncIterator[Batch]:
    async for record in log.read(source, start, end):
        batch = topics.BATCHES.read_or_none(record)
        if batch is not None:
            yield batch
