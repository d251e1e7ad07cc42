"""Batches in flight: those with a manifest and no version yet, from the last manifests of each partition."""

from collections.abc import Mapping

from combee.adapters.ports import Log, TopicPartition
from combee.log.history import newest_manifests
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook

TAIL = 50
"""Number of offsets before the end of a partition of ``batches`` that usually include a manifest."""


async def newest_sequences(log: Log) -> dict[str, int]:
    """Return the newest manifest's sequence number by playbook, for playbooks that may have batches in flight."""
    newest: dict[str, int] = {}
    for batch in await _candidates(log):
        newest[batch.plan.playbook] = max(batch.plan.sequence, newest.get(batch.plan.playbook, 0))
    return newest


def in_flight(newest: Mapping[str, int], line: str, playbook: Playbook | None) -> int:
    """Return how many batches of a line have a manifest and no version yet; ``newest``: see `newest_sequences`."""
    return max(0, newest.get(line, 0) - (playbook.batch_sequence if playbook else 0))


async def unpublished(log: Log, published: Mapping[str, int]) -> list[Batch]:
    """Return the manifests without a version; ``published``: the sequence of each playbook's newest version."""
    candidates = {(batch.plan.playbook, batch.plan.sequence): batch for batch in await _candidates(log)}
    return [batch for (name, sequence), batch in candidates.items() if sequence > published.get(name, 0)]


async def _candidates(log: Log) -> list[Batch]:
    batches: list[Batch] = []
    for partition in range(await log.partitions(topics.BATCHES.name)):
        source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
        batches += [batch for _, batch in await newest_manifests(log, source, TAIL)]
    return batches
