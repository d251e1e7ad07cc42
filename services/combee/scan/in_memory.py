"""One batch up its scan tree without a log: every node starts when it can."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from combee.core.batching import tree
from combee.core.names import identity
from combee.scan.aggregate import Aggregator
from combee.scan.worth import shorter
from combee_schemas.codec import CodecError, encode
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, NodeResult, Partial, Update

R = TypeVar("R", Partial, Update)
T = TypeVar("T")


class InMemoryScan:
    """The tree of one batch; its nodes see the same frozen version."""

    def __init__(
        self, aggregator: Aggregator, base: Playbook, plan: Plan, groups: Sequence[Sequence[GroupMember]]
    ) -> None:
        self._aggregator = aggregator
        self._base = base
        self._plan = plan
        self._groups = groups

    async def update(self) -> Update:
        """Return the root's result."""
        root = len(self._plan.widths) - 1
        result = await self._node(root, 0)
        members = {member.offset: member for group in self._groups for member in group}
        checked = await self._aggregator.checked(self._base, self._plan, result, list(members.values()))
        return self._record(Update, checked, root, 0, {})

    async def _node(self, level: int, index: int) -> NodeResult:
        if level == 0:
            return await self._aggregator.group(self._base, self._groups[index], index)
        below = tree.child_indices(self._plan.widths, level, index)
        parent = identity.node_id(self._plan.batch_id, level, index)
        children = await _all_of(self._child(level - 1, place, parent) for place in below)
        return await self._aggregator.combine(self._base, level, children)

    async def _child(self, level: int, index: int, parent: str) -> Partial:
        result = await self._node(level, index)
        above = {"parent_id": parent, "level": level, "index": index}
        return self._record(Partial, result, level, index, above)

    def _record(
        self, kind: type[R], result: NodeResult, level: int, index: int, own: Mapping[str, object]
    ) -> R:
        """Return a node's result, cut as the service cuts it where a record could not hold it."""
        fixed = {"plan": self._plan, "node_id": identity.node_id(self._plan.batch_id, level, index), **own}
        for candidate in chain([result], shorter(result)):
            record = kind.model_validate({**fixed, "result": candidate})
            try:
                encode(record)
            except CodecError:
                continue
            break
        return record


async def _all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that run at once; the first error cancels the others and is raised."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
