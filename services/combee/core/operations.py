"""Operations as values: read from a model's reply, merged by code, their evidence kept by code."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from combee_schemas.playbook import ACE_SECTIONS
from combee_schemas.scan import Operation, OperationKind, Seen

MAX_CONTENT_CHARS = 8_000
MAX_SECTION_CHARS = 80
TARGETS = {OperationKind.ADD: 0, OperationKind.UPDATE: 1, OperationKind.REMOVE: 1, OperationKind.MERGE: 2}
"""How many entries an operation must name at least."""


def normalise(content: str) -> str:
    """Return what makes two contents the same lesson: letters, digits and signs, without case and spacing."""
    return re.sub(r"\s+", " ", content).strip().rstrip(".").casefold()


def union(*ids: Iterable[str]) -> tuple[str, ...]:
    """Return all ids once, in order of first appearance."""
    return tuple(dict.fromkeys(one for some in ids for one in some))


def read_operations(
    body: Mapping[str, Any], sources: Sequence[tuple[str, ...]]
) -> tuple[tuple[Operation, ...], int]:
    """Return the usable operations of a curator's reply and how many were not usable.

    ``sources[n-1]`` is the evidence of the prompt's item n. Numbers that no item has are ignored;
    an operation that names none rests on all items: too wide is honest, empty would lose lineage.
    """
    items = body.get("operations")
    if not isinstance(items, list):
        return (), 0
    read = [_read(item, sources) for item in items]
    usable = tuple(operation for operation in read if operation is not None)
    return merge(usable), len(read) - len(usable)


def _read(item: object, sources: Sequence[tuple[str, ...]]) -> Operation | None:
    if not isinstance(item, dict):
        return None
    kind = str(item.get("type", item.get("kind", ""))).upper()
    if kind not in OperationKind.__members__:
        return None
    content = " ".join(str(item.get("content") or "").split())[:MAX_CONTENT_CHARS]
    targets = _texts(item.get("entry_ids"))
    needs_content = kind != OperationKind.REMOVE
    if len(targets) < TARGETS[OperationKind(kind)] or (needs_content and not content):
        return None
    return Operation(
        kind=OperationKind(kind),
        section=_section(str(item.get("section") or "")),
        content=content,
        entry_ids=() if kind == OperationKind.ADD else targets,
        evidence=_evidence(item.get("sources"), sources),
    )


def _section(name: str) -> str:
    clean = " ".join(name.replace("_", " ").split()).strip("# ")[:MAX_SECTION_CHARS].upper()
    return clean or ACE_SECTIONS[-1]


def _texts(value: object) -> tuple[str, ...]:
    return union(str(one) for one in value if isinstance(one, str) and one) if isinstance(value, list) else ()


def _evidence(numbers: object, sources: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    valid = [n for n in numbers if _names_item(n, len(sources))] if isinstance(numbers, list) else []
    return union(*(sources[n - 1] for n in valid)) if valid else union(*sources)


def _names_item(number: object, items: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= items


def merge(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations with exact repeats folded together, evidence united."""
    merged: dict[tuple[object, ...], Operation] = {}
    for operation in operations:
        same = (operation.kind, operation.entry_ids, normalise(operation.content))
        if first := merged.get(same):
            evidence = union(first.evidence, operation.evidence)
            merged[same] = first.model_copy(update={"evidence": evidence})
        else:
            merged[same] = operation
    return tuple(merged.values())


def merge_seen(parts: Iterable[Iterable[Seen]]) -> tuple[Seen, ...]:
    """Return each reflection once: got through if one of its copies did; its tags are counted once."""
    merged: dict[str, Seen] = {}
    for part in parts:
        for seen in part:
            known = merged.get(seen.reflection_id)
            if known is None or (seen.ok and not known.ok):
                merged[seen.reflection_id] = seen
    return tuple(merged.values())
