"""Apply operations to a playbook of components, within its token budget.

A component is a section with one text (GEPA). Its text changes as a whole or not at all: no code evicts or merges
components.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from combee.core.playbook import draft as drafts
from combee.core.playbook.budget import ENTRIES_BYTES, entry_tokens, stored_bytes
from combee.core.playbook.draft import NO_IDS, Draft, rest_on
from combee.core.playbook.sections import section_order
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Echo, Known, Operation, OperationKind, Seen


def apply_operations(
    base: Playbook,
    operations: Iterable[Operation],
    seen: Iterable[Seen],
    *,
    budget_tokens: int,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
    known: Iterable[Known] = (),
    ids: Mapping[str, str] = NO_IDS,
) -> Draft:
    """Return ``base`` with tags counted and operations applied in order, up to the budget."""
    apply = partial(_apply, budget_tokens=budget_tokens)
    return drafts.apply_operations(
        base, operations, seen, apply, revoked=revoked, echoes=echoes, known=known, ids=ids
    )


def finish(draft: Draft) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """Return sections and components; a section exists while it has a text."""
    components = tuple(draft.entries.values())
    return section_order((), components), components


def clash(entries: Iterable[Entry]) -> str | None:
    """Return why entries cannot be components, because a section has two texts; None: they can."""
    sections = [entry.section for entry in entries]
    twice = sorted({section for section in sections if sections.count(section) > 1})
    return f"components have one text each, and there are several for {', '.join(twice)}" if twice else None


def _apply(draft: Draft, operation: Operation, budget_tokens: int) -> None:
    match operation.kind:
        case OperationKind.REMOVE if draft.drop(operation.entry_ids[0]):
            draft.note("remove", operation.entry_ids[0])
        case OperationKind.ADD:
            there = (entry for entry in draft.entries.values() if entry.section == operation.section)
            component = next(there, None) or _new(draft, operation.section, operation.content)
            draft.placed.setdefault(operation.content, component.id)
            _write(draft, component, operation, budget_tokens)
        case OperationKind.UPDATE if entry := draft.entries.get(operation.entry_ids[0]):
            _write(draft, entry, operation, budget_tokens)
        case _:
            draft.note("dropped", operation.entry_ids[0], f"{operation.kind}: not for components as they are")


def _new(draft: Draft, section: str, content: str) -> Entry:
    return Entry(
        id=draft.new_id(section, content), section=section, content="", created_version=draft.version
    )


def _write(draft: Draft, entry: Entry, operation: Operation, budget_tokens: int) -> None:
    """Replace a component's text, unless the playbook would exceed its budget: no part of a text can be removed."""
    written = rest_on(
        entry.model_copy(update={"content": operation.content}), operation.evidence, draft.version
    )
    others = [other for other in draft.entries.values() if other.id != entry.id]
    taken = sum(map(entry_tokens, others))
    if entry_tokens(written) > max(budget_tokens - taken, entry_tokens(entry)):
        size = f"{entry_tokens(written)} tokens in addition to {taken} exceed the budget of {budget_tokens}"
        draft.note("dropped", entry.id, f"{operation.kind}: {size}")
        return
    if (size_bytes := stored_bytes([*others, written])) > ENTRIES_BYTES:
        size = f"{size_bytes} bytes exceed the {ENTRIES_BYTES} of a version's record"
        draft.note("dropped", entry.id, f"{operation.kind}: {size}")
        return
    is_new = entry.id not in draft.entries
    draft.next_id += is_new
    draft.put(written)
    if is_new:
        draft.note("add", entry.id)
    elif entry.content == operation.content:
        draft.note("duplicate", entry.id, f"{len(operation.evidence)} more reflections leave it as it is")
    else:
        draft.note("update", entry.id, entry.content)
