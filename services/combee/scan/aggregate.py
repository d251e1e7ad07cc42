"""The scan of one batch in the paper's order: groups, combines, and at the root the check of what they kept.

Combee (arXiv 2604.04247, section 4): each group of about √n reflections is aggregated by a call of its own, and
combines merge what the groups propose. A model that reads too much at once overlooks lessons, and what it says about
itself does not tell which. So the root checks the result against the batch's own reflections (`Coverage`).

Each step says what to ask (`asked`), asks it (`asking`), and works out what the replies are worth (`worth`).
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import cast

from combee.adapters.ports import LanguageModel
from combee.core.methods import ace
from combee.core.methods.method import DEFAULTS, Answer, Method
from combee.core.names.sources import names_of
from combee.core.playbook import shown
from combee.core.playbook.results.coverage import Coverage, Question, unchecked
from combee.core.playbook.trust import (
    is_uncounted,
    names_counted,
    rules_of,
    uncounted_sources,
    without_claims,
)
from combee.core.playbook.versions import empty
from combee.core.text.similarity.embeddings import model_and_thresholds
from combee.process.worker.vectors import Vectors
from combee.scan import asked, worth
from combee.scan.asked import Part
from combee.scan.asking import Asking
from combee.scan.head_start import HeadStart
from combee_schemas.base import NOTHING_SPENT
from combee_schemas.batch import Cluster
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, GroupMember, NodeResult, Operation, Partial

Answers = Sequence[Part[Sequence[GroupMember], Answer]]
CONTROL = GroupMember(
    offset=0,
    reflection=Reflection(
        reflection_id="control",
        playbook="control",
        error_identification="2 and 3 were added instead of 2 and 2.",
        correct_approach="Add the numbers that the task names.",
        key_insight="Read the numbers in the task again before you add them.",
    ),
)
"""A reflection from which every model can propose a lesson."""


def _as_seen_on(base: Playbook, members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return reflections with the tags and shown entries that count on the line of a version."""
    return [
        member.model_copy(update={"reflection": shown.as_seen_on(base, member.reflection)})
        for member in members
    ]


def _as_verified(members: Iterable[GroupMember], result: NodeResult) -> Iterable[GroupMember]:
    """Yield reflections with the sources that shuffle has verified; their records may claim any."""
    verified = {one.offset: {"source": one.source} for one in result.seen}
    for member in members:
        named = member.reflection.model_copy(update=verified.get(member.offset, {"source": None}))
        yield member.model_copy(update={"reflection": named})


# In threads: of a thousand long lessons each step takes longer than a consumer may be silent.


def _first_question(coverage: Coverage) -> tuple[Coverage, Question | None]:
    """Return the coverage that words and embeddings prove, and what to ask a check call about the rest."""
    coverage = coverage.witnessed().with_proposals()
    return coverage, coverage.question()


def _left_after(
    coverage: Coverage, checks: Sequence[Part[Question, worth.Reply]]
) -> tuple[Coverage, Sequence[GroupMember]]:
    """Return the coverage after a check, with lost proposals, and the reflections to ask about again."""
    coverage = worth.of_check(coverage, checks).without_outvoted().carried()
    return coverage, coverage.to_ask_again


def _outcome_with(coverage: Coverage, more: Sequence[Operation]) -> NodeResult:
    """Return the root's result with further operations, and with the lessons left over in their own words."""
    return coverage.extended(more, coverage.left).in_own_words().outcome()


class Aggregator:
    """The nodes of a batch's scan, with the prompts of one method."""

    def __init__(
        self,
        model: LanguageModel,
        method: Method = cast("Method", ace),  # noqa: B008 - a module
        settings: PlanSettings = DEFAULTS,
        *,
        note: str = "",
        vectors: Vectors | None = None,
        head_start: HeadStart | None = None,
    ) -> None:
        self._asking = Asking(model, head_start)
        self._method = method
        self._settings = settings
        self._checks = settings.carry and method.HOLDS == "entries"
        """Whether the root checks its result and adds the lessons that it lacks; off: the paper's protocol."""
        self._note = note
        """A note that every result of a call carries."""
        self._vectors = vectors or Vectors()

    async def leaf(self, base: Playbook, group: Group) -> NodeResult:
        """Return a group's result; if it is the whole batch, the result is checked as the root's."""
        if group.plan.reason == "consolidate":
            return await self.consolidate(base, group.plan, group.clusters)
        result = await self.group(base, group.members, group.index)
        is_root = len(group.plan.widths) == 1
        return await self.checked(base, group.plan, result, group.members) if is_root else result

    async def group(self, base: Playbook, members: Sequence[GroupMember], index: int = 0) -> NodeResult:
        """Return a level-0 node's result; what counts for nothing is in it, but no model reads it."""
        unread = self._uncounted(base, members)
        read = [member for member in members if member.offset not in unread]
        parts = list(await self._asked(base, read, waits=index > 0)) if read else []
        if unread:
            items = [member for member in members if member.offset in unread]
            dropped = frozenset(range(1, len(items) + 1))
            parts.append(
                Part(items=items, answer=Answer(operations=(), dropped=dropped), usage=NOTHING_SPENT)
            )
        is_in_doubt = self._checks and any(map(worth.is_unusable, parts))
        control = await self._control() if is_in_doubt else ()
        return worth.of_group(self._method, base, parts, control, note=self._note)

    def _uncounted(self, base: Playbook, members: Sequence[GroupMember]) -> frozenset[int]:
        """Return the offsets of reflections whose sources count for nothing.

        In a whole text nobody can tell what is theirs, and a model that obeys theirs drops what others say.
        """
        names = uncounted_sources(base, self._settings)
        return frozenset(
            member.offset
            for member in members
            if is_uncounted(member.reflection.source, names, self._settings)
        )

    async def answers(self) -> bool:
        """Return whether the model gives a usable reply about the control, asked in the way of a batch's groups."""
        return worth.is_answered(await self._control())

    async def _control(self) -> Answers:
        base = empty(CONTROL.reflection.playbook)  # a model may take a name for an instruction
        return await self._asked(base, [CONTROL])

    async def _asked(self, base: Playbook, members: Sequence[GroupMember], *, waits: bool = False) -> Answers:
        call = asked.of_group(self._method, base, _as_seen_on(base, members))
        return worth.read(self._method, base, await self._asking.ask(call, 0, waits=waits))

    async def combine(self, base: Playbook, level: int, children: Sequence[Partial]) -> NodeResult:
        """Return an upper node's result: no call for fewer than two children that propose something."""
        results = [child.result for child in children]
        below = worth.below_of(results)
        if sum(bool(result.operations) for result in results) < 2:  # noqa: PLR2004 - there is nothing to combine
            result = worth.passed(below, results)
        else:
            names = names_of(below.seen, names_counted(self._settings))
            proposals = chain.from_iterable(result.operations for result in results)
            items = worth.by_support(proposals, below.seen, names)
            call = asked.of_combine(self._method, base, items, names)
            parts = worth.read(self._method, base, await self._asking.ask(call, level))
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
        base = without_claims(base, plan.settings.trust)
        members = _as_seen_on(base, _as_verified(members, result))
        level, (_, thresholds) = len(plan.widths), model_and_thresholds(self._settings.embeddings)
        uncounted = self._uncounted(base, members)
        rules = rules_of(plan.settings)
        coverage = worth.coverage_of(base, result, members, thresholds, rules=rules, uncounted=uncounted)
        embedded = await self._vectors.of(coverage.texts())
        coverage, question = await asyncio.to_thread(_first_question, coverage.embedded(embedded.vectors))
        checks = await self._asking.ask(asked.of_check(coverage, question), level) if question else []
        coverage, left = await asyncio.to_thread(_left_after, coverage, checks)
        size = -(-len(members) * plan.settings.copies // plan.widths[0]) or 1
        groups = (left[at : at + size] for at in range(0, len(left), size))
        calls = [asked.of_group(self._method, base, group, again=True) for group in groups]
        again = [worth.read(self._method, base, await self._asking.ask(call, level)) for call in calls]
        more = worth.of_group(self._method, base, list(chain.from_iterable(again))).operations
        late = await self._vectors.of([operation.content for operation in more])
        outcome = await asyncio.to_thread(_outcome_with, coverage.embedded(late.vectors), more)
        return worth.with_calls(outcome, [checks, *again], embedded.usage + late.usage)

    async def consolidate(self, base: Playbook, plan: Plan, clusters: Sequence[Cluster]) -> NodeResult:
        """Return the result for clusters of entries; operations on other entries are ignored."""
        replies = await self._asking.ask(asked.of_clusters(base, clusters), 0) if clusters else []
        return await self.checked(base, plan, worth.of_consolidation(replies), ())
