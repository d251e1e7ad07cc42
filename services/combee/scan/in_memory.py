"""One batch up its scan tree without a log: every node starts when it can."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar, cast

from combee.core.batching import tree
from combee.core.batching.tree import Node
from combee.scan import worth
from combee.scan.aggregate import Aggregator
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, NodeResult, Partial, Update

T = TypeVar("T")
NO_MANIFEST = -1


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
        root = tree.node_at(self._plan.batch_id, self._plan.widths, len(self._plan.widths) - 1, 0)
        members = {member.offset: member for group in self._groups for member in group}
        result = await self._result(root)
        result = await self._aggregator.checked(self._base, self._plan, result, list(members.values()))
        update, _ = worth.fitted(self._plan, NO_MANIFEST, root, result)
        return cast("Update", update)

    async def _result(self, node: Node) -> NodeResult:
        if node.level == 0:
            return await self._aggregator.group(self._base, self._groups[node.index], node.index)
        below = tree.child_indices(self._plan.widths, node.level, node.index)
        children = await _all_of(self._child(node.level - 1, index) for index in below)
        return await self._aggregator.combine(self._base, node.level, children)

    async def _child(self, level: int, index: int) -> Partial:
        node = tree.node_at(self._plan.batch_id, self._plan.widths, level, index)
        partial, _ = worth.fitted(self._plan, NO_MANIFEST, node, await self._result(node))
        return cast("Partial", partial)


async def _all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that run at once; the first error cancels the others and is raised."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
