"""Apply operations to a playbook, by what it holds: which of them count, and what they make of it.

Pure, so that history replayed gives the same snapshots.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from combee.core.names.sources import is_from
from combee.core.playbook import budget, components, probation
from combee.core.playbook import draft as drafts
from combee.core.playbook.draft import NO_IDS, Draft
from combee.core.playbook.operations import union
from combee.core.playbook.screening import (
    OPEN,
    Relations,
    Screen,
    admitted,
    barred_sources,
    supporting,
    with_sources,
)
from combee.core.playbook.trust import names_counted, parts
from combee.core.text.similarity.lessons import at_odds, same_lesson
from combee.core.text.similarity.overlap import ALIKE, common, unites
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
    kind = holds_after(base, settings.holds)
    draft = drafted(base, update, kind, barred(base, update), budget_tokens=budget_tokens)
    names = supporting(update.result.seen, settings)
    for entry in with_sources(draft.entries.values(), names, draft.landing.by_entry()):
        draft.put(entry)
    bounds = parts(base) if draft.screen.rules.weighs else budget.UNBOUNDED
    if kind == "entries" and policy is not None:
        evictions = partial(budget.evictions, budget_tokens=budget_tokens, parts=bounds)
        _review(base, draft, names, policy, evictions)
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
    settings, result, policy = update.plan.settings, update.result, _policy(update.plan)
    # Components are never on probation, and all their evidence counts.
    own = settings if kind == "entries" else None
    screen = Screen.of(base, result.seen, own, gone, result.conflicts)
    waits = policy is not None and (screen.rules.weighs or not policy.is_off)
    return _drafted(
        base,
        result if kind == settings.holds else result.model_copy(update={"operations": ()}),
        screen,
        kind,
        gone,
        budget_tokens=budget_tokens,
        born=probation.PROPOSED if waits else "active",
        ids=ids,
        free_from=free_from,
    )


def _policy(plan: Plan) -> Probation | None:
    """Return the probation of a batch; a consolidation has no reflections, so no entry waits longer because of it."""
    return None if plan.reason == "consolidate" else plan.settings.probation or probation.OFF


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
    screened = admitted(base, result.operations, screen, _RELATIONS)
    usable = screened.passed
    given: dict[str, Any] = {"revoked": gone, "echoes": result.echoes, "known": result.known, "ids": ids}
    seen = screen.heard(result.seen)
    if kind == "components":
        draft = components.apply_operations(base, usable, seen, budget_tokens=budget_tokens, **given)
    else:
        draft = drafts.apply_operations(
            base,
            usable,
            seen,
            conflicts=result.conflicts,
            born=born,
            links=screened.links,
            by_hand=screen.is_person,
            names=screen.names,
            free_from=free_from,
            **given,
        )
    draft.screen = screen
    for refusal in screened.refused:
        text = f"{refusal.operation.kind}: {refusal.why}: {refusal.operation.content}"
        draft.note("dropped", next(iter(refusal.operation.entry_ids), ""), text)
    return draft


def _finished(
    base: Playbook, draft: Draft, kind: Holds, budget_tokens: int, bounds: budget.Parts = budget.UNBOUNDED
) -> Changed:
    if kind == "components":
        return draft, *components.finish(draft)
    return draft, *drafts.finish(base, draft, budget_tokens, bounds)


def _review(
    base: Playbook, draft: Draft, names: Mapping[str, str], policy: Probation, evictions: Evictions
) -> None:
    """Apply the review of proposed entries to a draft."""
    after, supported = tuple(draft.entries.values()), sure(draft)
    if all(entry.is_active for entry in after):
        return
    screen, full = draft.screen, frozenset[str]()
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


def sure(draft: Draft) -> Mapping[str, tuple[str, ...]]:
    """Return the reflections that support each entry."""
    unsure = draft.screen.unsure
    return {
        entry_id: tuple(one for one in ids if one not in unsure)
        for entry_id, ids in draft.landing.by_entry().items()
    }


# ---- how contents are compared


def _is_related(content: str, other: str) -> bool:
    """Return whether two contents are about one thing: alike, the same lesson, or at odds.

    It depends on these two alone: a batch that is applied again, to other entries, gets the same answer.
    """
    return common(content, other) >= ALIKE or same_lesson(content, other) or at_odds(content, other)


_RELATIONS = Relations(same=same_lesson, related=_is_related, unites=unites)
