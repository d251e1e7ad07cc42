"""Operations as values: read from a model's reply, merged by code, their evidence tracked by code."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from combee.core.methods.method import Answer, Sources
from combee.core.playbook.sections import MAX_SECTION_CHARS
from combee.core.text.forms import clean_line
from combee.core.text.similarity.wording import wording
from combee_schemas.playbook import ACE_SECTIONS
from combee_schemas.scan import Operation, OperationKind, Seen

MAX_CONTENT_CHARS = 8_000
MAX_ID_CHARS = 200
MAX_OPERATIONS = 2_000
"""Maximum operations in one reply: as many as the largest batch has reflections."""
MAX_REPLY_CHARS = 250_000
"""Maximum characters of contents in one reply: a verbose node must not crowd out the others."""
TARGETS = {OperationKind.ADD: 0, OperationKind.UPDATE: 1, OperationKind.REMOVE: 1, OperationKind.MERGE: 2}
"""Minimum number of entries that an operation must name."""
KINDS = {kind.value: kind for kind in OperationKind}


def normalise(content: str) -> tuple[str, ...]:
    """Return a form that is equal for contents with the same lesson, typing errors aside."""
    return wording(content).words


def union(*ids: Iterable[str]) -> tuple[str, ...]:
    """Return all ids once, in order of first appearance."""
    return tuple(dict.fromkeys(chain.from_iterable(ids)))


def read_operations(body: Mapping[str, Any], sources: Sources) -> Answer:
    """Return the usable operations of a curator's reply, within bounds, and the items they mention.

    Unknown item numbers are ignored. An operation without numbers rests on all items, marked as a guess: wide
    evidence is honest, while empty evidence would lose the lineage. Such an operation, typical of weak models, also
    mentions all items; an operation with only unknown numbers mentions none.
    """
    items = body.get("operations")
    if not isinstance(items, list):
        return Answer(operations=())
    everything = union(*sources)
    read = (_read(item, sources, everything) for item in items[:MAX_OPERATIONS])
    usable = tuple(_bounded(record for record in read if record is not None))
    dropped = frozenset(_numbers(body.get("dropped"), sources))
    guesses = any(answer.guessed for answer in usable)
    named = rests(answer.operation for answer in usable if not answer.guessed)
    return Answer(
        operations=merge(answer.operation for answer in usable),
        unusable=len(items) - len(usable),
        mentioned=dropped.union(*{answer.mentions for answer in usable}),
        dropped=dropped,
        known=_claims(body.get("known"), sources),
        guessed=frozenset(everything) - named if guesses else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    operation: Operation
    mentions: Sequence[int]
    guessed: bool


def _bounded(read: Iterable[_Read]) -> Iterator[_Read]:
    chars = 0
    for record in read:
        chars += len(record.operation.content)
        if chars > MAX_REPLY_CHARS:
            return
        yield record


def _read(item: object, sources: Sources, everything: tuple[str, ...]) -> _Read | None:
    if not isinstance(item, dict):
        return None
    kind = KINDS.get(str(item.get("type", item.get("kind", ""))).upper())
    if kind is None:
        return None
    content = clean_line(str(item.get("content") or ""), MAX_CONTENT_CHARS)
    targets = _texts(item.get("entry_ids"))
    needs_content = kind != OperationKind.REMOVE
    if len(targets) < TARGETS[kind] or (needs_content and not content):
        return None
    given = item.get("sources")
    named = _numbers(given, sources)
    operation = Operation(
        kind=kind,
        section=_section(str(item.get("section") or "")),
        content=content,
        entry_ids=() if kind == OperationKind.ADD else targets,
        evidence=union(*(sources[n - 1] for n in named)) if named else everything,
        guessed=() if named or len(sources) <= 1 else everything,
    )
    mentions = named if given else range(1, len(sources) + 1)
    return _Read(operation, mentions, guessed=bool(operation.guessed))


def _section(name: str) -> str:
    return clean_line(name.strip("# "), MAX_SECTION_CHARS) or ACE_SECTIONS[-1]


def _texts(value: object) -> tuple[str, ...]:
    texts = (
        (clean_line(text, MAX_ID_CHARS) for text in value if isinstance(text, str))
        if isinstance(value, list)
        else ()
    )
    return union(text for text in texts if text)


def _numbers(value: object, sources: Sources) -> tuple[int, ...]:
    """Return the item numbers in a reply's list, once each, without unknown ones."""
    numbers = value if isinstance(value, list) else []
    whole = dict.fromkeys(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
    return tuple(n for n in whole if 1 <= n <= len(sources))


def _claims(value: object, sources: Sources) -> dict[int, str]:
    """Return, per item, the first entry that the reply claims has the same content."""
    claims: dict[int, str] = {}
    for claim in value if isinstance(value, list) else ():
        given = claim if isinstance(claim, dict) else {}
        for n in _numbers([given.get("n")], sources):
            for entry_id in _texts([given.get("entry_id")]):
                claims.setdefault(n, entry_id)
    return claims


def merge(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations with exact repeats merged, and their evidence united."""
    merged: dict[tuple[object, ...], Operation] = {}
    for operation in operations:
        same = (operation.kind, operation.entry_ids, normalise(operation.content))
        if first := merged.get(same):
            merged[same] = resting_together(first, operation)
        else:
            merged[same] = operation
    return tuple(merged.values())


def resting_together(first: Operation, second: Operation) -> Operation:
    """Return ``first`` with the evidence of both; evidence named by either is no guess."""
    evidence = union(first.evidence, second.evidence)
    sure = {*first.evidence}.difference(first.guessed) | {*second.evidence}.difference(second.guessed)
    guessed = tuple(reflection_id for reflection_id in evidence if reflection_id not in sure)
    return first.model_copy(update={"evidence": evidence, "guessed": guessed})


def rests(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the reflections that at least one of the operations rests on."""
    return frozenset(reflection_id for operation in operations for reflection_id in operation.evidence)


def surely_rests(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the reflections that at least one of the operations surely rests on, i.e. not by a guess."""
    return frozenset().union(
        *(frozenset(operation.evidence).difference(operation.guessed) for operation in operations)
    )


def cut_evidence(operations: Sequence[Operation], kept: int) -> tuple[Operation, ...]:
    """Return the operations with ``kept`` ids each, plus all ids that no earlier operation has."""
    cut: list[Operation] = []
    named: set[str] = set()
    for operation in operations:
        known = [reflection_id for reflection_id in operation.evidence if reflection_id in named]
        fresh = [reflection_id for reflection_id in operation.evidence if reflection_id not in named]
        named.update(fresh)
        evidence = (*fresh, *known[: max(0, kept - len(fresh))])
        guessed = tuple(reflection_id for reflection_id in operation.guessed if reflection_id in evidence)
        cut.append(operation.model_copy(update={"evidence": evidence, "guessed": guessed}))
    return tuple(cut)


def merge_seen(parts: Iterable[Iterable[Seen]]) -> tuple[Seen, ...]:
    """Return each reflection once, with the best result among its copies; tags count once."""
    merged: dict[str, Seen] = {}
    for part in parts:
        for seen in part:
            known = merged.get(seen.reflection_id)
            best = seen if known is None or (seen.ok and not known.ok) else known
            copies = (seen,) if known is None else (seen, known)
            covered = next((copy.covered for copy in copies if copy.covered), "")
            told = {
                "said": any(copy.said for copy in copies),
                "covered": covered,
                "dropped": not covered and any(copy.dropped for copy in copies),
            }
            if any(getattr(best, name) != value for name, value in told.items()):
                best = best.model_copy(update=told)
            merged[seen.reflection_id] = best
    return tuple(merged.values())
