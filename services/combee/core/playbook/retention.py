"""The retention audit: the effects of a batch's reflections, level by level and in the playbook; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from typing import Any, Literal

from combee.core.log.fates import Effect
from combee_schemas.playbook import AppliedBatch, Change, LevelAudit, Playbook
from combee_schemas.scan import Echo, Known, NodeResult, Seen

How = Literal["change", "repeat", "claim"]
"""How evidence came to an entry: with a change of it, as a repeat that code recognised, by a claim or an echo."""
RECENT_KEPT = 20
MOST_LOST = 0.5
"""A larger share lost is a warning."""
RISEN_BY = 0.2
"""So is one that exceeds the median of those before it by more."""
RISING_FROM = 3
"""Shares before the newest that it takes to judge a rise."""
LEAST_LOST = 5
"""So many reflections have to be lost for a warning: if half are, five of five are lost once in 32 by chance."""
NO_EFFECT = frozenset({"dropped", "superseded"})


def surviving(
    seen: Iterable[Seen], level: int, kept: Collection[str], dropped: Collection[str] = ()
) -> tuple[Seen, ...]:
    """Return what a node of ``level`` saw after it has answered: those in ``kept`` got through one level more.

    Only what got through all levels below can get through this one, or be dropped by name here.
    """
    return tuple(
        _after(reflection, level, kept, dropped) if reflection.survived == level else reflection
        for reflection in seen
    )


def _after(reflection: Seen, level: int, kept: Collection[str], dropped: Collection[str]) -> Seen:
    if reflection.reflection_id in kept:
        return reflection.model_copy(update={"survived": level + 1, "dropped": False})
    if reflection.reflection_id in dropped:
        return reflection.model_copy(update={"dropped": True})
    return reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The reflections that count in a version, by how."""

    changed: frozenset[str]
    """What the version changed rests on them."""
    repeated: frozenset[str]
    """They say what stood there before, word for word."""
    claimed: frozenset[str]
    """They say it by the model's word, or are echoes."""


def effect(reflection: Seen, levels: int, landed: Landed) -> Effect:
    """Return the effect of a reflection on the playbook, ``levels`` above it."""
    through = reflection.survived >= levels
    if through and reflection.reflection_id in landed.changed:
        return "new"
    if reflection.reflection_id in landed.claimed | (landed.repeated if through else frozenset()):
        return "known"
    return "dropped" if reflection.dropped and not through else "lost"


def _effect_at(reflection: Seen, level: int, claimed: Collection[str]) -> Effect:
    if reflection.survived > level:
        return "new"
    if reflection.reflection_id in claimed:
        return "known"
    return "dropped" if reflection.dropped else "lost"


def audit(result: NodeResult, levels: int, landed: Landed) -> tuple[LevelAudit, ...]:
    """Return what became of a batch's reflections at each level, and at last in the playbook."""
    got_through = [reflection for reflection in result.seen if reflection.ok]
    claims: tuple[Known | Echo, ...] = (*result.known, *result.echoes)
    claimed = {reflection_id for claim in claims for reflection_id in claim.evidence}
    if not result.seen:
        return ()
    by_level = (
        [_effect_at(reflection, level, claimed) for reflection in got_through] for level in range(levels)
    )
    last = [effect(reflection, levels, landed) for reflection in got_through]
    return tuple(LevelAudit.model_validate(Counter(effects)) for effects in (*by_level, last))


def shares(levels: Iterable[LevelAudit], count: int) -> tuple[float, ...]:
    """Return the share of ``count`` reflections that were new or known at each level."""
    return tuple(round((level.new + level.known) / count, 4) for level in levels)


def in_playbook(batch: AppliedBatch | None) -> LevelAudit | None:
    """Return what became of a batch's reflections in the end; None: no batch, or one without reflections."""
    return batch.audit[-1] if batch and batch.audit else None


def lost_share(levels: Sequence[LevelAudit]) -> float | None:
    """Return which share of a batch's reflections was lost in the end; None: there was none, or all failed."""
    *_, last = levels or (LevelAudit(),)
    count = last.new + last.known + last.dropped + last.lost
    return round(last.lost / count, 4) if count else None


def recent(before: Sequence[float], newest: float | None) -> tuple[float, ...]:
    """Return a share of each of the last batches, the newest included."""
    return (*before, *(() if newest is None else (newest,)))[-RECENT_KEPT:]


def last_shares(playbook: Playbook) -> dict[str, float | None]:
    """Return the shares of the last batch's reflections that were retained and lost; None: there was no batch."""
    by_name = {"retention": playbook.retention_recent, "lost": playbook.lost_recent}
    return {name: shares[-1] if shares else None for name, shares in by_name.items()}


def recent_shares(current: Playbook, kept: Sequence[float], levels: Sequence[LevelAudit]) -> dict[str, Any]:
    """Return what a playbook says of its last batches after one more; one without reflections changes nothing."""
    news: dict[str, Any] = {"retention_recent": recent(current.retention_recent, kept[-1] if kept else None)}
    share = lost_share(levels)
    if share is not None:
        news |= {"lost_recent": recent(current.lost_recent, share), "lost_count": levels[-1].lost}
    return news


def is_losing(playbook: Playbook) -> bool:
    """Return whether the last batch lost too much, or much more than those before it.

    Of a few reflections, a share says little: it takes `LEAST_LOST`. Batches directly before that lost too much as
    well count as one each, so that a playbook learned in small batches is judged, too.
    """
    *before, newest = playbook.lost_recent or (0.0,)
    rose = len(before) >= RISING_FROM and newest > median(before) + RISEN_BY
    too = sum(1 for _ in takewhile(lambda share: share > MOST_LOST, reversed(before)))
    return (newest > MOST_LOST or rose) and playbook.lost_count + too >= LEAST_LOST


def percent(share: float | None) -> str:
    """Return a share for people; empty where there is none."""
    return "" if share is None else f"{100 * share:.0f} %"


def warning(playbook: Playbook) -> str | None:
    """Return what to say where reflections are lost, in the words of every view; None while few are."""
    return losing(playbook.lost_recent[-1]) if is_losing(playbook) else None


def losing(lost: float) -> str:
    """Return the words for a share that is too large."""
    return (
        f"{percent(lost)} of the last batch's reflections were lost: the playbook has nothing of them, and the model"
        " did not say why"
    )


def effects_text(level: LevelAudit) -> str:
    """Return what became of reflections, in words."""
    return f"{level.new} new, {level.known} known, {level.dropped} dropped by name, {level.lost} lost"


@dataclass(slots=True)
class Landing:
    """Where the evidence of applied operations came to rest: entry id → reflections, and how they came there."""

    _on: dict[str, set[tuple[str, How]]] = field(default_factory=dict)
    _removals: set[str] = field(default_factory=set)

    def claim(self, entry_id: str, evidence: Iterable[str]) -> None:
        """Note reflections that an entry said already."""
        self._put(entry_id, evidence, "claim")

    def take(self, changes: Iterable[Change], evidence: Iterable[str]) -> None:
        """Note what one operation did: nothing, or changes that its evidence is behind."""
        effects = [change for change in changes if change.kind not in NO_EFFECT]
        how: How = "repeat" if all(change.kind == "duplicate" for change in effects) else "change"
        evidence = tuple(evidence)
        moved: set[tuple[str, How]] = set()
        for change in effects:
            if change.kind in {"merge", "remove"}:
                sources_moved = self._on.pop(change.entry_id, set())
                moved |= sources_moved if change.kind == "merge" else set()
        for change in effects:
            if change.kind == "remove":
                self._removals.update(evidence)
            elif change.kind != "merge":
                self._put(change.entry_id, evidence, how)
                self._on[change.entry_id] |= moved

    def _put(self, entry_id: str, evidence: Iterable[str], how: How) -> None:
        self._on.setdefault(entry_id, set()).update((reflection_id, how) for reflection_id in evidence)

    def evict(self, entry_id: str) -> None:
        """Note that an entry had to go."""
        self._on.pop(entry_id, None)

    def on(self, entry_id: str) -> tuple[str, ...]:
        """Return the reflections that came to rest on an entry, in order of their ids."""
        return tuple(sorted({reflection_id for reflection_id, _ in self._on.get(entry_id, ())}))

    def by_entry(self) -> dict[str, tuple[str, ...]]:
        """Return the reflections that came to rest on each entry."""
        return {entry_id: self.on(entry_id) for entry_id in self._on}

    def landed(self, reworded: Collection[str]) -> Landed:
        """Return what the version rests on now; ``reworded`` entries are new or say something new.

        A removal is an effect too. A repeat of what stood there before was known, one of what is new is new.
        """
        learned: dict[How, set[str]] = {"change": set(self._removals), "repeat": set(), "claim": set()}
        for entry_id, reflections in self._on.items():
            for reflection_id, how in reflections:
                is_new = how == "repeat" and entry_id in reworded
                learned["change" if is_new else how].add(reflection_id)
        changed, repeated, claimed = (frozenset(learned[how]) for how in ("change", "repeat", "claim"))
        return Landed(changed=changed, repeated=repeated, claimed=claimed)
