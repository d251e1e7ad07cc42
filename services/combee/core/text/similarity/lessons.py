"""When two contents are the same lesson, and when they may contradict each other.

The rules are strict on purpose: a missed repeat costs a line, a wrong merge destroys knowledge. A word with a typing
error is another word: "pip install reqeusts" is another package.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from combee.core.playbook.derived import once_per_version
from combee.core.text.similarity.wording import Wording, said, wording
from combee_schemas.playbook import Entry, Playbook

K = TypeVar("K")
M = TypeVar("M")

PADDED, EMPHASIS = 2, 40
"""How many times longer than a lesson a content may be that only says it, and characters of emphasis in addition."""


def same_lesson(content: str, other: str) -> bool:
    """Return whether two contents say the same in the same words."""
    return said(content) == said(other)


def is_padded(content: str, lesson: str) -> bool:
    """Return whether a content is far longer than a lesson: words that say nothing take room in the lesson's name."""
    return len(content) > PADDED * len(lesson) + EMPHASIS


def at_odds(content: str, other: str) -> bool:
    """Return whether two contents differ only in figures or in a negation: they may contradict each other."""
    own, others = wording(content), wording(other)
    return own.words != others.words and own.subject == others.subject != ""


class Index:
    """Index of entries' contents: finds equal lessons and possible contradictions among many entries."""

    def __init__(self) -> None:
        self._wordings: dict[str, Wording] = {}
        self._said: dict[str, str] = {}
        self._saying: dict[str, dict[str, None]] = {}
        self._about: dict[str, dict[str, None]] = {}
        self._own: set[int] = set()
        """Ids of the groups that no copy shares: only these may be changed."""

    def copy(self) -> "Index":
        """Return an independent index of the same entries."""
        other = Index()
        self._own = set()
        for name in ("_wordings", "_said", "_saying", "_about"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def _group(self, groups: dict[K, dict[M, None]], key: K) -> dict[M, None]:
        """Return a group that may be changed."""
        group = groups.get(key)
        if group is None:
            group = groups[key] = {}
        elif id(group) in self._own:
            return group
        else:
            group = groups[key] = dict(group)
        self._own.add(id(group))
        return group

    def put(self, entry_id: str, content: str) -> None:
        """Set an entry's content."""
        self.drop(entry_id)
        own = self._wordings[entry_id] = wording(content)
        words = self._said[entry_id] = said(content)
        self._group(self._saying, words)[entry_id] = None
        self._group(self._about, own.subject)[entry_id] = None

    def drop(self, entry_id: str) -> None:
        """Forget an entry."""
        own = self._wordings.pop(entry_id, None)
        if own is None:
            return
        del self._group(self._about, own.subject)[entry_id]
        words = self._said.pop(entry_id)
        del self._group(self._saying, words)[entry_id]
        if not self._saying[words]:
            del self._saying[words]

    def saying(self, content: str) -> tuple[str, ...]:
        """Return the entries with the same lesson as ``content``, in order of insertion."""
        return tuple(self._saying.get(said(content), ()))

    def at_odds_with(self, entry_id: str) -> Iterator[str]:
        """Yield the entries that differ from one only in figures or in a negation."""
        own = self._wordings[entry_id]
        if own.subject:
            others = self._about[own.subject]
            yield from (other for other in others if self._wordings[other].words != own.words)


def _indexed(playbook: Playbook) -> Index:
    index = Index()
    for entry in playbook.entries:
        index.put(entry.id, entry.content)
    return index


def _difference(
    before: Sequence[Entry], after: Sequence[Entry]
) -> tuple[list[Entry], Sequence[Entry]] | None:
    """Return which entries left and which were added at the end; None if the versions differ otherwise."""
    gone: list[Entry] = []
    at = 0
    for entry in before:
        kept = after[at] if at < len(after) else None
        is_kept = kept is not None and kept.id == entry.id and kept.content == entry.content
        if is_kept:
            at += 1
        else:
            gone.append(entry)
    added = after[at:]
    left = {entry.id for entry in gone}
    return None if any(entry.id in left for entry in added) else (gone, added)


def _indexed_after(before: Playbook, known: Index, playbook: Playbook) -> Index | None:
    """Return the index of a version, extended by its new entries; it equals a newly built one."""
    if before.entries is playbook.entries:
        return known
    changed = _difference(before.entries, playbook.entries)
    if changed is None:
        return None
    gone, added = changed
    index = known.copy()
    for entry in gone:
        index.drop(entry.id)
    for entry in added:
        index.put(entry.id, entry.content)
    return index


index_of = once_per_version(_indexed, _indexed_after)
"""Index of a version's entries; copy it before changing it."""
