"""Apply operations to a playbook, by what it holds: entries or components.

Pure, so that history replayed gives the same snapshots.
"""

from collections.abc import Iterable, Mapping, Sequence

from combee.core.playbook import components, entries, probation
from combee.core.playbook.draft import Draft
from combee.core.playbook.rejections import admitted
from combee.core.playbook.screening import Screen, with_sources
from combee.core.sources import names_of
from combee_schemas.base import Holds
from combee_schemas.plan import PlanSettings, Probation
from combee_schemas.playbook import Entry, EntryState, Playbook
from combee_schemas.scan import Echo, Known, Operation, Seen

Changed = tuple[Draft, tuple[str, ...], tuple[Entry, ...]]
"""The draft with its changes, and the sections and entries of the next version."""


def holds_after(base: Playbook, holds: Holds) -> Holds:
    """Return what a playbook holds after an update by a method that ``holds`` this: what it holds already stays."""
    return base.holds if base.entries else holds


def misfit(playbook: Playbook, holds: Holds, method: str) -> str | None:
    """Return why a method that ``holds`` this must not go on with a playbook, and the remedy; None: it may."""
    if not playbook.entries or playbook.holds == holds:
        return None
    expected = "gepa" if playbook.holds == "components" else "ace"
    learned = playbook.method if playbook.batch_sequence else expected
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
    known: Iterable[Known] = (),
    policy: Probation | None = None,
    settings: PlanSettings | None = None,
) -> Changed:
    """Apply operations made for a playbook that ``holds`` this; on another kind they are dropped, and recorded.

    ``policy`` is that of a batch's plan; None: a person's change, which is active at once. ``settings`` are the
    plan's, None: a person's change, of which everything counts. Components are never on probation.
    """
    seen = tuple(seen)
    kind = holds_after(base, holds)
    usable = operations if kind == holds else ()
    screen = Screen.of(base, seen, settings if kind == "entries" else None, revoked)
    names = names_of(seen, settings.sources) if settings else {}
    seen = screen.heard(seen)
    usable, refused = admitted(base, usable, screen)
    if kind == "components":
        draft = components.apply_operations(
            base, usable, seen, budget_tokens=budget_tokens, revoked=revoked, echoes=echoes, known=known
        )
        _name_sources(draft, names)
        sections, remaining = components.finish(draft)
    else:
        waits = policy is not None and (screen.proposes or not probation.is_off(policy))
        born: EntryState = probation.PROPOSED if waits else "active"
        draft = entries.apply_operations(
            base,
            usable,
            seen,
            revoked=revoked,
            echoes=echoes,
            known=known,
            born=born,
            by_hand=settings is None,
            names=screen.names,
        )
        if policy is not None:
            _review(base, draft, names, policy, screen)
        _name_sources(draft, names)
        sections, remaining = entries.finish(base, draft, budget_tokens)
    for refusal in refused:
        text = f"{refusal.operation.kind}: {refusal.why}: {refusal.operation.content}"
        draft.note("dropped", next(iter(refusal.operation.entry_ids), ""), text)
    if kind != holds:
        for operation in operations:
            draft.note("dropped", "", f"{operation.kind}: made for {holds}, and the playbook holds {kind}")
    return draft, sections, remaining


def _name_sources(draft: Draft, names: Mapping[str, str]) -> None:
    for entry in with_sources(draft.entries.values(), names, draft.support.by_entry()):
        draft.put(entry)


def _review(
    base: Playbook, draft: Draft, names: Mapping[str, str], policy: Probation, screen: Screen
) -> None:
    """Let a draft take over what becomes of proposed entries."""
    after = tuple(draft.entries.values())
    supported = draft.support.by_entry()
    found = probation.review(base.entries, after, supported, names, policy, screen)
    for entry in found.entries:
        draft.put(entry)
    for change in found.changes:
        draft.note(change.kind, change.entry_id, change.detail)
        if change.kind == "expire":
            draft.landing.evict(change.entry_id)
            draft.drop(change.entry_id)
