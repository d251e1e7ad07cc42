"""The scan of one batch in the paper's order: groups, combines, and at the root the check of what they kept.

Combee (arXiv 2604.04247, section 4): each group of about √n reflections is aggregated by a call of its own, and
combines merge what the groups propose. A model that reads too much at once overlooks lessons, and what it says about
itself does not tell which. So the root checks the result against the batch's own reflections (`Coverage`).
"""

from collections.abc import Sequence
from itertools import chain
from typing import cast

from combee.adapters.ports import LanguageModel
from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.names.sources import names_of
from combee.core.playbook.results.coverage import Coverage, Lesson, lesson_of, unchecked
from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds
from combee.process.worker.vectors import Vectors
from combee.scan import worth
from combee.scan.asking import Asking
from combee.scan.head_start import HeadStart
from combee_schemas.base import SourceNames
from combee_schemas.batch import Cluster
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, NodeResult, Partial


class Aggregator:
    """The nodes of a batch's scan, with the prompts of one method."""

    def __init__(
        self,
        model: LanguageModel,
        method: Method = cast("Method", ace),  # noqa: B008 - a module
        *,
        carry: bool = True,
        sources: SourceNames = "declared",
        note: str = "",
        vectors: Vectors | None = None,
        thresholds: Thresholds = UNMEASURED,
        head_start: HeadStart | None = None,
    ) -> None:
        holds_entries = method.HOLDS == "entries"
        self._asking = Asking(model, method, head_start)
        self._method = method
        self._checks = carry and holds_entries
        """Whether the root checks its result and carries what that does not say; off: the paper's protocol."""
        self._sources = sources
        self._note = note
        """A note that every result of a call carries."""
        self._vectors = vectors or Vectors()
        self._thresholds = thresholds

    async def group(self, base: Playbook, members: Sequence[GroupMember], index: int = 0) -> NodeResult:
        """Return a level-0 node's result; a reply that stays unusable is a failed result, not an error."""
        parts = await self._asking.group(base, members, waits=index > 0)
        return worth.of_group(self._method, base, parts, note=self._note)

    async def combine(self, base: Playbook, level: int, children: Sequence[Partial]) -> NodeResult:
        """Return an upper node's result: no call for fewer than two children that propose something."""
        results = [child.result for child in children]
        below = worth.below_of(results)
        if sum(bool(result.operations) for result in results) < 2:  # noqa: PLR2004 - there is nothing to combine
            passed = worth.passed(below, results)
            return worth.with_aside(passed, results) if self._checks else passed
        names = names_of(below.seen, self._sources)
        proposals = chain.from_iterable(result.operations for result in results)
        items = worth.by_support(proposals, below.seen, names)
        parts = await self._asking.combine(base, items, level, names)
        result = worth.of_combine(self._method, base, below, parts, note=self._note)
        return worth.with_aside(result, results) if self._checks else result

    async def checked(
        self, base: Playbook, plan: Plan, result: NodeResult, members: Sequence[GroupMember]
    ) -> NodeResult:
        """Return the root's result with verified evidence, and with the lessons that it did not say.

        ``members`` are the batch's reflections, each once; those that did not get through count for nothing.
        """
        if result.status == "failed" or not self._checks:
            return unchecked(result)
        through = {seen.offset for seen in result.seen if seen.ok}
        if gone := through.difference(member.offset for member in members):
            note = f"{len(gone)} reflections are no longer in the log: their lessons were not checked"
            result = result.model_copy(update={"reason": worth.reasons((note, result.reason))})
        by_age = sorted(
            (member for member in members if member.offset in through), key=lambda member: member.offset
        )
        lessons = [
            Lesson(member=member, text=text) for member in by_age if (text := lesson_of(member.reflection))
        ]
        coverage = Coverage(base=base, lessons=lessons, result=result, thresholds=self._thresholds)
        embedded = await self._vectors.of(coverage.texts())
        coverage = coverage.embedded(embedded.vectors).witnessed().with_proposals()
        question, level = coverage.question(), len(plan.widths)
        checks = await self._asking.check(base, coverage, question, level) if question else []
        for part in checks:
            coverage = coverage.checked(part.items, part.answer)
        coverage = coverage.without_outvoted().carried()
        left = coverage.to_ask_again
        size = -(-len(members) * plan.settings.copies // plan.widths[0]) or 1
        groups = [left[at : at + size] for at in range(0, len(left), size)]
        again = [await self._asking.group(coverage.base, group, level, again=True) for group in groups]
        more = (
            worth.of_group(self._method, base, tuple(chain.from_iterable(again))).operations if again else ()
        )
        late = await self._vectors.of([operation.content for operation in more])
        coverage = coverage.embedded(late.vectors).extended(more, coverage.left).in_own_words()
        return worth.with_calls(coverage.outcome(), [checks, *again], embedded.usage + late.usage)

    async def consolidate(self, base: Playbook, plan: Plan, clusters: Sequence[Cluster]) -> NodeResult:
        """Return the result for clusters of entries; operations on other entries are ignored."""
        parts = await self._asking.consolidate(base, clusters) if clusters else []
        return await self.checked(base, plan, worth.of_consolidation(parts), ())
