"""A worker's nodes: answered ones, those that wait for children or a version, and those whose calls run."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from combee.adapters.ports import Log, Record, TopicPartition
from combee.process.worker.lookup import oldest_timestamp, read_since
from combee.process.worker.manifest_cache import ManifestCache
from combee_schemas import topics
from combee_schemas.plan import Plan
from combee_schemas.scan import NodeResult, Partial, Planned, Update
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

    def add(self, result: Partial | Update) -> None:
        """Remember a node's result."""
        self._nodes.setdefault(_batch(result), set()).add(result.node_id)

    def has(self, record: Planned, *node_ids: str) -> bool:
        """Return whether the result of one of these nodes, of the record's batch, is known to be in the log."""
        return not self._nodes.get(_batch(record), set()).isdisjoint(node_ids)

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
            self.add(result)


def _batch(record: Planned) -> tuple[str, int, int]:
    return record.plan.playbook, record.plan.sequence, record.manifest_offset


LOOPS_TO_SEND = 2
"""Rounds of the event loop from a turn until the HTTP library has written the request."""
GatheringKey = tuple[str, str, int, int, tuple[int, ...]]
"""A parent node with its batch and manifest: only partials that name all of them are siblings."""


@dataclass(slots=True)
class Gathering:
    """The children of one node that have arrived; the first in the log wins."""

    source: TopicPartition
    children: dict[int, Partial] = field(default_factory=dict)
    took_s: dict[int, float] = field(default_factory=dict)
    """By child: seconds from closing the batch to writing the child's result, by the clocks of the writers."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, child: Partial, record: Record) -> None:
        """Take a child."""
        if child.index not in self.children:
            self.children[child.index] = child
            self.took_s[child.index] = max(0, record.timestamp_ms - child.plan.closed_at_ms) / 1000

    @property
    def results(self) -> dict[int, NodeResult]:
        """The results of those that have arrived."""
        return {index: child.result for index, child in self.children.items()}


def key_of(child: Partial) -> GatheringKey:
    """Return the key of a child's gathering."""
    return child.parent_id, *_batch(child), child.plan.widths


class Arrivals:
    """Waits for a playbook's version to reach the view, so that it is read and decoded only once."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Event] = {}

    def arrived(self, playbook: str) -> None:
        """Note that the view has another version."""
        if event := self._expected.pop(playbook, None):
            event.set()

    async def next(self, playbook: str) -> None:
        """Return once the view has another version."""
        await self._expected.setdefault(playbook, asyncio.Event()).wait()


class Wave:
    """Makes groups prepare their requests one after the other: each is sent before the next is prepared.

    Otherwise all requests would be prepared before any is sent. Now the answers also arrive one after the other, and
    one is read while the model works on the next.
    """

    def __init__(self) -> None:
        self._preparing = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until the previous request has been sent."""
        await self._preparing.acquire()
        self._pass(LOOPS_TO_SEND)

    def _pass(self, loops: int) -> None:
        if loops:
            asyncio.get_running_loop().call_soon(self._pass, loops - 1)
        else:
            self._preparing.release()


class GroupCalls:
    """The running calls of groups on this worker."""

    def __init__(self) -> None:
        self._plans: dict[asyncio.Task[NodeResult], Plan] = {}

    async def result(self, plan: Plan, work: Coroutine[Any, Any, NodeResult]) -> NodeResult | None:
        """Return a group's result; None if it was left out: a version of its batch appears first.

        Only then may the record of a left-out group be committed: the update without it is in the log.
        """
        call = asyncio.create_task(work)
        self._plans[call] = plan
        try:
            await asyncio.wait([call])
        finally:
            del self._plans[call]
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        return None if call.cancelled() else call.result()

    def published(self, playbook: str, sequence: int) -> None:
        """Cancel the calls of batches up to ``sequence``: their versions exist."""
        for call, plan in self._plans.items():
            if plan.playbook == playbook and plan.sequence <= sequence:
                call.cancel()
