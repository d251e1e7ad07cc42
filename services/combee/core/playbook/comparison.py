"""Comparison of two versions of a playbook, or of two of its lines, entry by entry; pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from combee.core.playbook.sections import section_order
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import WITHOUT_EFFECT
from combee_schemas.base import Value
from combee_schemas.playbook import ChangeKind, Entry, Playbook

CHANGE_WORDS: Mapping[str, str] = {
    "add": "added",
    "update": "changed",
    "merge": "merged",
    "remove": "removed",
    "evict": "evicted",
    "promote": "promoted",
    "expire": "expired",
    "duplicate": "repeated",
    "echo": "echoed",
    "conflict": "in conflict",
    "import": "imported",
    "rollback": "rolled back",
    "adopt": "adopted",
    "delete": "deleted",
}
"""Words for kinds of changes in all views; other kinds go by their own names."""
LEAVING: tuple[ChangeKind, ...] = ("remove", "evict", "merge")


class Said(Value):
    """An entry's section and content."""

    id: str
    section: str
    content: str


class Gone(Said):
    """An entry that left; ``how`` is the kind of the change that removed it, if known."""

    how: ChangeKind | None = None

    @property
    def word(self) -> str:
        """The kind of removal in words."""
        return CHANGE_WORDS[self.how or "remove"]


class Reworded(Value):
    """An entry with another content or section."""

    id: str
    section: str
    before: str
    after: str
    section_before: str


class Counted(Value):
    """An entry with the same content and other counts; the numbers are differences."""

    id: str
    helpful: int
    harmful: int
    evidence: int


class Disputed(Value):
    """An entry in conflict with another one, or with a rewrite that would have lost a part of it; all are kept."""

    id: str
    why: str


class Comparison(Value):
    """Comparison of two versions of one playbook; unchanged entries are only counted."""

    name: str
    name_before: str = ""
    """The line of ``before``; empty: the same line."""
    before: int
    after: int
    added: tuple[Said, ...] = ()
    removed: tuple[Gone, ...] = ()
    """Entries that left, for any reason."""
    changed: tuple[Reworded, ...] = ()
    counted: tuple[Counted, ...] = ()
    conflicts: tuple[Disputed, ...] = ()
    """Conflicts that came up in between, of entries that nobody changed since."""
    unchanged: int = 0
    sections: tuple[str, ...] = ()
    """Sections of either version, in order."""
    sections_added: tuple[str, ...] = ()
    """Headers that agents are shown now, and were not before."""
    sections_removed: tuple[str, ...] = ()

    @property
    def entry_ids(self) -> tuple[str, ...]:
        """Ids of entries that agents would notice: added, changed or gone."""
        said: tuple[Said | Reworded, ...] = (*self.added, *self.changed, *self.removed)
        return tuple(entry.id for entry in said)

    def counts(self) -> dict[str, int]:
        """Return the number of differing entries by kind, in the words of ``CHANGE_WORDS``."""
        left = Counter(entry.word for entry in self.removed)
        leaving = {CHANGE_WORDS[how]: left[CHANGE_WORDS[how]] for how in LEAVING}
        counts = {
            "added": len(self.added),
            **leaving,
            "changed": len(self.changed),
            "counted": len(self.counted),
        }
        return {word: count for word, count in counts.items() if count}


def compare(
    before: Playbook,
    after: Playbook,
    between: Iterable[Playbook] = (),
    *,
    shared: Collection[str] | None = None,
) -> Comparison:
    """Return how ``after`` differs from ``before`` for agents; entries are matched by id.

    Proposed entries are invisible to agents: a promoted one counts as added.

    The versions ``between`` the two tell how entries left that ``after`` itself did not remove. On two lines only the
    ``shared`` ids, those from before the fork, mean the same entry; others are matched by content.
    """
    there = {entry.id for entry in after.entries}
    before, after = shown(before), shown(after)
    versions = (*between, after) if after.version > before.version else ()
    how = {
        change.entry_id: change.kind for made in versions for change in made.changes if change.kind in LEAVING
    }
    both = _pairs(before, after, shared)
    known, kept = {now.id for _, now in both}, {was.id for was, _ in both}
    changed = tuple(_reworded(was, now) for was, now in both if _words(was) != _words(now))
    counted = tuple(
        difference for was, now in both if _words(was) == _words(now) for difference in _counted(was, now)
    )
    was_headed, is_headed = (section_order(each.sections, each.entries) for each in (before, after))
    return Comparison(
        name=after.name,
        name_before="" if before.name == after.name else before.name,
        before=before.version,
        after=after.version,
        added=tuple(_said(entry) for entry in after.entries if entry.id not in known),
        removed=tuple(
            Gone(**_said(entry).model_dump(), how=how.get(entry.id))
            for entry in before.entries
            if entry.id not in kept
        ),
        changed=changed,
        counted=counted,
        conflicts=tuple(_disputed(versions, there)),
        unchanged=len(both) - len(changed) - len(counted),
        sections=section_order(is_headed, before.entries),
        sections_added=tuple(section for section in is_headed if section not in was_headed),
        sections_removed=tuple(section for section in was_headed if section not in is_headed),
    )


def _disputed(versions: Iterable[Playbook], there: Collection[str]) -> Iterator[Disputed]:
    """Yield the conflicts that versions, oldest first, recorded, and that are still open."""
    noted: dict[str, list[str]] = defaultdict(list)
    for version in versions:
        for change in version.changes:
            if change.kind == "conflict":
                noted[change.entry_id].append(change.detail)
            elif change.kind not in WITHOUT_EFFECT:
                noted.pop(change.entry_id, None)
    for entry_id, details in noted.items():
        if entry_id in there:
            yield from (Disputed(id=entry_id, why=detail) for detail in details)


def _pairs(before: Playbook, after: Playbook, shared: Collection[str] | None) -> list[tuple[Entry, Entry]]:
    """Return the entries that are on both sides."""
    by_id = {entry.id: entry for entry in before.entries if shared is None or entry.id in shared}
    by_words = {_words(entry): entry for entry in before.entries if entry.id not in by_id}
    pairs: list[tuple[Entry, Entry]] = []
    for now in after.entries:
        was = by_id.get(now.id)
        if was is None and shared is not None:
            was = by_words.pop(_words(now), None)
        if was is not None:
            pairs.append((was, now))
    return pairs


def _words(entry: Entry) -> tuple[str, str]:
    return entry.section, entry.content


def _said(entry: Entry) -> Said:
    return Said(id=entry.id, section=entry.section, content=entry.content)


def _reworded(was: Entry, now: Entry) -> Reworded:
    return Reworded(
        id=now.id, section=now.section, before=was.content, after=now.content, section_before=was.section
    )


def _counted(was: Entry, now: Entry) -> Iterator[Counted]:
    names = ("helpful", "harmful", "evidence_count")
    helpful, harmful, evidence = (getattr(now, name) - getattr(was, name) for name in names)
    if helpful or harmful or evidence:
        yield Counted(id=now.id, helpful=helpful, harmful=harmful, evidence=evidence)
