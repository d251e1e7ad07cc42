"""Retained traces: each has become a reflection, waits, is a dead letter or a repeat, or is lost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from combee.core.log.fates import Fate, fate_of
from combee.core.log.ledger.dead_letters import DeadLetters, Key, Place
from combee.core.log.ledger.report import Findings, TraceCounts
from combee_schemas import topics

TRACES = topics.TRACES.name


@dataclass(slots=True, kw_only=True)
class Contents:
    """The first content under each id of a playbook; later contents are repeats or conflicts."""

    topic: str
    conflicts: Findings
    duplicates: int = 0
    """Number of records whose id was known, conflicts included."""
    conflicting: set[Key] = field(default_factory=set)
    _first: dict[Key, tuple[Place, str]] = field(default_factory=dict)

    def add(self, place: Place, key: Key, content: str) -> None:
        """Add a record; ``content`` is its fingerprint, empty if unknown."""
        known, first = self._first.setdefault(key, (place, content))
        if known == place:
            return
        self.duplicates += 1
        if content and first and content != first:
            self.conflicting.add(key)
            where, before = (f"{self.topic}[{partition}]@{offset}" for partition, offset in (place, known))
            self.conflicts.add("conflict", f"{where}: {key[1]} of {key[0]} has other content than {before}")


@dataclass(slots=True, kw_only=True)
class Traces:
    """Traces in order, added after all their effects."""

    findings: Findings
    contents: Contents
    dead_letters: DeadLetters
    fates: dict[Key, Fate] = field(default_factory=dict)
    """Filled by ``counts``."""
    places: list[tuple[Place, Key]] = field(default_factory=list)
    """Places of all records."""
    _last: dict[Key, Place] = field(default_factory=dict)
    _derived: dict[Key, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    """Ids of each trace's reflection, and its ids if the trace's proof turns out invalid."""
    _waiting: set[Key] = field(default_factory=set)
    """Traces with a record that reflect has not passed."""

    def add(
        self, place: Place, key: Key, content: str, derived: Sequence[str], unproven: Sequence[str]
    ) -> None:
        """Add an acknowledged trace; the key is playbook and identity.

        ``derived`` are its reflection's ids, ``unproven`` its ids if the trace's proof turns out invalid.
        """
        self._derived[key] = derived, unproven
        self.contents.add(place, key, content)
        self.dead_letters.identify(place, key)
        self.places.append((place, key))
        self._last[key] = place
        if not self.dead_letters.is_passed(place):
            self._waiting.add(key)

    def counts(self, is_reflected: Callable[[str, str], bool]) -> TraceCounts:
        """Return the number of traces per fate; ``is_reflected`` looks up a playbook's reflection by id."""
        fates = Counter[Fate]()
        for key, place in self._last.items():
            fate = self.fates[key] = self._fate(key, is_reflected)
            fates[fate] += 1
            if fate == Fate.LOST:
                text = f"{TRACES}[{place[0]}]@{place[1]}: trace {key[1]} of {key[0]}: reflect has passed it, and it"
                self.findings.add("lost", f"{text} has no reflection and is not a dead letter; send it again")
        return TraceCounts(
            acknowledged=fates.total() + self.contents.duplicates,
            reflected=fates[Fate.APPLIED],
            pending=fates[Fate.WAITING],
            dead_lettered=fates[Fate.DEAD_LETTERED] + fates[Fate.DROPPED],
            duplicates=self.contents.duplicates,
            lost=fates[Fate.LOST],
        )

    def _fate(self, key: Key, is_reflected: Callable[[str, str], bool]) -> Fate:
        derived, unproven = self._derived[key]
        if any(is_reflected(key[0], own_id) for own_id in derived):
            return Fate.APPLIED
        letter_at = self.dead_letters.after(key, 0) or self.dead_letters.unread(key)
        fate = fate_of(letter=self.dead_letters.fate(letter_at) if letter_at else None, passed=True)
        if fate == Fate.LOST and any(is_reflected(key[0], own_id) for own_id in unproven):
            return Fate.APPLIED
        return Fate.WAITING if fate == Fate.LOST and key in self._waiting else fate
