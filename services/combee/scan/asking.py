"""Asking a model: one call about items, or one about each half where they are too long for it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from combee.adapters.ports import CutOffError, LanguageModel, PoisonError, PromptTooLongError
from combee.core.methods import checking, consolidation
from combee.core.methods.checking import Checked
from combee.core.methods.method import Answer, Method, Sources
from combee.core.playbook.operations import clean_operations, in_words
from combee.core.playbook.results.coverage import Coverage, Question, lesson_of
from combee.core.text.shortening import shorter_reflection
from combee.scan.head_start import HeadStart
from combee_schemas.base import Usage
from combee_schemas.batch import Cluster
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, Operation

Items = TypeVar("Items")
T = TypeVar("T")
A = TypeVar("A")

SKIPPED = Usage(skips=1)
SPLIT = Usage(splits=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Items, A]):
    """What one call was about, and its answer; None: there is none for good, and ``problem`` says why."""

    items: Items
    answer: A | None = None
    problem: str = ""
    usage: Usage = SKIPPED
    request: str = ""


def spent(error: PoisonError) -> Usage:
    """Return the usage of a call that failed permanently; a call without any reply counts as not made."""
    return error.usage if error.usage.calls else error.usage + SKIPPED


def halves(items: Sequence[T]) -> tuple[Sequence[T], ...]:
    """Return the halves of items; nothing if there are fewer than two."""
    middle = len(items) // 2
    return (items[:middle], items[middle:]) if middle else ()


async def in_parts(
    items: Items,
    ask: Callable[[Items], Awaitable[Part[Items, A]]],
    halve: Callable[[Items], Sequence[Items]],
    halve_reply: Callable[[Items], Sequence[Items]] = lambda _: (),
) -> list[Part[Items, A]]:
    """Return the answers about all items: of one call, or of each half where they are too long together.

    ``halve_reply`` halves items whose reply was cut off.
    """
    try:
        return [await ask(items)]
    except PoisonError as error:
        is_too_long = isinstance(error, PromptTooLongError)
        less = halve(items) if is_too_long else halve_reply(items) if isinstance(error, CutOffError) else ()
        parts = [part for half in less for part in await in_parts(half, ask, halve, halve_reply)]
        if not parts:
            problem = f"too long for the model however it is cut: {error}" if is_too_long else str(error)
            return [Part(items=items, problem=problem, usage=spent(error))]
        return [replace(parts[0], usage=parts[0].usage + error.usage + SPLIT), *parts[1:]]


class Asking:
    """The calls about one batch's nodes, in the wording of its method."""

    def __init__(self, model: LanguageModel, method: Method, head_start: HeadStart | None = None) -> None:
        self._model = model
        self._method = method
        self._head_start = head_start
        self._begun = False
        """Whether a call was answered, which another worker would have to pay again."""

    async def group(
        self,
        base: Playbook,
        members: Sequence[GroupMember],
        level: int = 0,
        *,
        waits: bool = False,
        again: bool = False,
    ) -> list[Part[Sequence[GroupMember], Answer]]:
        """Ask for the operations that reflections support.

        ``waits``: another group has a head start; ``again``: a reply that is cut off has them asked in halves.
        """

        async def ask(members: Sequence[GroupMember]) -> Part[Sequence[GroupMember], Answer]:
            _, reply = await self._aggregated(base, members, level, waits=waits)
            sources = [(one.reflection.reflection_id,) for one in members]
            words = [lesson_of(one.reflection) for one in members]
            answer = self._read(base, reply, sources, words)
            return _part(members, answer, reply)

        return await in_parts(members, ask, halves, halves if again else lambda _: ())

    async def combine(
        self, base: Playbook, items: Sequence[Operation], level: int, names: Mapping[str, str]
    ) -> list[Part[Sequence[Operation], Answer]]:
        """Ask to combine proposals; ``names``: the sources of the reflections behind them."""

        async def ask(items: Sequence[Operation]) -> Part[Sequence[Operation], Answer]:
            prompt = self._method.combine_prompt(base, items, names)
            reply = await self._ask(base, prompt, level)
            sources, words = [item.evidence for item in items], [item.content for item in items]
            answer = self._read(base, reply, sources, words)
            return _part(items, answer, reply)

        return await in_parts(items, ask, halves)

    async def consolidate(
        self, base: Playbook, clusters: Sequence[Cluster]
    ) -> list[Part[Sequence[Cluster], tuple[Operation, ...]]]:
        """Ask what to do with clusters of entries."""

        async def ask(clusters: Sequence[Cluster]) -> Part[Sequence[Cluster], tuple[Operation, ...]]:
            prompt = consolidation.prompt(base, clusters)
            reply = await self._ask(base, prompt, 0)
            return _part(clusters, consolidation.read(reply.body), reply)

        return await in_parts(clusters, ask, halves)

    async def check(
        self, base: Playbook, coverage: Coverage, question: Question, level: int
    ) -> list[Part[Question, Checked]]:
        """Ask which statements say the lessons of a question."""

        async def ask(question: Question) -> Part[Question, Checked]:
            lessons = [coverage.lessons[n].text for n in question.lessons]
            statements = [coverage.statements[place].text for place in question.statements]
            prompt = checking.prompt(lessons, statements, question.rewrites)
            reply = await self._ask(base, prompt, level)
            answer = checking.read(reply.body, lessons, statements, question.rewrites)
            return _part(question, answer, reply)

        return await in_parts(question, ask, Question.halves, Question.fewer)

    async def _aggregated(
        self, base: Playbook, members: Sequence[GroupMember], level: int, *, waits: bool
    ) -> tuple[Prompt, Reply]:
        """Return the prompt about these reflections, and the reply.

        If one reflection alone is too long, it and the playbook in the prompt are cut until they fit.
        """
        reflections = [member.reflection for member in members]
        prompt = self._method.aggregate_prompt(base, reflections)
        if waits and self._head_start:
            await self._head_start.wait(prompt)
        try:
            return prompt, await self._ask(base, prompt, level)
        except PromptTooLongError as error:
            if len(reflections) != 1:
                raise
            refusal = error
        # The model must read a text whole to rewrite it.
        entries = base.entries if self._method.HOLDS == "entries" else ()
        for reflection, left in shorter_reflection(reflections[0], entries):
            less = base.model_copy(update={"entries": left}) if entries else base
            prompt = self._method.aggregate_prompt(less, [reflection])
            try:
                return prompt, await self._ask(base, prompt, level)
            except PromptTooLongError as error:
                refusal = error
        raise refusal

    async def _ask(self, base: Playbook, prompt: Prompt, level: int) -> Reply:
        """Ask on behalf of a playbook; playbooks take turns where the model's limits make calls wait."""
        reply = await self._model.ask(replace(prompt, owner=base.name, begun=self._begun), priority=level)
        self._begun = True
        if self._head_start:
            self._head_start.answered(prompt)
        return reply

    def _read(self, base: Playbook, reply: Reply, sources: Sources, words: Sequence[str]) -> Answer:
        answer = self._method.read(base, in_words(reply.body, words), sources)
        if answer.unusable and not answer.operations:
            error = PoisonError(f"none of {answer.unusable} operations was usable")
            error.usage = reply.usage
            raise error
        return replace(answer, operations=clean_operations(answer.operations))


def _part(items: Items, answer: A, reply: Reply) -> Part[Items, A]:
    return Part(items=items, answer=answer, usage=reply.usage, request=reply.request)
