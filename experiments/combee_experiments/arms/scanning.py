"""One batch of an arm up its scan tree, with the product's aggregator and without a log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from combee.adapters.ports import LanguageModel
from combee.core.methods import ace
from combee.core.methods.method import Answer, Method, Sources, shaped
from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds
from combee.process.worker.vectors import Vectors
from combee.scan.aggregate import Aggregator
from combee.scan.head_start import HeadStart
from combee.scan.in_memory import InMemoryScan
from combee_experiments.arms.arms import Arm
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import GroupMember, NodeResult, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """By what texts are compared: embeddings from a threshold on, or words alone."""

    vectors: Vectors | None = None
    thresholds: Thresholds = UNMEASURED


BY_WORDS = Comparing()


class _Unchecked(Aggregator):
    """An aggregator that keeps the root's result as it was before it was checked."""

    root: NodeResult

    async def checked(
        self, base: Playbook, plan: Plan, result: NodeResult, members: Sequence[GroupMember]
    ) -> NodeResult:
        """Return the checked result."""
        self.root = result
        return await super().checked(base, plan, result, members)


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
        self,
        model: LanguageModel,
        arm: Arm,
        base: Playbook,
        batch: Batch,
        bodies: Sequence[Reflection],
        comparing: Comparing = BY_WORDS,
        head_start: HeadStart | None = None,
    ) -> None:
        compared = {"carry": arm.carry, "embeddings": f"stand-in@{comparing.thresholds.meaning}"}
        settings = batch.plan.settings.model_copy(update=compared)
        self._method = _Noting(shaped(cast("Method", ace), settings))
        self._aggregator = _Unchecked(
            model,
            cast("Method", self._method),
            settings,
            vectors=comparing.vectors,
            head_start=head_start,
        )
        first = batch.members[0].offset
        groups = [
            tuple(
                GroupMember(offset=member.offset, reflection=bodies[member.offset - first])
                for member in members
            )
            for members in arm.dealt(batch)
        ]
        self._scan = InMemoryScan(self._aggregator, base, batch.plan, groups)

    @property
    def known(self) -> frozenset[str]:
        """The entries that the model has named as known, before code checked it."""
        return frozenset(self._method.known)

    @property
    def root(self) -> NodeResult:
        """The root's result before it was checked."""
        return self._aggregator.root

    async def update(self) -> Update:
        """Return the root's result."""
        return await self._scan.update()
