"""What became of each reflection of a batch in the version that it made; pure."""

from dataclasses import dataclass

from combee.core.playbook import retention
from combee.core.playbook.apply import barred, drafted, holds_after
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Seen, Update

COUNTING = frozenset({"new", "known"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionFate:
    """What became of one reflection in a version; ``why``: the reason if nothing of it is there."""

    fate: retention.Fate
    why: str = ""


def reflection_fates(before: Playbook, update: Update, after: Playbook) -> dict[str, ReflectionFate]:
    """Return what became of each reflection of ``update`` in ``after``, the version it made.

    Dead letters are left out.
    """
    kind = holds_after(before, update.plan.settings.holds)
    draft = drafted(before, update, kind, barred(before, update))
    applicable = draft.landed()
    for change in after.changes:
        if change.kind in {"evict", "expire"}:
            draft.landing.evict(change.entry_id)
    landed, levels = draft.landed(), len(update.plan.widths)
    fates: dict[str, ReflectionFate] = {}
    for reflection in update.result.seen:
        if reflection.ok:
            fate = retention.fate(reflection, levels, landed)
            why = "" if fate in COUNTING else _why_nothing(reflection, levels, applicable)
            fates[reflection.reflection_id] = ReflectionFate(fate=fate, why=why)
    return fates


def _why_nothing(reflection: Seen, levels: int, applicable: retention.Landed) -> str:
    if retention.fate(reflection, levels, applicable) in COUNTING:
        return "evicted at once: the playbook's token budget is used up"
    if reflection.survived >= levels:
        return "its proposal lost to one of more sources or with newer evidence, or no longer applied"
    if reflection.dropped:
        return f"the model dropped it by name (level {reflection.survived})"
    if reflection.survived == 0:
        return "the model proposed nothing for it"
    return f"left out when proposals were combined (level {reflection.survived})"
