"""The retention audit: effects of a batch's reflections, per level and in the playbook; pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from typing import Any, Literal

from combee.core.log.fates import Effect
from combee_schemas.playbook import AppliedBatch, Change, LevelAudit, Playbook
from combee_schemas.scan import Echo, Known, NodeResult, Seen

How = Literal["change", "repeat", "claim", "echo"]
"""Origin of an entry's reflections: a change of the entry, a repeat recognised by code, a claim, or an echo, which is
no evidence."""
RECENT_KEPT = 20
MAX_LOST = 0.5
"""Lost share above which a warning is raised."""
RISEN_BY = 0.2
"""Excess over the median of earlier shares that also raises a warning."""
RISING_FROM = 3
"""Minimum number of earlier shares to judge a rise."""
MIN_LOST = 5
"""Minimum number of lost reflections for a warning: at a rate of one half, five of five are lost once in 32 by
chance."""
NO_EFFECT = frozenset({"dropped", "superseded"})


def surviving(
    seen: Iterable[Seen], level: int, kept: Collection[str], dropped: Collection[str] = ()
) -> tuple[Seen, ...]:
    """Return a node's reflections after its reply: those in ``kept`` survive one level more.

    Only a reflection that survived all lower levels can survive this one, or be dropped by name here.
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
    """The reflections that count in a version, by origin."""

    changed: frozenset[str]
    """A change of the version rests on them."""
    repeated: frozenset[str]
    """They repeat an existing entry word for word."""
    claimed: frozenset[str]
    """They are known by the model's claim, or are echoes."""


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
    """Return the effects of a batch's reflections at each level, and finally in the playbook."""
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
    """Return the effects of a batch's reflections in the playbook; None: no batch, or one without reflections."""
    return batch.audit[-1] if batch and batch.audit else None


def lost_share(levels: Sequence[LevelAudit]) -> float | None:
    """Return the finally lost share of a batch's reflections; None: there was none, or all failed."""
    *_, last = levels or (LevelAudit(),)
    count = last.new + last.known + last.dropped + last.lost
    return round(last.lost / count, 4) if count else None


def recent(before: Sequence[float], newest: float | None) -> tuple[float, ...]:
    """Return the shares of the last batches, the newest included."""
    return (*before, *(() if newest is None else (newest,)))[-RECENT_KEPT:]


def last_shares(playbook: Playbook) -> dict[str, float | None]:
    """Return the retained and the lost share of the last batch's reflections; None: there was no batch."""
    by_name = {"retention": playbook.retention_recent, "lost": playbook.lost_recent}
    return {name: shares[-1] if shares else None for name, shares in by_name.items()}


def recent_shares(current: Playbook, kept: Sequence[float], levels: Sequence[LevelAudit]) -> dict[str, Any]:
    """Return a playbook's recent shares after another batch; one without reflections changes nothing."""
    news: dict[str, Any] = {"retention_recent": recent(current.retention_recent, kept[-1] if kept else None)}
    share = lost_share(levels)
    if share is not None:
        news |= {"lost_recent": recent(current.lost_recent, share), "lost_count": levels[-1].lost}
    return news


def is_losing(playbook: Playbook) -> bool:
    """Return whether the last batch lost too much, or much more than earlier ones.

    A share of few reflections means little, so at least `MIN_LOST` must be lost. Directly preceding batches that
    also lost too much are added, so that playbooks with small batches are judged as well.
    """
    *before, newest = playbook.lost_recent or (0.0,)
    rose = len(before) >= RISING_FROM and newest > median(before) + RISEN_BY
    too = sum(1 for _ in takewhile(lambda share: share > MAX_LOST, reversed(before)))
    return (newest > MAX_LOST or rose) and playbook.lost_count + too >= MIN_LOST


def percent(share: float | None) -> str:
    """Return a share in words; empty if there is none."""
    return "" if share is None else f"{100 * share:.0f} %"


def warning(playbook: Playbook) -> str | None:
    """Return the warning about lost reflections, in the same words for every view; None while few are lost."""
    return losing(playbook.lost_recent[-1]) if is_losing(playbook) else None


def losing(lost: float) -> str:
    """Return the words for a share that is too large."""
    return (
        f"{percent(lost)} of the last batch's reflections were lost: the playbook has nothing of them, and the model"
        " did not say why"
    )


def effects_text(level: LevelAudit) -> str:
    """Return the effects of reflections in words."""
    return f"{level.new} new, {level.known} known, {level.dropped} dropped by name, {level.lost} lost"


@dataclass(slots=True)
class Landing:
    """Final places of applied operations' evidence: entry id → reflections, and their origin."""

    _on: dict[str, set[tuple[str, How]]] = field(default_factory=dict)
    _removals: set[str] = field(default_factory=set)

    def claim(self, entry_id: str, evidence: Iterable[str], *, how: How = "claim") -> None:
        """Note reflections that an entry already contains."""
        self._put(entry_id, evidence, how)

    def take(self, changes: Iterable[Change], evidence: Iterable[str]) -> None:
        """Note the effects of one operation: none, or changes based on its evidence."""
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
        """Note an evicted entry."""
        self._on.pop(entry_id, None)

    def by_entry(self) -> dict[str, tuple[str, ...]]:
        """Return the reflections that support each entry, in order of their ids; an echo is no support."""
        return {
            entry_id: tuple(sorted({reflection_id for reflection_id, how in landed if how != "echo"}))
            for entry_id, landed in self._on.items()
        }

    def landed(self, reworded: Collection[str]) -> Landed:
        """Return the reflections that the version now rests on; ``reworded`` entries are new or have a new content.

        A removal is an effect as well. A repeat of an old content is known, of a new one it is new.
        """
        learned = defaultdict[How, set[str]](set, change=set(self._removals))
        for entry_id, reflections in self._on.items():
            for reflection_id, how in reflections:
                is_new = how == "repeat" and entry_id in reworded
                learned["change" if is_new else how].add(reflection_id)
        changed, repeated, claimed = learned["change"], learned["repeat"], learned["claim"] | learned["echo"]
        return Landed(changed=frozenset(changed), repeated=frozenset(repeated), claimed=frozenset(claimed))
