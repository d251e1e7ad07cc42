"""Dead letters of a topic, the decisions about them, and the resulting fates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from combee.core.log.fates import Fate, fate_of_letter
from combee_schemas.dead_letter import DeadLetter, Resolution

Place = tuple[int, int]
"""Partition and offset in the topic."""
Key = tuple[str, str]
"""Playbook and the record's id."""


@dataclass(slots=True, kw_only=True)
class DeadLetters:
    """All dead letters of ``reflections``, or of ``traces``; repeats count once."""

    committed: Mapping[int, int]
    """Committed offsets of the topic's reader, per partition."""
    _named: dict[Key, dict[int, Place]] = field(default_factory=dict)
    """Per reflection that its dead letter names: number of failures → place."""
    _unnamed: dict[Place, Key | None] = field(default_factory=dict)
    """Records that could not be read when they were dead-lettered; their key, once known."""
    _places: dict[Key, Place] = field(default_factory=dict)
    """Per reflection, the last unnamed place identified as its own."""
    _all: set[Place] = field(default_factory=set)
    _resolved: dict[Place, Resolution] = field(default_factory=dict)
    _letters: dict[Place, list[Place]] = field(default_factory=dict)
    """Per record, places of its dead letters and decisions in their own topic."""

    def add(self, letter: DeadLetter, at: Place) -> None:
        """Add a dead letter of the topic; ``at``: the letter's own place."""
        place = (letter.origin_partition, letter.origin_offset)
        self._all.add(place)
        self._letters.setdefault(place, []).append(at)
        if letter.record_id:
            self._named.setdefault((letter.playbook, letter.record_id), {})[letter.attempts] = place
        else:
            self._unnamed.setdefault(place, None)

    def resolve(self, resolution: Resolution, at: Place) -> None:
        """Add a decision; the first one about a record holds."""
        place = (resolution.origin_partition, resolution.origin_offset)
        self._letters.setdefault(place, []).append(at)
        self._resolved.setdefault(place, resolution)

    def letters(self, places: Iterable[Place], keys: Iterable[Key]) -> set[Place]:
        """Return the places of all dead letters and decisions about these records, or about records of these ids."""
        named = (place for key in keys for place in self._named.get(key, {}).values())
        return {at for place in {*places, *named} for at in self._letters.get(place, ())}

    def identify(self, place: Place, key: Key) -> None:
        """Note the reflection at a place."""
        if place in self._unnamed:
            self._unnamed[place] = key
            self._places[key] = place

    def has(self, place: Place) -> bool:
        """Return whether the record at a place is a dead letter."""
        return place in self._all

    def proves(self, key: Key, attempt: int) -> bool:
        """Return whether the attempt of a reflection before this one failed."""
        return attempt in self._named.get(key, ())

    def after(self, key: Key, attempt: int) -> Place | None:
        """Return the place of a reflection whose attempt, or a later one, was dead-lettered."""
        failed, place = max(self._named.get(key, {}).items(), default=(0, None))
        return place if failed > attempt else None

    def unread(self, key: Key) -> Place | None:
        """Return the place of a reflection that could not be read when it was dead-lettered."""
        return self._places.get(key)

    def fate(self, place: Place) -> Fate:
        """Return the fate of a dead-lettered record without a later batch."""
        resolution = self._resolved.get(place)
        if resolution is None:
            return fate_of_letter(None)
        again = resolution.retry_partition, resolution.retry_offset
        return fate_of_letter(resolution.decision, passed=self.is_passed(again))

    def is_passed(self, place: Place) -> bool:
        """Return whether the topic's reader has passed a place."""
        return place[1] < self.committed.get(place[0], 0)
