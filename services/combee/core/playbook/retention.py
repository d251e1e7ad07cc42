"""The retention audit: which share of a batch's reflections something still rests on, level by level; pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from combee_schemas.playbook import Change
from combee_schemas.scan import Seen

RECENT_KEPT = 20
FALLEN_BELOW = 0.8
"""The newest share is a warning below this part of the median of those before it."""
FALLING_FROM = 3
"""Shares before the newest that it takes to judge it."""
NO_EFFECT = frozenset({"dropped", "superseded"})


def surviving(seen: Iterable[Seen], level: int, kept: Collection[str]) -> tuple[Seen, ...]:
    """Return what a node of ``level`` saw after it has answered: those in ``kept`` got through one level more.

    Only what got through all levels below can get through this one.
    """
    return tuple(
        reflection.model_copy(update={"survived": level + 1})
        if reflection.survived == level and reflection.reflection_id in kept
        else reflection
        for reflection in seen
    )


def shares(seen: Collection[Seen], levels: int, landed: Collection[str]) -> tuple[float, ...]:
    """Return the share of reflections that got through each level, and at last into the playbook.

    ``landed`` are the reflections that operations rest on which took effect.
    """
    if not seen:
        return ()
    through = [sum(reflection.survived > level for reflection in seen) for level in range(levels)]
    last = sum(reflection.survived >= levels and reflection.reflection_id in landed for reflection in seen)
    return tuple(round(count / len(seen), 4) for count in (*through, last))


def recent(before: Sequence[float], newest: Sequence[float]) -> tuple[float, ...]:
    """Return the last share of each of the last batches, the newest included."""
    return (*before, *newest[-1:])[-RECENT_KEPT:]


def is_falling(recent_shares: Sequence[float]) -> bool:
    """Return whether the newest share is much below what it used to be."""
    *before, newest = recent_shares or (1.0,)
    return len(before) >= FALLING_FROM and newest < FALLEN_BELOW * median(before)


def percent(share: float | None) -> str:
    """Return a share for people; empty where there is none."""
    return "" if share is None else f"{100 * share:.0f} %"


def warning(recent_shares: Sequence[float]) -> str | None:
    """Return what to say where retention falls, in the words of every view; None while it does not."""
    if not is_falling(recent_shares):
        return None
    return falling(recent_shares[-1])


def falling(newest: float) -> str:
    """Return the words for a share that is much below what it used to be."""
    kept = percent(newest)
    return f"retention is falling: {kept} of the last batch's reflections have evidence in the playbook"


@dataclass(slots=True)
class Landing:
    """Where the evidence of applied operations came to rest: entry id → reflections."""

    _on: dict[str, set[str]] = field(default_factory=dict)
    _removals: set[str] = field(default_factory=set)

    def take(self, changes: Iterable[Change], evidence: Iterable[str]) -> None:
        """Note what one operation did: nothing, or changes that its evidence is behind."""
        effects = [change for change in changes if change.kind not in NO_EFFECT]
        moved = set(evidence)
        for change in effects:
            if change.kind in {"merge", "remove"}:
                sources_moved = self._on.pop(change.entry_id, set())
                moved |= sources_moved if change.kind == "merge" else set()
        for change in effects:
            if change.kind == "remove":
                self._removals |= moved
            elif change.kind != "merge":
                self._on.setdefault(change.entry_id, set()).update(moved)

    def evict(self, entry_id: str) -> None:
        """Note that an entry had to go."""
        self._on.pop(entry_id, None)

    def on(self, entry_id: str) -> tuple[str, ...]:
        """Return the reflections that came to rest on an entry, in order of their ids."""
        return tuple(sorted(self._on.get(entry_id, ())))

    def reflections(self) -> frozenset[str]:
        """Return all reflections that something rests on now; a removal is an effect too."""
        return frozenset(self._removals.union(*self._on.values()))
