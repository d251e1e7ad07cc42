"""A playbook being changed: entries by id in order, what each says, and what was done to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from combee.core.playbook.operations import union
from combee.core.playbook.retention import Landing
from combee.core.playbook.similarity import Index
from combee_schemas.playbook import SOURCES_KEPT, Change, ChangeKind, Entry, Playbook

MAX_DETAIL_CHARS = 300
MOST_IN_CONFLICT = 3
"""More entries that differ only in figures are a list (item 1, item 2 …), not a dispute."""


@dataclass(slots=True)
class Draft:
    """The next version while operations are applied to it."""

    version: int
    entries: dict[str, Entry]
    next_id: int
    changes: list[Change] = field(default_factory=list)
    landing: Landing = field(default_factory=Landing)
    _index: Index = field(default_factory=Index)
    _reworded: dict[str, None] = field(default_factory=dict)
    """Entries whose content is new in this version."""

    @classmethod
    def of(cls, base: Playbook) -> "Draft":
        """Begin the version after ``base``."""
        draft = cls(base.version + 1, {entry.id: entry for entry in base.entries}, base.next_id)
        for entry in base.entries:
            draft._index.put(entry.id, entry.content)
        return draft

    def put(self, entry: Entry) -> None:
        """Add or replace an entry."""
        known = self.entries.get(entry.id)
        self.entries[entry.id] = entry
        if known is None or known.content != entry.content:
            self._index.put(entry.id, entry.content)
            self._reworded[entry.id] = None

    def drop(self, entry_id: str) -> Entry | None:
        """Take an entry out and return it."""
        self._index.drop(entry_id)
        self._reworded.pop(entry_id, None)
        return self.entries.pop(entry_id, None)

    def saying(self, content: str, *, but: str = "") -> Entry | None:
        """Return the entry that says ``content`` already, one other than ``but``."""
        found = (entry_id for entry_id in self._index.saying(content) if entry_id != but)
        return next(map(self.entries.__getitem__, found), None)

    def note(self, kind: ChangeKind, entry_id: str, detail: str = "") -> None:
        """Record one change."""
        self.changes.append(Change(kind=kind, entry_id=entry_id, detail=detail[:MAX_DETAIL_CHARS]))

    def note_conflicts(self) -> None:
        """Record which new contents differ from others only in figures or in a negation; all stay."""
        told: set[str] = set()
        for entry_id in self._reworded:
            told.add(entry_id)
            rivals = self._index.at_odds_with(entry_id)
            others = [rival for rival in rivals if rival not in told]
            if others and len(rivals) <= MOST_IN_CONFLICT:
                content = self.entries[others[0]].content
                self.note(
                    "conflict", entry_id, f"in figures or a negation, with {', '.join(others)}: {content}"
                )


def united(kept: Entry, others: Iterable[Entry]) -> Entry:
    """Return ``kept`` with the counters and the evidence of others; evidence both have counts once."""
    for other in others:
        shared = len(set(kept.evidence) & set(other.evidence))
        kept = kept.model_copy(
            update={
                "helpful": kept.helpful + other.helpful,
                "harmful": kept.harmful + other.harmful,
                "evidence_count": kept.evidence_count + other.evidence_count - shared,
                "evidence": union(kept.evidence, other.evidence),
                "sources": union(other.sources, kept.sources)[-SOURCES_KEPT:],
            }
        )
    return kept
