"""One node's work: ask the model for operations and check, complete and count what it answers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TypeVar

from combee.adapters.ports import LanguageModel, PoisonError, PromptTooLongError
from combee.core.methods import ace, consolidation
from combee.core.methods.method import Answer, Method
from combee.core.playbook import known
from combee.core.playbook import operations as ops
from combee.core.playbook.cleaning import clean_operations
from combee.core.playbook.clusters import within
from combee.core.playbook.derived import once_per_version
from combee.core.playbook.echo import without_echoes
from combee.core.playbook.probation import is_active
from combee.core.text.flags import flags
from combee.core.text.forms import clean_line
from combee.core.text.shortening import shorter_reflection
from combee.core.text.similarity.lessons import same_lesson
from combee.core.text.similarity.overlap import contradicts
from combee.scan.combined import Combined, passed, united
from combee.scan.outcome import SKIPPED, SPLIT, audited, reasons, spent
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Cluster
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import ACE_SECTIONS, Playbook
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.scan import (
    Echo,
    GroupMember,
    NodeResult,
    NodeStatus,
    Operation,
    OperationKind,
    Partial,
    Seen,
)

T = TypeVar("T")

TAGS_KEPT = 200
"""Maximum number of tags counted per reflection: the first ones about entries of the playbook."""
NAMED_KEPT = 64
"""Cache size: evidence sets per reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One numbered item of a prompt: its texts and its evidence."""

    text: str
    lessons: tuple[str, ...]
    """Its instructions to agents, each text whole."""
    evidence: tuple[str, ...]
    against: frozenset[str] = frozenset()
    """Entries that it contradicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """Position of a combine in the tree, and the reflections that its children saw."""

    base: Playbook
    level: int
    seen: Sequence[Seen]


class Aggregator:
    """Asks a model with the prompts of one method."""

    def __init__(
        self,
        model: LanguageModel,
        method: Method = ace,
        *,
        carry: bool = True,
        apart: bool = False,
        strict: bool = False,
        note: str = "",
    ) -> None:
        self._model = model
        self._method = method
        self._carry = carry
        """Whether code passes on the items that an overloaded model neither used nor dropped by name."""
        self._apart = apart and method.HOLDS == "entries"
        """Whether code proposes texts that look like instructions word for word, unread by any model."""
        self._strict = strict
        """Whether an operation that none of its items says rests on nothing instead of on all that it names."""
        self._note = note
        """A note that every result of a call carries."""

    async def group(self, base: Playbook, members: Sequence[GroupMember]) -> NodeResult:
        """Return a level-0 node's outcome; a reply that stays unusable is a failed outcome, not an error."""
        whole, ids = base, _ids(base)
        base = self._without_instructions(base)
        if apart := [member for member in members if self._instructs(*_texts(member.reflection))]:
            proposed = _word_for_word(apart, ids)
            if len(apart) == len(members):
                return proposed.model_copy(update={"usage": SKIPPED})
            rest = [member for member in members if member not in apart]
            return self._joined(base, await self.group(whole, rest), proposed)
        reflections = [member.reflection for member in members]
        repeats = known.word_for_word(base, reflections)
        try:
            prompt, reply = await self._asked(base, reflections)
            answer = self._traced(_shown(base, prompt), reply, list(map(_learned, reflections)))
        except PromptTooLongError as error:
            if len(members) > 1:
                left, right = _halves(members)
                halves = await self.group(whole, left), await self.group(whole, right)
                return self._joined(base, *halves, usage=SPLIT)
            return _failed(members, f"too long for the model however it is cut: {error}", SKIPPED)
        except PoisonError as error:
            return _failed(members, str(error), spent(error))
        claims = known.plausible(base, answer.known, [known.texts_of(one) for one in reflections])
        refused = answer.known.keys() - claims.keys() - repeats.keys()
        operations = answer.operations
        if refused and self._carry:
            own = _word_for_word([members[n - 1] for n in sorted(refused)], ids).operations
            operations = self._method.merge(base, (*operations, *own))
        news, echoes = without_echoes(base, reflections, operations)
        used = ops.rests(answer.operations) - answer.guessed
        claims |= {n: repeats[n] for n in repeats if reflections[n - 1].reflection_id not in used}
        known_now, echoed = known.of_group(base, claims, reflections)
        result = NodeResult(
            status="ok" if news else "empty",
            reason=self._note,
            operations=news,
            seen=_seen(members, ids),
            echoes=(*_sure(echoes, answer.guessed), *echoed),
            known=known_now,
            usage=reply.usage,
            requests=_request_of(reply),
            scope=prompt.entry_ids or (),
        )
        dropped = frozenset(reflections[n - 1].reflection_id for n in answer.dropped)
        return audited(result, 0, ops.rests(news) - answer.guessed, dropped)

    async def _asked(self, base: Playbook, reflections: Sequence[Reflection]) -> tuple[Prompt, Reply]:
        """Return the prompt about these reflections, and the reply.

        If one reflection alone is too long, it and the playbook in the prompt are cut until they fit.
        """
        prompt = self._method.aggregate_prompt(base, reflections)
        try:
            return prompt, await self._ask(base, prompt)
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
                return prompt, await self._ask(base, prompt)
            except PromptTooLongError as error:
                refusal = error
        raise refusal

    async def _ask(self, base: Playbook, prompt: Prompt, level: int = 0) -> Reply:
        """Ask on behalf of a playbook; playbooks take turns where the model's limits make calls wait."""
        return await self._model.ask(replace(prompt, owner=base.name), priority=level)

    def _instructs(self, *texts: str) -> bool:
        """Return whether a model that reads these texts might take one for an instruction to itself."""
        return self._apart and any("instruction" in flags(text) for text in texts)

    def _without_instructions(self, base: Playbook) -> Playbook:
        """Return a playbook without proposed entries that look like instructions; a person may have kept others."""
        if not self._apart:
            return base
        kept = tuple(
            entry
            for entry in base.entries
            if is_active(entry) or not self._instructs(entry.content, entry.section)
        )
        return base if len(kept) == len(base.entries) else base.model_copy(update={"entries": kept})

    def _joined(
        self, base: Playbook, left: NodeResult, right: NodeResult, *, usage: Usage = NOTHING_SPENT
    ) -> NodeResult:
        """Return the outcome of a group that was asked in parts; one part may have failed."""
        operations = self._method.merge(base, (*left.operations, *right.operations))
        failed = left.status == right.status == "failed"
        return NodeResult(
            status="failed" if failed else "ok" if operations else "empty",
            reason=reasons((left.reason, right.reason)),
            operations=operations,
            seen=(*left.seen, *right.seen),
            echoes=(*left.echoes, *right.echoes),
            known=(*left.known, *right.known),
            usage=left.usage + right.usage + usage,
            requests=(*left.requests, *right.requests),
            scope=ops.union(left.scope, right.scope),
        )

    async def consolidate(self, base: Playbook, asked: Sequence[Cluster]) -> NodeResult:
        """Return the result for clusters of entries; operations on other entries are ignored."""
        if not asked:
            return NodeResult(status="empty", usage=SKIPPED)
        try:
            reply = await self._ask(base, consolidation.prompt(base, asked))
        except PromptTooLongError as error:
            if len(asked) > 1:
                left, right = _halves(asked)
                halves = await self.consolidate(base, left), await self.consolidate(base, right)
                return self._joined(base, *halves, usage=SPLIT)
            return NodeResult(status="failed", reason=f"too long for the model: {error}", usage=SKIPPED)
        except PoisonError as error:
            return NodeResult(status="failed", reason=str(error), usage=spent(error))
        operations = within(consolidation.read(reply.body), asked)
        return NodeResult(
            status="ok" if operations else "empty",
            operations=operations,
            usage=reply.usage,
            requests=_request_of(reply),
        )

    async def combine(self, base: Playbook, level: int, children: Sequence[Partial]) -> NodeResult:
        """Return an upper node's outcome: no call for fewer than two children that propose something."""
        results = [child.result for child in children]
        below = NodeResult(
            status="passed",
            reason=reasons(result.reason for result in results),
            seen=ops.merge_seen(result.seen for result in results),
            echoes=tuple(chain.from_iterable(result.echoes for result in results)),
            known=tuple(chain.from_iterable(result.known for result in results)),
            carried=sum(result.carried for result in results),
            usage=sum((result.usage for result in results), NOTHING_SPENT),
        )
        base = self._without_instructions(base)
        read = [
            [operation for operation in result.operations if not self._instructs(*_read_of(operation))]
            for result in results
        ]
        if sum(map(bool, read)) < 2:  # noqa: PLR2004 - there is nothing to combine
            only = tuple(chain.from_iterable(result.operations for result in results))
            status: NodeStatus = "passed" if only else "empty"
            passed = {"status": status, "operations": only, "usage": below.usage + SKIPPED}
            return audited(below.model_copy(update=passed), level, ops.rests(only))
        node = _Node(base=base, level=level, seen=below.seen)
        every = chain.from_iterable(result.operations for result in results)
        apart = tuple(operation for operation in every if self._instructs(*_read_of(operation)))
        own = await self._combine(node, _by_age(tuple(chain.from_iterable(read)), node.seen))
        combined = {
            "status": own.status,
            "reason": reasons((own.reason, below.reason)),
            "operations": (*own.operations, *apart),
            "echoes": (*below.echoes, *own.echoes),
            "known": (*below.known, *own.known),
            "carried": below.carried + own.carried,
            "usage": below.usage + own.usage,
            "requests": own.requests,
            "scope": own.scope,
        }
        return audited(below.model_copy(update=combined), level, own.sure | ops.rests(apart), own.dropped)

    async def _combine(self, node: "_Node", items: Sequence[Operation]) -> Combined:
        base = node.base
        try:
            prompt = self._method.combine_prompt(base, items)
            reply = await self._ask(base, prompt, node.level)
            answer = self._traced(_shown(base, prompt), reply, list(map(_proposal, items)))
        except PromptTooLongError:
            if len(items) > 1:
                halves = [await self._combine(node, half) for half in _halves(items)]
                return united(self._method, base, halves)
            return passed(items, "passed", usage=SKIPPED)
        except PoisonError as error:
            return passed(self._method.merge(base, items), "merged", reason=str(error), usage=spent(error))
        claims = known.plausible(base, answer.known, [(item.content,) for item in items])
        known_now, echoed = known.of_combine(base, claims, items, node.seen, node.level)
        settled = answer.mentioned | claims.keys()
        left_out = [item for n, item in enumerate(items, 1) if self._carry and n not in settled]
        operations = (*answer.operations, *left_out)
        return Combined(
            status="ok",
            reason=self._note,
            operations=self._method.merge(base, operations) if left_out else operations,
            sure=(ops.rests(answer.operations) - answer.guessed) | ops.rests(left_out),
            known=known_now,
            echoes=echoed,
            dropped=ops.rests(items[n - 1] for n in answer.dropped),
            carried=len(left_out),
            usage=reply.usage,
            requests=_request_of(reply),
            scope=prompt.entry_ids or (),
        )

    def _traced(self, base: Playbook, reply: Reply, items: Sequence[_Item]) -> Answer:
        """Read a reply; of the named items those are evidence that say the lesson, if any does."""
        if self._method.HOLDS != "entries":
            return self._read(base, reply, [item.evidence for item in items])
        # The items themselves stand in for evidence here, so that each operation tells which items it names.
        everything = tuple(str(at) for at in range(len(items)))
        answer = self._read(base, reply, [(at,) for at in everything])
        # A weak model names nothing, so each of its operations stands for all items.
        named = lru_cache(NAMED_KEPT)(partial(_Named.of, items))
        rests = [
            named(operation.evidence, some_name_none=bool(answer.guessed)) for operation in answer.operations
        ]
        operations = _resting(answer.operations, rests, items, base, strict=self._strict)
        sure = chain.from_iterable(items[int(at)].evidence for at in everything if at not in answer.guessed)
        guessed = frozenset(chain.from_iterable(item.evidence for item in items)).difference(sure)
        return replace(answer, operations=tuple(operations), guessed=guessed)

    def _read(self, base: Playbook, reply: Reply, sources: Sequence[tuple[str, ...]]) -> Answer:
        answer = self._method.read(base, reply.body, sources)
        if answer.unusable and not answer.operations:
            error = PoisonError(f"none of {answer.unusable} operations was usable")
            error.usage = reply.usage
            raise error
        return replace(answer, operations=clean_operations(answer.operations))


def _shown(base: Playbook, prompt: Prompt) -> Playbook:
    """Return the playbook as a prompt shows it."""
    if prompt.entry_ids is None:
        return base
    kept = frozenset(prompt.entry_ids)
    return base.model_copy(update={"entries": tuple(entry for entry in base.entries if entry.id in kept)})


def _sure(echoes: Iterable[Echo], guessed: frozenset[str]) -> Iterator[Echo]:
    """Yield echoes without the reflections that are only guessed evidence of an operation."""
    for echo in echoes:
        if evidence := tuple(one for one in echo.evidence if one not in guessed):
            yield echo.model_copy(update={"evidence": evidence})


def _texts(reflection: Reflection) -> tuple[str, ...]:
    said = tuple(text for name in LESSON_FIELDS if (text := getattr(reflection, name)))
    return said or tuple(reflection.side_info.values())


def _read_of(operation: Operation) -> tuple[str, str]:
    """Return the texts of a proposal that a model reads."""
    return operation.content, operation.section


def _word_for_word(members: Sequence[GroupMember], ids: Collection[str]) -> NodeResult:
    """Return the lessons of reflections as proposals, word for word; a person decides about them."""
    operations = tuple(
        Operation(
            kind=OperationKind.ADD,
            section=ACE_SECTIONS[-1],
            content=clean_line(_texts(reflection)[-1], ops.MAX_CONTENT_CHARS),
            evidence=(reflection.reflection_id,),
        )
        for reflection in {member.reflection.reflection_id: member.reflection for member in members}.values()
    )
    merged = ops.merge(operations)
    result = NodeResult(status="ok", operations=merged, seen=_seen(members, ids))
    return audited(result, 0, ops.rests(merged))


def _learned(reflection: Reflection) -> _Item:
    return _Item(
        text="\n".join(_texts(reflection)),
        lessons=known.texts_of(reflection),
        evidence=(reflection.reflection_id,),
        against=frozenset(tag.id for tag in reflection.bullet_tags if tag.tag == "harmful"),
    )


def _proposal(operation: Operation) -> _Item:
    removes = operation.kind == OperationKind.REMOVE
    return _Item(
        text=operation.content,
        lessons=(operation.content,),
        evidence=operation.evidence,
        against=frozenset(operation.entry_ids if removes else ()),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """Items that an operation names, by their places."""

    places: Sequence[int]
    evidence: tuple[str, ...]
    is_sure: bool
    """Whether the operation named them, or rests on all because it named none."""

    @classmethod
    def of(cls, items: Sequence[_Item], named: Sequence[str], *, some_name_none: bool) -> "_Named":
        """Return the items at these places."""
        places = [int(place) for place in named]
        is_sure = not (some_name_none and len(named) == len(items))
        return cls(places, ops.union(*(items[at].evidence for at in places)), is_sure)


def _saying(content: str, named: _Named, items: Sequence[_Item]) -> Iterator[int]:
    """Yield the items that have a lesson equal to the content; items never support words added to it."""
    return (at for at in named.places if any(same_lesson(content, lesson) for lesson in items[at].lessons))


def _against(
    removal: Operation, named: _Named, items: Sequence[_Item], says: Mapping[str, str]
) -> Iterator[int]:
    """Yield the items that contradict an entry to be removed; a removal has no content to compare."""
    ids = frozenset(removal.entry_ids)
    contents = [says[entry_id] for entry_id in removal.entry_ids if entry_id in says]
    return (
        at
        for at in named.places
        if ids & items[at].against or any(contradicts(items[at].text, said) for said in contents)
    )


def _resting(
    operations: Iterable[Operation],
    named: Sequence[_Named],
    items: Sequence[_Item],
    base: Playbook,
    *,
    strict: bool,
) -> Iterator[Operation]:
    """Yield operations with the evidence of the items that say them; unless ``strict`` else of all that they name."""
    says = _says(base)
    for operation, on in zip(operations, named, strict=True):
        evidence: tuple[str, ...] = ()
        if on.is_sure:
            removes = operation.kind == OperationKind.REMOVE
            witnesses = (
                _against(operation, on, items, says) if removes else _saying(operation.content, on, items)
            )
            evidence = ops.union(*(items[at].evidence for at in witnesses))
        yield operation.model_copy(update={"evidence": evidence if strict else evidence or on.evidence})


@once_per_version
def _ids(base: Playbook) -> frozenset[str]:
    return frozenset(entry.id for entry in base.entries)


@once_per_version
def _says(base: Playbook) -> Mapping[str, str]:
    return {entry.id: entry.content for entry in base.entries}


def _request_of(reply: Reply) -> tuple[str, ...]:
    return (reply.request,) if reply.request else ()


def _by_age(proposals: Iterable[Operation], seen: Sequence[Seen]) -> tuple[Operation, ...]:
    """Return proposals in the order of their newest evidence, oldest first, as the prompt says."""
    offsets = {reflection.reflection_id: reflection.offset for reflection in seen}

    def newest(operation: Operation) -> int:
        return max((offsets.get(reflection_id, -1) for reflection_id in operation.evidence), default=-1)

    return tuple(sorted(proposals, key=newest))


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


def _failed(members: Sequence[GroupMember], reason: str, usage: Usage) -> NodeResult:
    return NodeResult(status="failed", reason=reason, seen=_seen(members, None), usage=usage)


def _seen(members: Sequence[GroupMember], ids: Collection[str] | None) -> tuple[Seen, ...]:
    """Return reflections as a node saw them, with their tags of the entries ``ids``; None: none got through."""
    return tuple(_one_seen(member, ids) for member in members)


def _one_seen(member: GroupMember, ids: Collection[str] | None) -> Seen:
    reflection = member.reflection
    shown = reflection.shown if ids is not None else None
    # The last tag of an entry holds.
    tags = {tag.id: tag for tag in reflection.bullet_tags if tag.id in ids} if shown and ids else {}
    return Seen(
        reflection_id=reflection.reflection_id,
        offset=member.offset,
        ok=ids is not None,
        tags=tuple(tags.values())[:TAGS_KEPT],
        shown_version=shown.version if shown else None,
        source=reflection.source,
    )
