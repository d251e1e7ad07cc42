"""From replies to records: the parts of a node's calls become its result, and the result a record; pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from combee.adapters.ports import Outgoing, PoisonError
from combee.core.batching.tree import Node
from combee.core.methods import checking, consolidation
from combee.core.methods.method import Answer, Method
from combee.core.names.sources import counted_name, in_turn
from combee.core.playbook import operations as ops
from combee.core.playbook.results.clusters import within
from combee.core.playbook.results.coverage import Coverage, Lesson, Question
from combee.core.playbook.trust import Rules
from combee.core.text.similarity.embeddings import Thresholds
from combee.scan.asked import SKIPPED, Part, unanswered
from combee_schemas import topics
from combee_schemas.base import NOTHING_SPENT, Message, Usage
from combee_schemas.batch import Cluster
from combee_schemas.codec import CodecError
from combee_schemas.plan import Plan
from combee_schemas.playbook import EVIDENCE_KEPT, SOURCES_KEPT, Playbook
from combee_schemas.scan import GroupMember, Known, NodeResult, Operation, Partial, Seen, Update

TAGS_KEPT = 200
"""Maximum number of tags counted per reflection: the first ones about entries of the playbook."""
TAGS_OF_EACH = 20
"""Tags per reflection that are kept until nothing else can be left out."""
MAX_REASON_CHARS = 500
MAX_SAID = Message.max_bytes // 2
"""Bytes of operations up to which a result that does not fit keeps all of them before it loses support: a few long
ones, which one reply can hold, must not cost all others their evidence and tags."""

Item = TypeVar("Item", GroupMember, Operation)
Reply = Mapping[str, Any]


def read(
    method: Method, base: Playbook, replies: Iterable[Part[Sequence[Item], Reply]]
) -> list[Part[Sequence[Item], Answer]]:
    """Return the answers in replies; a reply without a usable operation counts as no answer."""
    return [_read(method, base, part) for part in replies]


def _read(method: Method, base: Playbook, part: Part[Sequence[Item], Reply]) -> Part[Sequence[Item], Answer]:
    items, usage = part.items, part.usage
    if part.answer is None:
        return Part(items=items, problem=part.problem, is_too_long=part.is_too_long, usage=usage)
    sources, words = [_behind(item) for item in items], [_words(item) for item in items]
    answer = method.read(base, ops.in_words(part.answer, words), sources)
    if answer.unusable and not answer.operations:
        problem = f"none of {answer.unusable} operations was usable"
        return unanswered(items, problem, usage)
    ids = {entry.id for entry in base.entries}
    known = {n: entry_id for n, entry_id in answer.known.items() if entry_id in ids}
    answer = replace(answer, operations=ops.clean_operations(answer.operations), known=known)
    return Part(items=items, answer=answer, usage=usage, request=part.request)


def of_group(
    method: Method,
    base: Playbook,
    parts: Sequence[Part[Sequence[GroupMember], Answer]],
    control: Sequence[Part[Sequence[GroupMember], Answer]] = (),
    *,
    note: str = "",
) -> NodeResult:
    """Return a group's result from its calls; without a usable reply the result is failed, and no error is raised.

    ``control``: calls about a lesson that every model can answer. If the model answered them, the group's own texts
    made its reply unusable. Its reflections then count as read, and the root carries their lessons.
    """
    ids = frozenset(entry.id for entry in base.entries)
    is_sound = is_answered(control)
    answers = [part.answer for part in parts if part.answer is not None]
    operations = tuple(chain.from_iterable(answer.operations for answer in answers))
    through = [
        (member, part.answer is not None or (is_sound and is_unusable(part)))
        for part in parts
        for member in part.items
    ]
    seen = (_one_seen(member, ids if is_through else None) for member, is_through in through)
    if len(answers) > 1:
        operations = method.merge(base, operations)
    is_failed = not any(is_through for _, is_through in through)
    spent = _spent((*parts, *control)) if parts else {"usage": SKIPPED}
    return NodeResult(
        status="failed" if is_failed else "ok" if operations else "empty",
        reason=reasons((note, *(part.problem for part in parts))),
        operations=operations,
        known=tuple(_known(parts)),
        seen=tuple(_with_dropped(seen, parts)),
        **{**spent, "usage": spent["usage"] + Usage(checks=len(control))},
    )


def is_answered(parts: Sequence[Part[Any, Any]]) -> bool:
    """Return whether any of the calls has a usable answer."""
    return any(part.answer is not None for part in parts)


def is_unusable(part: Part[Any, Any]) -> bool:
    """Return whether a call has no answer though its items are not too long: they or the model are at fault."""
    return part.answer is None and not part.is_too_long


def of_combine(
    method: Method,
    base: Playbook,
    below: NodeResult,
    parts: Sequence[Part[Sequence[Operation], Answer]],
    *,
    note: str = "",
) -> NodeResult:
    """Return a combine's result from its calls; items of a call that failed for good are passed on by code."""
    operations = [part.items if part.answer is None else part.answer.operations for part in parts]
    merged = method.merge(base, tuple(chain.from_iterable(operations)))
    is_whole = len(parts) == 1 and parts[0].answer is not None
    own = _spent(parts)
    return below.model_copy(
        update={
            "status": "merged" if any(part.answer is None for part in parts) else "ok",
            "reason": reasons((note, *(part.problem for part in parts), below.reason)),
            "operations": operations[0] if is_whole else merged,
            "known": (*below.known, *_known(parts)),
            "seen": tuple(_with_dropped(below.seen, parts)),
            **own,
            "usage": below.usage + own["usage"],
        }
    )


def of_consolidation(parts: Sequence[Part[Sequence[Cluster], Reply]]) -> NodeResult:
    """Return a consolidation's result: operations within the clusters of its calls."""
    operations = tuple(
        chain.from_iterable(
            within(consolidation.read(part.answer), part.items) for part in parts if part.answer is not None
        )
    )
    failed = parts and all(part.answer is None for part in parts)
    return NodeResult(
        status="failed" if failed else "ok" if operations else "empty",
        reason=reasons(part.problem for part in parts),
        operations=ops.merge(operations),
        **(_spent(parts) if parts else {"usage": SKIPPED}),
    )


def below_of(results: Sequence[NodeResult]) -> NodeResult:
    """Return what a combine knows of its children, before it asks."""
    return NodeResult(
        status="passed",
        reason=reasons(result.reason for result in results),
        seen=ops.merge_seen(result.seen for result in results),
        known=tuple(chain.from_iterable(result.known for result in results)),
        usage=sum((result.usage for result in results), NOTHING_SPENT),
    )


def passed(below: NodeResult, results: Sequence[NodeResult]) -> NodeResult:
    """Return the result of a combine that asks nothing: what its only proposing child says."""
    operations = tuple(chain.from_iterable(result.operations for result in results))
    update = {"operations": operations, "usage": below.usage + SKIPPED}
    return below.model_copy(update=update if operations else {**update, "status": "empty"})


def with_aside(result: NodeResult, children: Iterable[NodeResult]) -> NodeResult:
    """Return a combine's result with the proposals below it that it does not repeat, for the root to carry."""
    own = {operation.content for operation in result.operations if not operation.entry_ids}
    proposed = chain.from_iterable((*child.aside, *child.operations) for child in children)
    aside = (operation for operation in proposed if operation.entry_ids or operation.content not in own)
    return result.model_copy(update={"aside": ops.merge(aside)})


def coverage_of(
    base: Playbook,
    result: NodeResult,
    members: Iterable[GroupMember],
    thresholds: Thresholds,
    *,
    rules: Rules,
    uncounted: Collection[int] = (),
) -> Coverage:
    """Return what to check of a root's result: the lessons of the reflections that got through, by their age.

    ``uncounted``: offsets of reflections whose lessons count for nothing.
    """
    through = {seen.offset for seen in result.seen if seen.ok}
    there = sorted((one for one in members if one.offset in through), key=lambda member: member.offset)
    if gone := through.difference(member.offset for member in there):
        note = f"{len(gone)} reflections are no longer in the log: their lessons were not checked"
        result = result.model_copy(update={"reason": reasons((note, result.reason))})
    lessons = [
        Lesson(member=member, text=text)
        for member in there
        if member.offset not in uncounted and (text := ops.lesson_of(member.reflection))
    ]
    return Coverage(base=base, lessons=lessons, result=result, rules=rules, thresholds=thresholds)


def of_check(coverage: Coverage, parts: Sequence[Part[Question, Reply]]) -> Coverage:
    """Return the coverage with what check calls answered."""
    for part in parts:
        if part.answer is not None:
            answer = checking.read(part.answer, *coverage.asked(part.items), part.items.rewrites)
            coverage = coverage.checked(part.items, answer)
    return coverage


def with_calls(
    result: NodeResult, checks: Sequence[Sequence[Part[Any, Any]]], embedding: Usage
) -> NodeResult:
    """Return a root's result with the cost of the calls that checked it; of each, its parts."""
    calls = tuple(chain.from_iterable(checks))
    own, count = _spent(calls), sum(map(bool, checks))
    return result.model_copy(
        update={
            "usage": result.usage + own["usage"] + embedding + Usage(checks=count + embedding.calls),
            "requests": (*result.requests, *own["requests"]),
            "reason": reasons((result.reason, *(part.problem for part in calls))),
        }
    )


def reasons(parts: Iterable[str]) -> str:
    """Return each different reason once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))


def by_support(
    proposals: Iterable[Operation], seen: Sequence[Seen], names: Mapping[str, str]
) -> tuple[Operation, ...]:
    """Return proposals in the order of their support, the least first, then of their newest evidence: see prompts."""
    offsets = {reflection.reflection_id: reflection.offset for reflection in seen}

    def rank(operation: Operation) -> tuple[int, int, int]:
        newest = max((offsets.get(reflection_id, -1) for reflection_id in operation.evidence), default=-1)
        return *ops.support(operation, names), newest

    return tuple(sorted(proposals, key=rank))


def _spent(parts: Sequence[Part[Any, Any]]) -> dict[str, Any]:
    """Return the usage and requests of a node's calls, by the fields of its result."""
    return {
        "usage": sum((part.usage for part in parts), NOTHING_SPENT),
        "requests": tuple(part.request for part in parts if part.request),
    }


def _behind(item: GroupMember | Operation) -> tuple[str, ...]:
    """Return the reflections behind an item of a prompt."""
    return item.evidence if isinstance(item, Operation) else (item.reflection.reflection_id,)


def _words(item: GroupMember | Operation) -> str:
    """Return what an item says, for an operation "as item 3"."""
    return item.content if isinstance(item, Operation) else ops.lesson_of(item.reflection)


def _known(parts: Sequence[Part[Any, Answer]]) -> Iterator[Known]:
    """Yield the entries that models claim to say items already."""
    for part in parts:
        for n, entry_id in part.answer.known.items() if part.answer is not None else ():
            yield Known(entry_id=entry_id, evidence=_behind(part.items[n - 1]))


def _with_dropped(seen: Iterable[Seen], parts: Sequence[Part[Any, Answer]]) -> Iterator[Seen]:
    """Yield reflections with a note on those behind items that a model dropped by name."""
    named = ((part.items, part.answer.dropped) for part in parts if part.answer is not None)
    dropped = {one for items, numbers in named for n in numbers for one in _behind(items[n - 1])}
    for one in seen:
        yield one.model_copy(update={"dropped": True}) if one.reflection_id in dropped else one


def _one_seen(member: GroupMember, ids: Collection[str] | None) -> Seen:
    """Return a reflection as a node saw it, with its tags of the entries ``ids``; None: it did not get through."""
    reflection = member.reflection
    shown = reflection.shown if ids is not None else None
    # The last tag of an entry holds.
    tags = {tag.id: tag for tag in reflection.bullet_tags if tag.id in ids} if shown and ids else {}
    source = reflection.source
    if source and source.proof:  # free text, of which those of a large batch do not fit a record
        source = source.model_copy(update={"proof": ""})
    return Seen(
        reflection_id=reflection.reflection_id,
        offset=member.offset,
        ok=ids is not None,
        tags=tuple(tags.values())[:TAGS_KEPT],
        shown_version=shown.version if shown else None,
        source=source,
    )


# ---- the record of a result


def fitted(
    plan: Plan, manifest_offset: int, node: Node, result: NodeResult
) -> tuple[Partial | Update, Outgoing]:
    """Return a node's result as a message and its record, shortened where a record cannot hold it.

    Raises
    ------
    PoisonError
        When nothing is left to leave out.
    """
    is_carried = node.parent is not None and plan.settings.carry and plan.settings.holds == "entries"
    for candidate in chain([result], shorter(result, is_carried=is_carried)):
        own = candidate.model_copy(update={"reason": candidate.reason[:MAX_REASON_CHARS]})
        try:
            if node.parent is None:
                update = Update(plan=plan, manifest_offset=manifest_offset, node_id=node.id, result=own)
                return update, topics.UPDATES.record(update)
            partial = Partial(
                plan=plan,
                manifest_offset=manifest_offset,
                node_id=node.id,
                parent_id=node.parent.id,
                level=node.level,
                index=node.index,
                result=own,
            )
            return partial, topics.PARTIALS[node.level].record(partial)
        except CodecError:
            continue
    raise AssertionError("a result that cannot be shortened is poison")


def shorter(result: NodeResult, *, is_carried: bool = False) -> Iterator[NodeResult]:
    """Yield ever smaller results of a node; the reason of each names what was left out.

    Operations beyond ``MAX_SAID`` go first, of the source that takes most room. Then bookkeeping goes: most tags of a
    reflection; names that sources only claim; evidence of which other operations hold a copy; then all tags and the
    entries that calls were shown; then most names of what an operation or a known entry rests on, which are kept of
    each source in turn; then operations beyond half of ``MAX_SAID``; then what the model calls known. The other
    operations go last. Reflections that lose their last one did not get through, unless the root carries what no
    operation says (``is_carried``): only the model claims that they rest on long ones. Proven sources
    stay, behind each claim up to the number that an entry names: they decide what a source may do, whether it is
    revoked, and whether agents are shown a lesson.

    Raises
    ------
    PoisonError
        When nothing is left to leave out.
    """
    if result.aside:
        result = result.model_copy(update={"aside": ()})
        yield _noted(result, "proposals to carry left out for size")
    named = tuple(
        one.model_copy(update={"evidence": one.evidence[:1], "against": one.against[: ops.MAX_DETAIL_CHARS]})
        for one in result.conflicts
    )
    whole = result.model_copy(update={"conflicts": named})
    left = _in_turn(whole)
    size = sum(map(_size, whole.operations))
    while len(left) > 1 and size > MAX_SAID:
        room = size * 7 // 8
        while size > room:
            size -= _size(whole.operations[left.pop()])
        result = _with_only(whole, left, whole, is_carried=is_carried)
        result = _noted(result, f"{len(whole.operations) - len(left)} operations left out for size")
        yield result
    result = result.model_copy(update={"conflicts": named, "seen": _tagged(result.seen, TAGS_OF_EACH)})
    yield _noted(result, f"tags beyond {TAGS_OF_EACH} each left out for size")
    proven = tuple(
        one if one.source and one.source.proven else one.model_copy(update={"source": None})
        for one in result.seen
    )
    result = result.model_copy(update={"seen": proven})
    yield _noted(result, "names that are only claimed left out for size")
    result = _by_sources(result)
    for count in (EVIDENCE_KEPT, SOURCES_KEPT):
        cut = result.model_copy(update={"operations": ops.cut_evidence(result.operations, count)})
        yield _noted(cut, "evidence that others have too left out for size")
    bare = _tagged(result.seen, 0)
    cut = cut.model_copy(update={"seen": bare})
    yield _noted(cut, "evidence that others have too and tags left out for size")
    for count in (EVIDENCE_KEPT, SOURCES_KEPT):
        cut = _naming(cut, count)
        note = f"evidence beyond {count} each, and tags left out for size"
        yield _noted(cut, note)
    left = _in_turn(result)
    while left or cut.known:
        if not cut.known or sum(_size(result.operations[n]) for n in left) > MAX_SAID // 2:
            left = left[: len(left) * 7 // 8]
        else:
            cut, note = cut.model_copy(update={"known": ()}), f"what the model calls known, {note}"
        only = _with_only(cut, left, result, is_carried=is_carried)
        yield _noted(only, f"{len(result.operations) - len(left)} operations, {note}")
    raise PoisonError("the ids alone are too many for one record: use a smaller batch size")


def _with_only(cut: NodeResult, left: Iterable[int], whole: NodeResult, *, is_carried: bool) -> NodeResult:
    """Return a result with the operations ``left``; ``whole`` has all their evidence. See ``shorter``."""
    left = sorted(left)
    seen = cut.seen if is_carried else _without(cut.seen, _lost(whole, left))
    return cut.model_copy(update={"operations": tuple(cut.operations[n] for n in left), "seen": seen})


def _in_turn(result: NodeResult) -> list[int]:
    """Return the places of operations, those to keep first: of each source in turn, the shortest per reflection."""
    operations = result.operations
    names = {one.reflection_id: counted_name(one.source, "proven") for one in result.seen}
    by_length = sorted(
        range(len(operations)), key=lambda n: len(operations[n].content) / (1 + len(operations[n].evidence))
    )
    said_by = [{names.get(one, "") for one in operation.evidence} for operation in operations]
    return in_turn(said_by, sizes=list(map(_size, operations)), order=by_length)


def _size(operation: Operation) -> int:
    """Return the bytes of an operation's texts and ids; of its evidence, of what is kept once evidence is cut."""
    texts = operation.section, operation.content, *operation.entry_ids, *operation.evidence[:EVIDENCE_KEPT]
    return sum(len(text.encode(errors="replace")) for text in texts)


def _tagged(seen: Iterable[Seen], count: int) -> tuple[Seen, ...]:
    """Return reflections with the first ``count`` tags of each."""
    return tuple(
        reflection.model_copy(update={"tags": reflection.tags[:count]}) if reflection.tags else reflection
        for reflection in seen
    )


def _noted(result: NodeResult, note: str) -> NodeResult:
    return result.model_copy(update={"reason": reasons((note, result.reason))})


def _by_sources(result: NodeResult) -> NodeResult:
    """Return a result that names the reflections behind what it says of each source in turn.

    Only the first ones may be kept, and who says something often leaves others their place among these.
    """
    names = {one.reflection_id: counted_name(one.source, "proven") for one in result.seen}

    def dealt(ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(ids[place] for place in in_turn([{names.get(one, "")} for one in ids]))

    return _with_evidence(result, dealt)


def _naming(result: NodeResult, count: int) -> NodeResult:
    """Return a result whose operations and known entries name at most ``count`` reflections each."""
    return _with_evidence(result, lambda ids: tuple(ids[:count]))


def _with_evidence(result: NodeResult, kept: Callable[[Sequence[str]], tuple[str, ...]]) -> NodeResult:
    """Return a result with what is ``kept`` of the reflections behind each operation and each known entry."""
    return result.model_copy(
        update={
            name: tuple(
                claim.model_copy(update={"evidence": kept(claim.evidence)}) for claim in getattr(result, name)
            )
            for name in ("operations", "known", "echoes")
        }
    )


def _lost(result: NodeResult, left: Iterable[int]) -> frozenset[str]:
    """Return the reflections that no operation rests on once only the operations ``left`` stay."""
    claims: list[Operation | Known] = [*(result.operations[n] for n in left), *result.known]
    return ops.rests(result.operations).difference(chain.from_iterable(claim.evidence for claim in claims))


def _without(seen: Iterable[Seen], lost: frozenset[str]) -> tuple[Seen, ...]:
    return tuple(
        reflection.model_copy(update={"ok": False, "covered": ""})
        if reflection.reflection_id in lost
        else reflection
        for reflection in seen
    )
