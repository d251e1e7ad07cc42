"""The effect of each reflection of a batch on the version that it made; pure."""

from dataclasses import dataclass

from combee.core.log.fates import Effect
from combee.core.playbook import retention
from combee.core.playbook.apply import barred, drafted, holds_after
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Seen, Update

COUNTING = frozenset({"new", "known"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionEffect:
    """The effect of one reflection on a version; ``why``: the reason for a missing effect."""

    effect: Effect
    why: str = ""


def reflection_effects(before: Playbook, update: Update, after: Playbook) -> dict[str, ReflectionEffect]:
    """Return the effect of each reflection of ``update`` on ``after``, the version it made.

    Dead letters are left out.
    """
    kind = holds_after(before, update.plan.settings.holds)
    draft = drafted(before, update, kind, barred(before, update))
    applicable = draft.landed()
    for change in after.changes:
        if change.kind in {"evict", "expire"}:
            draft.landing.evict(change.entry_id)
    landed, levels = draft.landed(), len(update.plan.widths)
    effects: dict[str, ReflectionEffect] = {}
    for reflection in update.result.seen:
        if reflection.ok:
            effect = retention.effect(reflection, levels, landed)
            why = "" if effect in COUNTING else _why_nothing(reflection, levels, applicable)
            effects[reflection.reflection_id] = ReflectionEffect(effect=effect, why=why)
    return effects


def _why_nothing(reflection: Seen, levels: int, applicable: retention.Landed) -> str:
    if retention.effect(reflection, levels, applicable) in COUNTING:
        return "evicted at once: the playbook's token budget is used up"
    if reflection.survived >= levels:
        return "its proposal lost to one of more sources or with newer evidence, or no longer applied"
    if reflection.dropped:
        return f"the model dropped it by name (level {reflection.survived})"
    if reflection.survived == 0:
        return "the model proposed nothing for it"
    return f"left out when proposals were combined (level {reflection.survived})"
