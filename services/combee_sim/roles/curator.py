"""The operations of one aggregator call: on lessons that it keeps, and what it says of those that it overlooks."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee_sim.family.blurring import blurred
from combee_sim.family.lessons import Item, ShownEntry, key, section_of, subject
from combee_sim.family.wordings import plain
from combee_sim.roles.failing import Failing
from combee_sim.roles.reading import Reading

WORD_FOR_WORD = 'write "as item 3"'
"""Words of instructions that let an operation have the words of an item."""
ACCOUNT = "very item is in one of"
"""Words of instructions that have a model account for every item."""

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The playbook in a prompt, and what the instructions ask for."""

    entries: Sequence[ShownEntry]
    by_subject: Mapping[str, ShownEntry]
    by_lesson: Mapping[str, Sequence[ShownEntry]]
    asks_known: bool
    asks_all: bool
    """Whether every item is to be accounted for."""
    takes_words: bool
    """Whether an operation may name an item for its words."""
    kinds: frozenset[str]
    """Operations other than ADD and UPDATE that the instructions name."""


def shown_in(reading: Reading) -> Shown:
    """Return what a prompt shows."""
    by_lesson: dict[str, list[ShownEntry]] = defaultdict(list)
    for entry in reading.entries:
        by_lesson[key(entry.content)].append(entry)
    return Shown(
        entries=reading.entries,
        by_subject={name: entry for entry in reading.entries if (name := subject(entry.content))},
        by_lesson=dict(by_lesson),
        asks_known=reading.says('"known"'),
        asks_all=reading.says(ACCOUNT),
        takes_words=reading.says(WORD_FOR_WORD),
        kinds=frozenset(kind for kind in ("MERGE", "REMOVE") if reading.says(kind)),
    )


class Curator:
    """Writes one reply, lesson by lesson."""

    def __init__(self, shown: Shown, failing: Failing) -> None:
        self.operations: list[Operation] = []
        self.dropped: list[int] = []
        self.known: list[dict[str, Any]] = []
        self.shown = shown
        self._failing = failing

    def keep(self, items: Sequence[Item]) -> None:
        """Say one lesson of some items, or name the entry that says it; several such entries become one."""
        entry = self._noticed(items)
        if entry is None:
            self.operations.append(self._operation(items))
        elif len(same := self._repeats(entry)) > 1:
            self.operations.append(self._said("MERGE", entry.content, entry.content, same, items))
        else:
            self._claim(items, entry)

    def remove(self, accused: Iterable[tuple[int, str]], unread: Collection[int]) -> None:
        """Remove the entries that items speak against, unless an operation changes them, or an item repeats them.

        ``unread``: the numbers of items that do not count.
        """
        spared = {entry_id for operation in self.operations for entry_id in operation["entry_ids"]}
        spared |= {known["entry_id"] for known in self.known}
        shown = {entry.id for entry in self.shown.entries} - spared
        against: dict[str, list[int]] = defaultdict(list)
        for n, entry_id in accused if "REMOVE" in self.shown.kinds else ():
            if entry_id in shown and n not in unread:
                against[entry_id].append(n)
        for entry_id, numbers in against.items():
            sources = sorted(set(numbers))
            removal = {"type": "REMOVE", "section": "", "content": "", "entry_ids": [entry_id]}
            self.operations.append({**removal, "sources": sources})

    def make_up(self, items: Sequence[Item]) -> None:
        """Add invented lessons; each names an item."""
        for lesson in self._failing.inventions() if items else ():
            source = self._failing.one_of(items, "source", lesson)
            self.operations.append(self._said("ADD", lesson, lesson, (), [source]))

    def overlook(self, overlooked: Mapping[str, Sequence[Item]]) -> None:
        """Say of each lesson what an overloaded call says of it; blurred ones come first, as operations."""
        ways = {
            lesson: self._failing.overlooks(lesson, is_to_name=self.shown.asks_all) for lesson in overlooked
        }
        for lesson in (lesson for lesson, way in ways.items() if way == "blurred"):
            self._blur(overlooked[lesson])
        for lesson, items in overlooked.items():
            match ways[lesson]:
                case "named":
                    self.dropped += [item.n for item in items]
                case "claimed" if self.shown.entries and self.shown.asks_known:
                    self._claim(items, self._failing.one_of(self.shown.entries, "claimed", lesson))
                case "claimed" | "lumped" if self.operations:
                    operation = self._failing.one_of(self.operations, "lumped", lesson)
                    operation["sources"] = sorted({*operation["sources"], *(item.n for item in items)})

    def _claim(self, items: Iterable[Item], entry: ShownEntry) -> None:
        self.known += [{"n": item.n, "entry_id": entry.id} for item in items]

    def _noticed(self, items: Sequence[Item]) -> ShownEntry | None:
        """Return the entry with the lesson, if the prompt asks for it and the call notices it."""
        if not self.shown.asks_known or any(item.kind != "ADD" for item in items):
            return None
        lesson = min(item.lesson for item in items)
        same = self._first(lesson)
        if same is None or self._failing.modes.paraphrase is None:
            return same
        return same if self._failing.said(lesson, same.content) == same.content else None

    def _first(self, lesson: str) -> ShownEntry | None:
        return next(iter(self.shown.by_lesson.get(key(lesson), ())), None)

    def _repeats(self, entry: ShownEntry) -> list[str]:
        """Return the entry and those that a call notices to say the same, if it may merge them."""
        _, *others = self.shown.by_lesson[key(entry.content)] if "MERGE" in self.shown.kinds else [entry]
        return [
            entry.id,
            *(other.id for other in others if self._failing.sees_entries(entry.content, other.content)),
        ]

    def _operation(self, items: Sequence[Item]) -> Operation:
        lesson = min(item.lesson for item in items)
        same = self._first(lesson)
        kind, entry_ids = self._target(items, lesson)
        content = self._failing.said(lesson, same.content if same else None)
        return self._said(kind, lesson, content, entry_ids, items)

    def _target(self, items: Sequence[Item], lesson: str) -> tuple[str, tuple[str, ...]]:
        """Correct an entry that contradicts the lesson, pass a proposed correction on, add the rest."""
        entry = self.shown.by_subject.get(subject(lesson) or "")
        contradicted = entry is not None and key(entry.content) != key(lesson)
        if entry is not None and contradicted and self._failing.sees_contradiction(f"entry {lesson}"):
            return "UPDATE", (entry.id,)
        proposed = (item for item in items if item.kind in ("UPDATE", "MERGE") and item.entry_ids)
        corrections = sorted((item.kind, item.entry_ids) for item in proposed)
        return corrections[-1] if corrections else ("ADD", ())

    def _blur(self, items: Sequence[Item]) -> None:
        """Say a lesson without its details, in place of entries that have it; an entry may say that already."""
        lesson = min(item.lesson for item in items)
        content = blurred(lesson)
        entry = self._first(content)
        if entry and self.shown.asks_known:
            self._claim(items, entry)
            return
        kind, entry_ids = self._target(items, lesson)
        same = self._first(lesson)
        if same and kind == "ADD":
            repeats = self._repeats(same)
            kind, entry_ids = "MERGE" if len(repeats) > 1 else "UPDATE", tuple(repeats)
        self.operations.append(self._said(kind, lesson, content, entry_ids, items))

    def _said(
        self, kind: str, lesson: str, content: str, entry_ids: Sequence[str], items: Sequence[Item]
    ) -> Operation:
        """Return an operation; words that an item has already are that item's, if the prompt allows it."""
        same = [item.n for item in items if self.shown.takes_words and item.lesson == content]
        return {
            "type": kind,
            "section": section_of(plain(lesson)),
            "content": f"as item {same[0]}" if same else content,
            "entry_ids": list(entry_ids),
            "sources": sorted({item.n for item in items}),
        }
