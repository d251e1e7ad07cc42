"""Probation: a learned entry is *proposed*, and not shown to agents, until enough reflections support it; pure.

The evidence of an entry's content supports it. A person's entry is active at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from combee.core.playbook.operations import union
from combee.core.playbook.screening import OPEN, Screen
from combee.core.playbook.trust import Support
from combee.core.text.prompt import tokens_by_entry
from combee_schemas.plan import Probation
from combee_schemas.playbook import EVIDENCE_KEPT, Change, Entry, EntryState, Playbook

PROPOSED: EntryState = "proposed"
OFF = Probation(reflections=1)
NO_ROOM, REPLACED = "there is no room", "its place takes"


def shown(playbook: Playbook) -> Playbook:
    """Return a playbook as agents are shown it, without proposed entries."""
    if all(entry.is_active for entry in playbook.entries):
        return playbook
    return playbook.model_copy(
        update={"entries": tuple(entry for entry in playbook.entries if entry.is_active)}
    )


def shown_tokens(playbook: Playbook) -> dict[str, int]:
    """Return about how many tokens each entry that agents are shown takes of the token budget, by id."""
    return tokens_by_entry((entry for entry in playbook.entries if entry.is_active), playbook.sections)


class Counts(TypedDict):
    """Numbers of shown and of proposed entries."""

    entries: int
    proposed: int


def counts(playbook: Playbook) -> Counts:
    """Return a playbook's numbers of entries, for lists."""
    active = sum(entry.is_active for entry in playbook.entries)
    return {"entries": active, "proposed": len(playbook.entries) - active}


def counts_text(entries: int, proposed: int) -> str:
    """Return such numbers in words, for a column of entries."""
    return f"{entries} (+{proposed} proposed)" if proposed else str(entries)


def activated(entry: Entry) -> Entry:
    """Return an entry in its active state."""
    waited = {"support": (), "replaces": (), "rivals": (), "unsupported_batches": 0}
    return entry.model_copy(update={"state": "active", **waited})


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Effects of a batch on new and proposed entries."""

    entries: tuple[Entry, ...] = ()
    """Entries that changed."""
    changes: tuple[Change, ...] = ()
    """Promotions and removals."""

    def applied_to(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return entries after the review."""
        changed = {entry.id: entry for entry in self.entries}
        gone = {change.entry_id for change in self.changes if change.kind != "promote"}
        return tuple(changed.get(entry.id, entry) for entry in entries if entry.id not in gone)


def review(
    before: Iterable[Entry],
    after: Sequence[Entry],
    supported: Mapping[str, Iterable[str]],
    names: Mapping[str, str],
    policy: Probation,
    screen: Screen = OPEN,
    full: Collection[str] = (),
) -> Review:
    """Return the effects of a batch on proposed entries, given those before it and those its operations left.

    ``supported`` are the batch's supporting reflections by entry id; ``names`` the sources of reflections with one.
    Where probation is off, all entries become active except those that the ``screen`` lets wait, and those for which
    there is no room (``full``).
    """
    pending = [entry for entry in after if entry.state == PROPOSED]
    if policy.is_off and not screen.rules.weighs:
        promoted = (Change(kind="promote", entry_id=entry.id, detail="probation is off") for entry in pending)
        return Review(entries=tuple(map(activated, pending)), changes=tuple(promoted))
    known, there = {entry.id for entry in before}, {entry.id: entry for entry in after}
    # Too few taught in the batch to say of a lesson that nobody supports it: one that floods ages nothing.
    is_told = len(screen.rules.counted({*screen.names.values()})) >= screen.rules.quorum
    entries, changes, replaced = list[Entry](), list[Change](), set[str]()
    for entry in pending:
        candidate = Candidate.of(entry, supported.get(entry.id, ()), names)
        about = [there[one] for one in (*entry.replaces, *entry.rivals) if one in there]
        why = candidate.waits_for(policy, screen, about) or (NO_ROOM if entry.id in full else "")
        if why:
            outcome, change = candidate.waiting(policy, why, ages=is_told and entry.id in known)
        else:
            outcome, change = candidate.promoted(is_new=entry.id not in known)
            outdated = [one.id for one in about if candidate.supersedes(one, screen)]
            lost = [one for one in (*entry.replaces, *outdated) if one in there and one not in replaced]
            replaced.update(lost)
            changes += [
                Change(kind="remove", entry_id=one, detail=f"{REPLACED} {entry.id}: {there[one].content}")
                for one in lost
            ]
        entries += [outcome] if outcome != entry else []
        changes += [change] if change else []
    return Review(entries=tuple(entries), changes=tuple(changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A new or proposed entry, and its support."""

    entry: Entry
    support: tuple[str, ...]
    sources: frozenset[str]
    gained: bool
    """Whether this batch supports it."""

    @classmethod
    def of(cls, entry: Entry, fresh: Iterable[str], names: Mapping[str, str]) -> "Candidate":
        """Return an entry with its support after a batch, of which these are ``fresh``."""
        fresh = tuple(fresh)
        support = union(entry.support, fresh)
        sources = frozenset(entry.sources).union(
            names[reflection_id] for reflection_id in fresh if reflection_id in names
        )
        return cls(entry=entry, support=support, sources=sources, gained=bool(fresh))

    def waits_for(self, policy: Probation, screen: Screen, about: Iterable[Entry]) -> str:
        """Return why it goes on waiting; empty: agents may see it. ``about``: the entries that it is linked to."""
        if len(self.support) < policy.reflections:
            return f"{len(self.support)} of {policy.reflections} reflections support it"
        return screen.waits_for(self.sources, len(self.support), about)

    def supersedes(self, rival: Entry, screen: Screen) -> bool:
        """Return whether it takes the place of an entry that it contradicts: nobody has said that one since.

        It takes as much as can be asked for, since a model may have taken another lesson for a new policy.
        """
        is_silent = rival.updated_version <= self.entry.created_version
        support = Support(len(screen.rules.counted(self.sources, rival)), len(self.support))
        is_rival = rival.id in self.entry.rivals
        return is_rival and is_silent and support.suffices(screen.rules.to_change_unknown)

    def waiting(self, policy: Probation, why: str, *, ages: bool) -> tuple[Entry, Change | None]:
        """Return the entry, proposed, and its removal if nobody supports it any more."""
        waited = 0 if self.gained else self.entry.unsupported_batches + ages
        update: dict[str, object] = {
            "state": PROPOSED,
            "support": self.support[-EVIDENCE_KEPT:],
            "unsupported_batches": waited,
        }
        expired = Change(kind="expire", entry_id=self.entry.id, detail=f"{why}: {self.entry.content}")
        return self.entry.model_copy(update=update), expired if waited >= policy.batches else None

    def promoted(self, *, is_new: bool) -> tuple[Entry, Change | None]:
        """Return the entry, active; a new one with full support is simply added."""
        entry = activated(self.entry)
        if is_new:
            return entry, None
        detail = f"{len(self.support)} reflections support it"
        return entry, Change(kind="promote", entry_id=entry.id, detail=detail)
