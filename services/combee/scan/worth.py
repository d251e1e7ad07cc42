"""What answers are worth: from the parts of a node's calls to its result; pure."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from combee.core.methods.method import Answer, Method
from combee.core.playbook import operations as ops
from combee.core.playbook.clusters import within
from combee.core.playbook.coverage import Lesson, word_for_word
from combee.core.playbook.derived import once_per_version
from combee.scan.asking import Part
from combee.scan.outcome import SKIPPED, reasons
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Cluster
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, Known, NodeResult, Operation, Seen

TAGS_KEPT = 200
"""Maximum number of tags counted per reflection: the first ones about entries of the playbook."""

Parts = Sequence[Part[Sequence[GroupMember], Answer]]


def of_group(
    method: Method, base: Playbook, parts: Parts, *, quiet: Sequence[Lesson] = (), note: str = ""
) -> NodeResult:
    """Return a group's result from its calls, and from the lessons that no model may read."""
    ids = _ids(base)
    answers = [part.answer for part in parts if part.answer is not None]
    operations = tuple(chain.from_iterable(answer.operations for answer in answers))
    failed = not answers and not quiet
    if len(answers) > 1 or quiet:
        operations = method.merge(base, (*operations, *word_for_word(quiet)))
    return NodeResult(
        status="failed" if failed else "ok" if operations else "empty",
        reason=reasons((note, *(part.problem for part in parts))),
        operations=operations,
        known=tuple(chain.from_iterable(map(_known_in_group, parts))),
        seen=(
            *chain.from_iterable(_seen(part, ids) for part in parts),
            *(_one_seen(lesson.member, ids) for lesson in quiet),
        ),
        **(_spent(parts) if parts else {"usage": SKIPPED}),
    )


def of_combine(
    method: Method,
    base: Playbook,
    below: NodeResult,
    parts: Sequence[Part[Sequence[Operation], Answer]],
    *,
    quiet: Sequence[Operation] = (),
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
            "operations": (*(operations[0] if is_whole else merged), *quiet),
            "known": (*below.known, *chain.from_iterable(map(_known_in_combine, parts))),
            "seen": _with_dropped(below.seen, parts),
            **own,
            "usage": below.usage + own["usage"],
        }
    )


def of_consolidation(
    parts: Sequence[Part[Sequence[Cluster], tuple[Operation, ...]]],
) -> NodeResult:
    """Return a consolidation's result: operations within the clusters of its calls."""
    operations = tuple(
        chain.from_iterable(within(part.answer, part.items) for part in parts if part.answer is not None)
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


def by_age(proposals: Iterable[Operation], seen: Sequence[Seen]) -> tuple[Operation, ...]:
    """Return proposals in the order of their newest evidence, oldest first, as the prompt says."""
    offsets = {reflection.reflection_id: reflection.offset for reflection in seen}

    def newest(operation: Operation) -> int:
        return max((offsets.get(reflection_id, -1) for reflection_id in operation.evidence), default=-1)

    return tuple(sorted(proposals, key=newest))


def _spent(parts: Sequence[Part[Any, Any]]) -> dict[str, Any]:
    """Return the usage, requests and shown entries of a node's calls, by the fields of its result."""
    return {
        "usage": sum((part.usage for part in parts), NOTHING_SPENT),
        "requests": tuple(part.request for part in parts if part.request),
        "scope": ops.union(*(part.scope for part in parts)),
    }


def _known_in_group(part: Part[Sequence[GroupMember], Answer]) -> tuple[Known, ...]:
    claims = part.answer.known if part.answer is not None else {}
    return tuple(
        Known(entry_id=entry_id, evidence=(part.items[n - 1].reflection.reflection_id,))
        for n, entry_id in claims.items()
    )


def _known_in_combine(part: Part[Sequence[Operation], Answer]) -> tuple[Known, ...]:
    claims = part.answer.known if part.answer is not None else {}
    return tuple(
        Known(entry_id=entry_id, evidence=part.items[n - 1].evidence) for n, entry_id in claims.items()
    )


def _with_dropped(
    seen: Sequence[Seen], parts: Sequence[Part[Sequence[Operation], Answer]]
) -> tuple[Seen, ...]:
    """Return reflections with a note on those whose proposals the model dropped by name."""
    dropped = ops.rests(
        part.items[n - 1] for part in parts if part.answer is not None for n in part.answer.dropped
    )
    return tuple(
        one.model_copy(update={"dropped": True}) if one.reflection_id in dropped else one for one in seen
    )


def _seen(part: Part[Sequence[GroupMember], Answer], ids: Collection[str]) -> Iterable[Seen]:
    """Yield reflections as a call saw them; without an answer none got through."""
    answer = part.answer
    for n, member in enumerate(part.items, 1):
        if answer is None:
            yield _one_seen(member, None)
        else:
            seen = _one_seen(member, ids)
            yield seen.model_copy(update={"dropped": True}) if n in answer.dropped else seen


def _one_seen(member: GroupMember, ids: Collection[str] | None) -> Seen:
    """Return a reflection as a node saw it, with its tags of the entries ``ids``; None: it did not get through."""
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


@once_per_version
def _ids(base: Playbook) -> frozenset[str]:
    return frozenset(entry.id for entry in base.entries)
