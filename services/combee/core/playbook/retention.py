"""The retention audit: what a batch's reflections did to the playbook, and what the model claims of them; pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any, Literal, get_args

from combee.core.log.fates import Effect
from combee.core.playbook.draft import Draft, Landed
from combee.core.playbook.operations import rests
from combee.core.playbook.trust import barred
from combee_schemas.playbook import Audit, Playbook
from combee_schemas.scan import Coverage, NodeResult, Seen, Update

VERIFIED: frozenset[Coverage] = frozenset({"words", "meaning", "check"})
"""Kinds of coverage that the model's own result has."""
CARRIED: frozenset[Coverage] = frozenset({"carried", "proposal"})
"""Kinds of coverage that code put in."""
RECENT_KEPT = 20
MAX_OMITTED = 0.5
"""Omitted share above which a warning is raised."""
RISEN_BY = 0.2
"""Excess over the median of earlier shares that also raises a warning."""
RISING_FROM = 3
"""Minimum number of earlier shares to judge a rise."""
MAX_UNVERIFIED = 0.2
"""Claimed and unverified share above which a warning is raised: twice what a checker that errs in 30 % of its answers
leaves unverified of a model that kept everything."""
MIN_WARNED = 5
"""Minimum number of reflections for a warning: at a rate of one half, five of five are omitted once in 32 by
chance."""
COUNTING = frozenset({"new", "known"})
"""Effects of reflections that the playbook has something of."""
UNCOUNTED = (
    "it does not count: it or its source is revoked, or nobody proves who sent it to a public playbook"
)
WarningKind = Literal["omitted", "unverified"]
"""omitted: the playbook has nothing of too many reflections; unverified: the model claims many more than it wrote."""
WARNING_KINDS: tuple[WarningKind, ...] = get_args(WarningKind)


def effect(reflection: Seen, landed: Landed) -> Effect:
    """Return the effect of a reflection on the playbook."""
    if reflection.reflection_id in landed.changed:
        return "new"
    if reflection.reflection_id in landed.known:
        return "known"
    return "dropped" if reflection.dropped else "omitted"


def audit(result: NodeResult, landed: Landed) -> Audit | None:
    """Return the audit of a batch; None: no reflection got through."""
    got_through = [reflection for reflection in result.seen if reflection.ok]
    return (
        audit_of((reflection, effect(reflection, landed)) for reflection in got_through)
        if got_through
        else None
    )


def audit_of(effects: Iterable[tuple[Seen, Effect]]) -> Audit:
    """Return the audit of reflections with these effects."""
    counts = Counter[str]()
    for reflection, effect in effects:
        counts[effect] += 1
        counts["said"] += reflection.said
        counts["verified"] += reflection.covered in VERIFIED
        counts["carried"] += reflection.covered in CARRIED
    return Audit.model_validate(counts)


def total(audits: Iterable[Audit]) -> Audit:
    """Return the sum of audits."""
    counts = Counter[str]()
    for audit in audits:
        counts.update(audit.model_dump())
    return Audit.model_validate(counts)


def share_of(count: int, audit: Audit) -> float:
    """Return the share that ``count`` reflections are of those that got through; 0: none did."""
    return round(count / audit.reflections, 4) if audit.reflections else 0.0


def shares(audit: Audit | None) -> dict[str, float | None]:
    """Return the retained (new or known) and the omitted share of a batch's reflections; None: there were none."""
    if audit is None or not audit.reflections:
        return {"retention": None, "omitted": None}
    return {"retention": share_of(audit.kept, audit), "omitted": share_of(audit.omitted, audit)}


def last_shares(playbook: Playbook) -> dict[str, float | None]:
    """Return the retained and the omitted share of the last batch's reflections; None: there was no batch."""
    by_name = {"retention": playbook.retention_recent, "omitted": playbook.omitted_recent}
    return {name: recent[-1] if recent else None for name, recent in by_name.items()}


def recent_shares(current: Playbook, audit: Audit | None) -> dict[str, Any]:
    """Return a playbook's recent shares after another batch; one without reflections changes nothing."""
    if audit is None:
        return {}
    kept, omitted = share_of(audit.kept, audit), share_of(audit.omitted, audit)
    return {
        "retention_recent": (*current.retention_recent, kept)[-RECENT_KEPT:],
        "omitted_recent": (*current.omitted_recent, omitted)[-RECENT_KEPT:],
        "omitted_count": audit.omitted,
    }


def warnings(playbook: Playbook) -> dict[WarningKind, str]:
    """Return the warnings about the last batch, in the same words for every view."""
    texts: dict[WarningKind, str] = {}
    if _omits(playbook):
        texts["omitted"] = (
            f"{percent(playbook.omitted_recent[-1])} of the last batch's reflections were omitted: the playbook has"
            " nothing of them"
        )
    batch, audit = playbook.batch, playbook.audit
    # Without the carry nothing is checked.
    if batch and audit and batch.plan.settings.carry and _overclaims(audit):
        said, verified, carried = (
            percent(share_of(count, audit)) for count in (audit.said, audit.verified, audit.carried)
        )
        texts["unverified"] = (
            f"the model accounted for {said} of the last batch's reflections, and {verified} were verified in what it"
            f" wrote; Combee carried {carried}"
        )
    return texts


def _omits(playbook: Playbook) -> bool:
    """Return whether the last batch omitted too much, or much more than earlier ones.

    A share of few reflections means little, so at least `MIN_WARNED` must be omitted. Directly preceding batches that
    also omitted too much are added, so that playbooks with small batches are judged as well.
    """
    *before, newest = playbook.omitted_recent or (0.0,)
    rose = len(before) >= RISING_FROM and newest > median(before) + RISEN_BY
    too = sum(1 for _ in takewhile(lambda share: share > MAX_OMITTED, reversed(before)))
    return (newest > MAX_OMITTED or rose) and playbook.omitted_count + too >= MIN_WARNED


def _overclaims(audit: Audit) -> bool:
    """Return whether the model claims many reflections that are neither verified nor dropped with good reason."""
    unverified = audit.said - audit.verified - audit.dropped
    return unverified >= MIN_WARNED and unverified > MAX_UNVERIFIED * audit.reflections


def percent(share: float | None) -> str:
    """Return a share in words; empty if there is none."""
    return "" if share is None else f"{100 * share:.0f} %"


def effects_text(audit: Audit) -> str:
    """Return the effects of reflections in words."""
    return f"{audit.new} new, {audit.known} known, {audit.dropped} dropped, {audit.omitted} omitted"


def coverage_text(audit: Audit) -> str:
    """Return in words what the model claims of reflections, and what of it is verified."""
    return f"{audit.said} said by the model, {audit.verified} verified, {audit.carried} carried"


# ---- one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionEffect:
    """The effect of one reflection on a version; ``why``: the reason for a missing effect."""

    seen: Seen
    effect: Effect
    why: str = ""


def reflection_effects(draft: Draft, update: Update, after: Playbook) -> dict[str, ReflectionEffect]:
    """Return the effect of each reflection of ``update`` on ``after``, the version it made of ``draft``.

    Dead letters are left out.
    """
    applicable = draft.landed()
    for change in after.changes:
        if change.kind in {"evict", "expire"}:
            draft.landing.evict(change.entry_id)
    landed, proposed, uncounted = draft.landed(), rests(update.result.operations), barred(after, update)
    effects: dict[str, ReflectionEffect] = {}
    for reflection in update.result.seen:
        if reflection.ok:
            here = effect(reflection, landed)
            why = "" if here in COUNTING else _why_nothing(reflection, proposed, applicable)
            if reflection.reflection_id in uncounted:
                why = UNCOUNTED
            effects[reflection.reflection_id] = ReflectionEffect(seen=reflection, effect=here, why=why)
    return effects


def _why_nothing(reflection: Seen, proposed: Collection[str], applicable: Landed) -> str:
    if effect(reflection, applicable) in COUNTING:
        return "evicted at once: the playbook's token budget is used up"
    if reflection.reflection_id in proposed:
        return "its proposal gave way to one of more sources or with newer evidence, or no longer applied"
    if reflection.dropped:
        return "the model dropped it by name"
    if reflection.said:
        return "the model named it, and nothing that it wrote says it"
    return "the model proposed nothing for it"
