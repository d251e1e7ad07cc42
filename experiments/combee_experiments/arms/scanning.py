"""One batch up its scan tree, with the product's aggregator and without a log: every node starts when it can."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

from combee.core import identity
from combee.core.batching import tree
from combee.core.methods import ace
from combee.core.methods.method import Answer, Method, Sources, shaped
from combee.ports import LanguageModel
from combee.scan.aggregate import Aggregator
from combee.scan.outcome import shorter
from combee_experiments.arms.arms import Arm
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError, encode
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import GroupMember, NodeResult, Partial, Update

R = TypeVar("R", Partial, Update)


class _Noting:
    """A method that notes which entries replies name as known."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.known: set[str] = set()

    def read(self, base: Playbook, body: Mapping[str, Any], sources: Sources) -> Answer:
        """Read a reply."""
        answer = self._method.read(base, body, sources)
        self.known.update(answer.known.values())
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)


class Scan:
    """The tree of one batch; its nodes see the same frozen version."""

    def __init__(
        self, model: LanguageModel, arm: Arm, base: Playbook, batch: Batch, bodies: Sequence[Reflection]
    ) -> None:
        self._method = _Noting(shaped(cast("Method", ace), batch.plan.settings))
        settings = batch.plan.settings
        self._aggregator = Aggregator(
            model,
            cast("Method", self._method),
            carry=arm.carry,
            carry_guesses=settings.carry_guesses,
            part_tokens=settings.combine_tokens,
        )
        self._base = base
        self._plan: Plan = batch.plan
        first = batch.members[0].offset
        self._groups = [
            tuple(
                GroupMember(offset=member.offset, reflection=bodies[member.offset - first])
                for member in members
            )
            for members in arm.dealt(batch)
        ]

    @property
    def known(self) -> frozenset[str]:
        """The entries that the model has named as known, before code checked it."""
        return frozenset(self._method.known)

    async def update(self) -> Update:
        """Return the root's result."""
        root = len(self._plan.widths) - 1
        return self._record(Update, await self._node(root, 0), root, 0, {})

    async def _node(self, level: int, index: int) -> NodeResult:
        if level == 0:
            return await self._aggregator.group(self._base, self._groups[index])
        below = tree.child_indices(self._plan.widths, level, index)
        parent = identity.node_id(self._plan.batch_id, level, index)
        children = await asyncio.gather(*(self._child(level - 1, one, parent) for one in below))
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
        for one in chain([result], shorter(result, level)):
            record = kind.model_validate({**fixed, "result": one})
            try:
                encode(record)
            except CodecError:
                continue
            break
        return record
