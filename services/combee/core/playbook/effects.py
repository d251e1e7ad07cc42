"""The effect of each reflection of a batch on the version that it made; pure."""

from collections.abc import Collection
from dataclasses import dataclass

from combee.core.log.fates import Effect
from combee.core.playbook import retention
from combee.core.playbook.apply import barred, drafted, holds_after
from combee.core.playbook.operations import rests
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Seen, Update

COUNTING = frozenset({"new", "known"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionEffect:
    """The effect of one reflection on a version; ``why``: the reason for a missing effect."""

    seen: Seen
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
    landed, proposed = draft.landed(), rests(update.result.operations)
    effects: dict[str, ReflectionEffect] = {}
    for reflection in update.result.seen:
        if reflection.ok:
            effect = retention.effect(reflection, landed)
            why = "" if effect in COUNTING else _why_nothing(reflection, proposed, applicable)
            effects[reflection.reflection_id] = ReflectionEffect(seen=reflection, effect=effect, why=why)
    return effects


def _why_nothing(reflection: Seen, proposed: Collection[str], applicable: retention.Landed) -> str:
    if retention.effect(reflection, applicable) in COUNTING:
        return "evicted at once: the playbook's token budget is used up"
    if reflection.reflection_id in proposed:
        return "its proposal gave way to one of more sources or with newer evidence, or no longer applied"
    if reflection.dropped:
        return "the model dropped it by name"
    if reflection.said:
        return "the model named it, and nothing that it wrote says it"
    return "the model proposed nothing for it"
