"""Probation: a learned entry is *proposed*, and not shown to agents, until enough reflections support it; pure.

The evidence of an entry's content supports it. A person's entry is active at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from combee.core.playbook.operations import union
from combee.core.playbook.screening import OPEN, Screen
from combee.core.text.prompt import tokens_by_entry
from combee_schemas.plan import Probation
from combee_schemas.playbook import EVIDENCE_KEPT, Change, Entry, EntryState, Playbook

PROPOSED: EntryState = "proposed"
OFF = Probation(reflections=1)


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
    return entry.model_copy(update={"state": "active", "support": (), "unsupported_batches": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Effects of a batch on new and proposed entries."""

    entries: tuple[Entry, ...] = ()
    """Entries that changed."""
    changes: tuple[Change, ...] = ()
    """Promotions and removals."""


def review(
    before: Iterable[Entry],
    after: Sequence[Entry],
    supported: Mapping[str, Iterable[str]],
    names: Mapping[str, str],
    policy: Probation,
    screen: Screen = OPEN,
) -> Review:
    """Return the effects of a batch on proposed entries, given those before it and those its operations left.

    ``supported`` are the batch's supporting reflections by entry id; ``names`` the sources of reflections with one.
    Where probation is off, all entries become active except those the ``screen`` doubts.
    """
    pending = [entry for entry in after if entry.state == PROPOSED]
    if policy.is_off and not screen.proposes:
        changes = (Change(kind="promote", entry_id=entry.id, detail="probation is off") for entry in pending)
        return Review(entries=tuple(map(activated, pending)), changes=tuple(changes))
    known = {entry.id for entry in before}
    candidates = [
        _Candidate.of(entry, supported.get(entry.id, ()), names, known, screen) for entry in pending
    ]
    return _Reviewer(policy, candidates).review()


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """A new or proposed entry, and its support."""

    entry: Entry
    is_new: bool
    support: tuple[str, ...]
    sources: frozenset[str]
    gained: bool
    """Whether this batch supports it."""
    doubt: str
    """Reason to wait whatever the support; empty: none."""
    promoted: bool = False

    @classmethod
    def of(
        cls,
        entry: Entry,
        fresh: Iterable[str],
        names: Mapping[str, str],
        known: Collection[str],
        screen: Screen,
    ) -> "_Candidate":
        fresh = tuple(fresh)
        support = union(entry.support, fresh)
        sources = frozenset(entry.sources).union(
            names[reflection_id] for reflection_id in fresh if reflection_id in names
        )
        return cls(
            entry=entry,
            is_new=entry.id not in known,
            support=support,
            sources=sources,
            gained=bool(fresh),
            doubt=screen.doubt_of(entry, sources) if screen.proposes else "",
        )


@dataclass(slots=True)
class _Reviewer:
    """Decides on all candidates of one version, each by its own support alone."""

    policy: Probation
    candidates: Sequence[_Candidate]

    def review(self) -> Review:
        for candidate in self.candidates:
            candidate.promoted = not candidate.doubt and self._suffices(candidate)
        entries, changes = [], []
        for candidate in self.candidates:
            entry, change = self._outcome(candidate)
            entries += [entry] if entry != candidate.entry else []
            changes += [change] if change else []
        return Review(entries=tuple(entries), changes=tuple(changes))

    def _suffices(self, candidate: _Candidate) -> bool:
        if self.policy.is_off:
            return True
        # All reflections without a source count as one source.
        sources = max(1, len(candidate.sources))
        return len(candidate.support) >= self.policy.reflections and sources >= self.policy.sources

    def _outcome(self, candidate: _Candidate) -> tuple[Entry, Change | None]:
        entry = candidate.entry
        if candidate.promoted:
            return self._promoted(candidate)
        waited = 0 if candidate.gained or candidate.is_new else entry.unsupported_batches + 1
        update: dict[str, object] = {
            "state": PROPOSED,
            "support": candidate.support[-EVIDENCE_KEPT:],
            "unsupported_batches": waited,
        }
        expired = Change(
            kind="expire",
            entry_id=entry.id,
            detail=f"{candidate.doubt or self._support_of(candidate)}: {entry.content}",
        )
        return entry.model_copy(update=update), expired if waited >= self.policy.batches else None

    def _support_of(self, candidate: _Candidate) -> str:
        return f"{len(candidate.support)} of {self.policy.reflections} reflections support it"

    def _promoted(self, candidate: _Candidate) -> tuple[Entry, Change | None]:
        """Return the entry, active; a new one with full support is simply added."""
        entry = activated(candidate.entry)
        if candidate.is_new:
            return entry, None
        count = len(candidate.support)
        return entry, Change(kind="promote", entry_id=entry.id, detail=f"{count} reflections support it")
