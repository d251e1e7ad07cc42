"""One batch of an arm up its scan tree, with the product's aggregator and without a log."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from combee.adapters.ports import LanguageModel
from combee.core.methods import ace
from combee.core.methods.method import Answer, Method, Sources, shaped
from combee.scan.aggregate import Aggregator
from combee.scan.in_memory import InMemoryScan
from combee_experiments.arms.arms import Arm
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import GroupMember, Update


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
    """The tree of one batch as an arm deals it."""

    def __init__(
        self, model: LanguageModel, arm: Arm, base: Playbook, batch: Batch, bodies: Sequence[Reflection]
    ) -> None:
        self._method = _Noting(shaped(cast("Method", ace), batch.plan.settings))
        settings = batch.plan.settings
        aggregator = Aggregator(
            model,
            cast("Method", self._method),
            carry=arm.carry,
            apart=settings.propose_flagged,
        )
        first = batch.members[0].offset
        groups = [
            tuple(
                GroupMember(offset=member.offset, reflection=bodies[member.offset - first])
                for member in members
            )
            for members in arm.dealt(batch)
        ]
        self._scan = InMemoryScan(aggregator, base, batch.plan, groups)

    @property
    def known(self) -> frozenset[str]:
        """The entries that the model has named as known, before code checked it."""
        return frozenset(self._method.known)

    async def update(self) -> Update:
        """Return the root's result."""
        return await self._scan.update()
