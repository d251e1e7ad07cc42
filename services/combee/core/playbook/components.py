"""Changes of a playbook, by what it holds; of components no code evicts any or makes two into one.

A component is a section with one text (GEPA). Its text changes as a whole or not at all.
"""

from collections.abc import Iterable, Sequence

from combee.core.formats.render import section_order
from combee.core.playbook.apply import apply_operations, begin, finish, rest_on, slug
from combee.core.playbook.draft import Draft
from combee.core.prompt import entry_tokens
from combee_schemas.base import Holds
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Echo, Operation, OperationKind, Seen

Changed = tuple[Draft, tuple[str, ...], tuple[Entry, ...]]
"""What was done, and the sections and entries that follow."""


def held_after(base: Playbook, holds: Holds) -> Holds:
    """Return what a playbook holds after an update by a method that holds ``holds``: what there is, decides."""
    return base.holds if base.entries else holds


def misfit(playbook: Playbook, holds: Holds, method: str) -> str | None:
    """Return why a method that ``holds`` this must not go on with a playbook, and the remedy; None: it may."""
    if not playbook.entries or playbook.holds == holds:
        return None
    other = "gepa" if playbook.holds == "components" else "ace"
    learned = playbook.method if playbook.batch_sequence else other
    return (
        f"{playbook.name} holds {playbook.holds}, and the method {method} would turn them into {holds}: nothing is"
        f" learned until COMBEE_METHOD={learned} again; or let {method} learn a playbook of another name"
    )


def applied(
    base: Playbook,
    operations: Sequence[Operation],
    seen: Iterable[Seen],
    *,
    holds: Holds,
    budget_tokens: int,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
) -> Changed:
    """Apply operations made for a playbook that ``holds`` this; on another kind they are dropped, and recorded."""
    held = held_after(base, holds)
    usable = operations if held == holds else ()
    if held == "components":
        draft, winners = begin(base, usable, seen, revoked=revoked, echoes=echoes)
        for operation in winners:
            done = len(draft.changes)
            _apply(draft, operation, budget_tokens)
            draft.landing.take(draft.changes[done:], operation.evidence)
        entries = tuple(draft.entries.values())
        found = draft, section_order((), entries), entries
    else:
        draft = apply_operations(base, usable, seen, revoked=revoked, echoes=echoes)
        found = draft, *finish(base, draft, budget_tokens)
    if held != holds:
        for operation in operations:
            draft.note("dropped", "", f"{operation.kind}: made for {holds}, and the playbook holds {held}")
    return found


def clash(entries: Iterable[Entry]) -> str | None:
    """Return why entries are no components, because a section has two texts; None: they are."""
    sections = [entry.section for entry in entries]
    twice = sorted({section for section in sections if sections.count(section) > 1})
    return f"components have one text each, and there are several for {', '.join(twice)}" if twice else None


def _apply(draft: Draft, operation: Operation, budget_tokens: int) -> None:
    match operation.kind:
        case OperationKind.REMOVE if draft.drop(operation.entry_ids[0]):
            draft.note("remove", operation.entry_ids[0])
        case OperationKind.ADD:
            there = (entry for entry in draft.entries.values() if entry.section == operation.section)
            _write(draft, next(there, None) or _new(draft, operation.section), operation, budget_tokens)
        case OperationKind.UPDATE if entry := draft.entries.get(operation.entry_ids[0]):
            _write(draft, entry, operation, budget_tokens)
        case _:
            draft.note("dropped", operation.entry_ids[0], f"{operation.kind}: not for components as they are")


def _new(draft: Draft, section: str) -> Entry:
    return Entry(
        id=f"{slug(section)}-{draft.next_id:05d}", section=section, content="", created_version=draft.version
    )


def _write(draft: Draft, entry: Entry, operation: Operation, budget_tokens: int) -> None:
    """Give a component its new text, unless the playbook would grow beyond its budget: no part of a text can go."""
    written = rest_on(
        entry.model_copy(update={"content": operation.content}), operation.evidence, draft.version
    )
    others = sum(
        entry_tokens(other_entry) for other_entry in draft.entries.values() if other_entry.id != entry.id
    )
    if entry_tokens(written) > max(budget_tokens - others, entry_tokens(entry)):
        size = f"{entry_tokens(written)} tokens beside {others} exceed the budget of {budget_tokens}"
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
