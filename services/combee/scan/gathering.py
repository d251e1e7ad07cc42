"""Waiting in the scan: nodes wait for children and for a version; calls that nobody waits for are cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from combee.adapters.ports import Record, TopicPartition
from combee.core.batching import stragglers
from combee_schemas.plan import Plan
from combee_schemas.scan import NodeResult, Partial

LOOPS_TO_SEND = 2
"""Rounds of the event loop from a turn until the HTTP library has written the request."""
GatheringKey = tuple[str, str, int, int, tuple[int, ...]]
"""A node, and the batch that its children name: a partial that names another manifest is no sibling."""


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

    def grace_s(self, child: Partial, level: int) -> float | None:
        """Return the seconds after which the parent may go on without further children; None: it waits for all."""
        return stragglers.grace_s(child.plan, level, self.results, tuple(self.took_s.values()))

    @property
    def results(self) -> dict[int, NodeResult]:
        """The results of those that have arrived."""
        return {index: child.result for index, child in self.children.items()}


def key_of(child: Partial) -> GatheringKey:
    """Return which gathering a child belongs to."""
    plan = child.plan
    return child.parent_id, plan.playbook, plan.sequence, child.manifest_offset, plan.widths


class Arrivals:
    """Waits for a playbook's version to reach the view, so that it is read and decoded only once."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Event] = {}

    def arrived(self, playbook: str) -> None:
        """Note that the view has another version."""
        if event := self._expected.pop(playbook, None):
            event.set()

    async def wait(self, playbook: str, is_there: Callable[[], bool], timeout_s: float) -> None:
        """Return once ``is_there``, or after ``timeout_s``."""
        if is_there():
            return
        try:
            async with asyncio.timeout(timeout_s):
                while not is_there():
                    await self._expected.setdefault(playbook, asyncio.Event()).wait()
        except TimeoutError:
            return


class Wave:
    """Lets the groups of a batch prepare their requests one after the other: each is sent before the next is made.

    The answers then also come one after the other, and one is read while the model works on the next.
    """

    def __init__(self) -> None:
        self._preparing = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until the request before this one is on its way."""
        await self._preparing.acquire()
        self._pass(LOOPS_TO_SEND)

    def _pass(self, loops: int) -> None:
        if loops:
            asyncio.get_running_loop().call_soon(self._pass, loops - 1)
        else:
            self._preparing.release()


class GroupCalls:
    """The calls of groups that are under way on this worker."""

    def __init__(self) -> None:
        self._plans: dict[asyncio.Task[NodeResult], Plan] = {}

    async def result(self, plan: Plan, work: Coroutine[Any, Any, NodeResult]) -> NodeResult | None:
        """Return a group's result; None as soon as a version holds its batch: it was left out.

        Its record may be committed only then, because the update that left it out is in the log.
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
        """Cancel the calls of batches up to ``sequence``: nothing can take their results any more."""
        for call, plan in self._plans.items():
            if plan.playbook == playbook and plan.sequence <= sequence:
                call.cancel()
