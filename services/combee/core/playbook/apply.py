"""Apply operations to a playbook, by what it holds: entries or components.

Pure, so that history replayed gives the same snapshots.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from combee.core.names.sources import is_from, names_of
from combee.core.playbook import components, entries, probation
from combee.core.playbook.draft import NO_IDS, Draft
from combee.core.playbook.operations import union
from combee.core.playbook.rejections import admitted
from combee.core.playbook.screening import OPEN, Screen, barred_sources, with_sources
from combee.core.playbook.trust import names_counted, parts
from combee_schemas.base import Holds
from combee_schemas.plan import Plan, Probation
from combee_schemas.playbook import Entry, EntryState, Playbook
from combee_schemas.scan import NodeResult, Operation, Update

Changed = tuple[Draft, tuple[str, ...], tuple[Entry, ...]]
"""The draft with its changes, and the sections and entries of the next version."""
Evictions = Callable[..., tuple[str, ...]]
NO_BUDGET = 10**9
"""A budget that no playbook reaches: evicted entries are removed by the version's recorded changes instead."""


def holds_after(base: Playbook, holds: Holds) -> Holds:
    """Return what a playbook holds after an update by a method that ``holds`` this kind: existing content decides."""
    return base.holds if base.entries else holds


def misfit(playbook: Playbook, holds: Holds, method: str) -> str | None:
    """Return why a method that ``holds`` this kind must not continue a playbook, and the remedy; None: it may."""
    if not playbook.entries or playbook.holds == holds:
        return None
    expected = "gepa" if playbook.holds == "components" else "ace"
    learned = playbook.method if playbook.batch_sequence else expected
    return (
        f"{playbook.name} holds {playbook.holds}, and the method {method} would turn them into {holds}: nothing is"
        f" learned until COMBEE_METHOD={learned} again; or let {method} learn a playbook of another name"
    )


def barred(playbook: Playbook, update: Update) -> tuple[str, ...]:
    """Return the reflections that never count: revoked ones, and the batch's reflections of revoked sources."""
    sources = barred_sources(playbook)
    later = (
        seen.reflection_id
        for seen in update.result.seen
        if any(is_from(seen.source, name, names_counted(update.plan.settings)) for name in sources)
    )
    return union(playbook.revoked, later) if sources else playbook.revoked


def edited(base: Playbook, operations: Sequence[Operation], *, budget_tokens: int) -> Changed:
    """Apply a person's operations, which all count and are active at once."""
    result = NodeResult(status="ok", operations=tuple(operations))
    draft = _drafted(base, result, OPEN, base.holds, base.revoked, budget_tokens=budget_tokens)
    return _finished(base, draft, base.holds, budget_tokens)


def applied(base: Playbook, update: Update, *, budget_tokens: int) -> Changed:
    """Apply the operations of a batch; operations for another kind of playbook are dropped, and recorded."""
    settings, policy = update.plan.settings, _policy(update.plan)
    kind, gone = holds_after(base, settings.holds), barred(base, update)
    screen = _screen(base, update, kind, gone)
    draft = _batch_drafted(base, update, screen, kind, gone, budget_tokens=budget_tokens)
    names = names_of(update.result.seen, names_counted(settings))
    for entry in with_sources(draft.entries.values(), names, draft.landing.by_entry()):
        draft.put(entry)
    bounds = parts(base) if screen.rules.weighs else entries.UNBOUNDED
    if kind == "entries" and policy is not None:
        evictions = partial(entries.evictions, budget_tokens=budget_tokens, parts=bounds)
        _review(base, draft, names, policy, screen, evictions)
    for operation in update.result.operations if kind != settings.holds else ():
        text = f"{operation.kind}: made for {settings.holds}, and the playbook holds {kind}"
        draft.note("dropped", "", text)
    return _finished(base, draft, kind, budget_tokens, bounds)


def drafted(
    base: Playbook,
    update: Update,
    kind: Holds,
    gone: Sequence[str],
    *,
    budget_tokens: int = NO_BUDGET,
    ids: Mapping[str, str] = NO_IDS,
    free_from: int = 0,
) -> Draft:
    """Return the result of a batch on a version without ``gone`` reflections, before probation and evictions.

    ``kind`` is what the playbook holds then. ``ids``: ids of added entries by their content. ``free_from``: the first
    free id number when the batch was first applied; 0: that of ``base``.
    """
    screen = _screen(base, update, kind, gone)
    return _batch_drafted(
        base, update, screen, kind, gone, budget_tokens=budget_tokens, ids=ids, free_from=free_from
    )


def _policy(plan: Plan) -> Probation | None:
    """Return the probation of a batch; a consolidation has no reflections, so no entry waits longer because of it."""
    return None if plan.reason == "consolidate" else plan.settings.probation or probation.OFF


def _screen(base: Playbook, update: Update, kind: Holds, gone: Sequence[str]) -> Screen:
    """Return the rules of a batch; components are never on probation, and all their evidence counts."""
    settings = update.plan.settings if kind == "entries" else None
    return Screen.of(base, update.result.seen, settings, gone, update.result.conflicts)


def _batch_drafted(
    base: Playbook, update: Update, screen: Screen, kind: Holds, gone: Sequence[str], **more: Any
) -> Draft:
    policy, result = _policy(update.plan), update.result
    if kind != update.plan.settings.holds:
        result = result.model_copy(update={"operations": ()})
    waits = policy is not None and (screen.rules.weighs or not probation.is_off(policy))
    return _drafted(base, result, screen, kind, gone, born=probation.PROPOSED if waits else "active", **more)


def _drafted(
    base: Playbook,
    result: NodeResult,
    screen: Screen,
    kind: Holds,
    gone: Sequence[str],
    *,
    budget_tokens: int,
    born: EntryState = "active",
    ids: Mapping[str, str] = NO_IDS,
    free_from: int = 0,
) -> Draft:
    screened = admitted(base, result.operations, screen)
    usable = screened.passed
    given: dict[str, Any] = {"revoked": gone, "echoes": result.echoes, "known": result.known, "ids": ids}
    seen = screen.heard(result.seen)
    if kind == "components":
        draft = components.apply_operations(base, usable, seen, budget_tokens=budget_tokens, **given)
    else:
        person = screen.is_person
        draft = entries.apply_operations(
            base,
            usable,
            seen,
            conflicts=result.conflicts,
            born=born,
            links=screened.links,
            by_hand=person,
            names=screen.names,
            free_from=free_from,
            **given,
        )
    for refusal in screened.refused:
        text = f"{refusal.operation.kind}: {refusal.why}: {refusal.operation.content}"
        draft.note("dropped", next(iter(refusal.operation.entry_ids), ""), text)
    return draft


def _finished(
    base: Playbook, draft: Draft, kind: Holds, budget_tokens: int, bounds: entries.Parts = entries.UNBOUNDED
) -> Changed:
    if kind == "components":
        return draft, *components.finish(draft)
    return draft, *entries.finish(base, draft, budget_tokens, bounds)


def _review(
    base: Playbook,
    draft: Draft,
    names: Mapping[str, str],
    policy: Probation,
    screen: Screen,
    evictions: Evictions,
) -> None:
    """Apply the review of proposed entries to a draft."""
    after, supported = tuple(draft.entries.values()), draft.landing.by_entry()
    full: frozenset[str] = frozenset()
    found = probation.review(base.entries, after, supported, names, policy, screen)
    if screen.rules.weighs:
        # What is shown for the first time never displaces what is shown: it waits for room.
        full = frozenset(evictions(found.applied_to(after), before=base.entries, sections=base.sections))
    if full:
        found = probation.review(base.entries, after, supported, names, policy, screen, full)
    for entry in found.entries:
        draft.put(entry)
    for change in found.changes:
        draft.note(change.kind, change.entry_id, change.detail)
        if change.kind in {"expire", "remove"}:
            draft.landing.evict(change.entry_id)
            draft.drop(change.entry_id)
