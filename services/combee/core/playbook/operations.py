"""Operations as values: read from a model's reply, cleaned, merged by code, their evidence tracked by code."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from combee.core.methods.method import Answer, Sources
from combee.core.playbook.sections import MAX_SECTION_CHARS
from combee.core.text.forms import clean, clean_line
from combee.core.text.similarity.wording import said
from combee_schemas.base import is_blank
from combee_schemas.command import Command
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.scan import Operation, OperationKind, Seen

MAX_CONTENT_CHARS = 8_000
MAX_DETAIL_CHARS = 300
"""Of a change, and of a content that a conflict names."""
MAX_ID_CHARS = 200
MAX_OPERATIONS = 2_000
"""Maximum operations in one reply: as many as the largest batch has reflections."""
MAX_REPLY_CHARS = 250_000
"""Maximum characters of contents in one reply: a verbose node must not crowd out the others.

Words of items that code puts in count: a node's record holds them, however often a reply names one item."""
TARGETS = {OperationKind.ADD: 0, OperationKind.UPDATE: 1, OperationKind.REMOVE: 1, OperationKind.MERGE: 2}
"""Minimum number of entries that an operation must name."""
AS_ITEM = re.compile(r"as items? #?(?P<n>\d{1,6})(?P<more>.{0,40})", re.IGNORECASE | re.DOTALL)
"""Content that refers to an item for its words; with anything more, to words that code cannot tell."""
_AROUND = " \t\n.\"'`\u201c\u201d\u2018\u2019"
"""What a model puts around a reference."""
UNNAMED = "unnamed"
"""Id of an entry whose own has no visible character."""
KINDS = {kind.value: kind for kind in OperationKind}


def union(*ids: Iterable[str]) -> tuple[str, ...]:
    """Return all ids once, in order of first appearance."""
    return tuple(dict.fromkeys(chain.from_iterable(ids)))


def read_operations(body: Mapping[str, Any], sources: Sources) -> Answer:
    """Return the usable operations of a curator's reply, within bounds, and what it claims about the items.

    Unknown item numbers are ignored. An operation without numbers, typical of weak models, claims all items.
    """
    items = body.get("operations")
    if not isinstance(items, list):
        return Answer(operations=())
    everything = union(*sources)
    read = (_read(item, sources, everything) for item in items[:MAX_OPERATIONS])
    usable = tuple(_bounded(operation for operation in read if operation is not None))
    return Answer(
        operations=merge(usable),
        unusable=len(items) - len(usable),
        dropped=frozenset(_numbers(body.get("dropped"), sources)),
        known=_claims(body.get("known"), sources),
    )


def lesson_of(reflection: Reflection) -> str:
    """Return what stands for a reflection, on one line, as far as an entry holds it; empty if it has no text."""
    texts = (reflection.key_insight, reflection.correct_approach, *texts_of(reflection))
    said = next((text for text in texts if not is_blank([text])), "")
    return clean_line(said, MAX_CONTENT_CHARS)


def texts_of(reflection: Reflection) -> tuple[str, ...]:
    """Return all texts of a reflection; another method's reflections have that method's."""
    said = tuple(text for name in LESSON_FIELDS if (text := getattr(reflection, name)))
    return said or tuple(reflection.side_info.values())


def in_words(body: Mapping[str, Any], words: Sequence[str]) -> Mapping[str, Any]:
    """Return a curator's reply in which an operation with the content "as item 3" has that item's words.

    ``words[n - 1]`` is what item n says. An operation as an item that there is not, or that has no words, is none.
    """
    items = body.get("operations")
    if not isinstance(items, list):
        return body

    def worded(item: object) -> Iterator[object]:
        said = str(item.get("content") or "").strip(_AROUND) if isinstance(item, dict) else ""
        named = AS_ITEM.fullmatch(said)
        if named is None or not isinstance(item, dict):
            yield item
        else:
            content = "" if named["more"] else dict(enumerate(words, 1)).get(int(named["n"]), "")
            if content or _kind(item) == OperationKind.REMOVE:
                yield {**item, "content": content}

    return {**body, "operations": list(chain.from_iterable(map(worded, items)))}


def _bounded(read: Iterable[Operation]) -> Iterator[Operation]:
    chars = 0
    for operation in read:
        chars += len(operation.content)
        if chars > MAX_REPLY_CHARS:
            return
        yield operation


def _read(item: object, sources: Sources, everything: tuple[str, ...]) -> Operation | None:
    if not isinstance(item, dict):
        return None
    kind = _kind(item)
    if kind is None:
        return None
    needs_content = kind != OperationKind.REMOVE
    # A removal says nothing: reflections that say its text would be evidence for it.
    content = clean_line(str(item.get("content") or ""), MAX_CONTENT_CHARS) if needs_content else ""
    targets = _texts(item.get("entry_ids"))
    if kind != OperationKind.MERGE:
        # What reflections say of a further entry would count against the first one.
        targets = targets[: TARGETS[kind]]
    if len(targets) < TARGETS[kind] or (needs_content and not content):
        return None
    named = _numbers(item.get("sources"), sources)
    return Operation(
        kind=kind,
        section=_section(str(item.get("section") or "")),
        content=content,
        entry_ids=targets,
        evidence=union(*(sources[n - 1] for n in named)) if named else everything,
    )


def _kind(item: Mapping[str, Any]) -> OperationKind | None:
    return KINDS.get(str(item.get("type", item.get("kind", ""))).upper())


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
        for n in set(_numbers([given.get("n")], sources)).difference(claims):
            for entry_id in _texts([given.get("entry_id")]):
                claims.setdefault(n, entry_id)
    return claims


def support(operation: Operation, names: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of sources and of reflections behind an operation; those without a name share a source."""
    return len({names.get(reflection_id, "") for reflection_id in operation.evidence}), len(
        operation.evidence
    )


def merge(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations with exact repeats merged, and their evidence united."""
    merged: dict[tuple[object, ...], Operation] = {}
    for operation in operations:
        same = (operation.kind, operation.entry_ids, said(operation.content))
        if first := merged.get(same):
            merged[same] = resting_together(first, operation)
        else:
            merged[same] = operation
    return tuple(merged.values())


def resting_together(first: Operation, second: Operation) -> Operation:
    """Return ``first`` with the evidence of both."""
    return first.model_copy(update={"evidence": union(first.evidence, second.evidence)})


def rests(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the reflections that at least one of the operations rests on."""
    return frozenset(reflection_id for operation in operations for reflection_id in operation.evidence)


def cut_evidence(operations: Sequence[Operation], kept: int) -> tuple[Operation, ...]:
    """Return the operations with their first ``kept`` ids each, plus all ids that no earlier operation has."""
    cut: list[Operation] = []
    named: set[str] = set()
    for operation in operations:
        first = frozenset(operation.evidence[:kept])
        evidence = tuple(one for one in operation.evidence if one in first or one not in named)
        named.update(operation.evidence)
        cut.append(operation.model_copy(update={"evidence": evidence}))
    return tuple(cut)


def merge_seen(parts: Iterable[Iterable[Seen]]) -> tuple[Seen, ...]:
    """Return each reflection once, as a copy that got through saw it; dropped if a copy was. Tags count once."""
    merged: dict[str, Seen] = {}
    for seen in chain.from_iterable(parts):
        known = merged.get(seen.reflection_id, seen)
        best = seen if seen.ok and not known.ok else known
        dropped = seen.dropped or known.dropped
        merged[seen.reflection_id] = (
            best if best.dropped == dropped else best.model_copy(update={"dropped": dropped})
        )
    return tuple(merged.values())


# ---- texts that models propose, and people write, import or decide on


def clean_command(command: Command) -> Command:
    """Return a command with clean texts; the same object if they were clean."""
    return command.model_copy(
        update={
            "entries": _clean_entries(command.entries),
            "sections": _clean_sections(command.sections),
            "operations": clean_operations(command.operations),
            "reason": clean(command.reason),
            "issued_by": clean(command.issued_by),
        }
    )


def clean_operations(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations with clean texts."""
    return tuple(
        operation.model_copy(
            update={"content": clean(operation.content), "section": clean(operation.section)}
        )
        for operation in operations
    )


def clean_playbook(playbook: Playbook) -> Playbook:
    """Return a user's playbook with clean texts."""
    return playbook.model_copy(
        update={"entries": _clean_entries(playbook.entries), "sections": _clean_sections(playbook.sections)}
    )


def _clean_entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(
        entry.model_copy(
            update={
                "id": clean(entry.id) or UNNAMED,
                "section": clean(entry.section),
                "content": clean(entry.content),
            }
        )
        for entry in entries
    )


def _clean_sections(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(clean, names)))
