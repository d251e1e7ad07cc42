"""Which nodes already have a result in the log, so that no model call is paid for twice."""

import asyncio
from collections.abc import Mapping

from combee.adapters.ports import Log, Record, TopicPartition
from combee.process.worker.lookup import oldest_timestamp, read_since
from combee.process.worker.manifest_cache import ManifestCache
from combee_schemas import topics
from combee_schemas.scan import Partial, Planned, Update
from combee_schemas.topics import Topic

OUTPUTS: Mapping[str, Topic[Partial] | Topic[Update]] = {
    **{topic.name: topic for topic in topics.PARTIALS},
    topics.UPDATES.name: topics.UPDATES,
}


class Answered:
    """Node ids with a recorded result, per batch; a published batch is forgotten.

    A result that no manifest planned does not count.
    """

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests
        self._nodes: dict[tuple[str, int, int], set[str]] = {}

    def add(self, record: Planned, node_id: str) -> None:
        """Remember a node's result; ``record`` is one of its batch."""
        self._nodes.setdefault(_batch(record), set()).add(node_id)

    def has(self, record: Planned, node_id: str) -> bool:
        """Return whether a node's result is known to be in the log; ``record`` is one of its batch."""
        return node_id in self._nodes.get(_batch(record), ())

    def forget(self, playbook: str, sequence: int) -> None:
        """Drop batches up to ``sequence``: a version contains them."""
        for key in [k for k in self._nodes if k[0] == playbook and k[1] <= sequence]:
            del self._nodes[key]

    async def restore(self, log: Log, starts: Mapping[TopicPartition, int]) -> None:
        """Read the output topics from the time of the oldest unfinished record in ``starts``."""
        since = await oldest_timestamp(log, starts)
        if since is None:
            return
        await asyncio.gather(*(read_since(log, name, since, self._take) for name in OUTPUTS))

    async def _take(self, record: Record) -> None:
        result = OUTPUTS[record.topic].read_or_none(record)  # its reader dead-letters what cannot be read
        if result is not None and not await self._manifests.forgery(result):
            self.add(result, result.node_id)


def _batch(record: Planned) -> tuple[str, int, int]:
    return record.plan.playbook, record.plan.sequence, record.manifest_offset
