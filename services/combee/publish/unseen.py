"""Updates whose manifest cannot be seen yet.

What waits is not committed. An update that no manifest planned would hold up the commit for ever, so its wait ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from combee.worker import manifest_cache
from combee.worker.manifest_cache import ManifestCache, Place

TAKEN_AT_ONCE = 20
"""Maximum number of updates that leave the queue in one turn: looking them up must not hold up what is in order."""


@dataclass(slots=True)
class UnseenManifests:
    """The updates of one partition that wait for their manifest, by offset."""

    waiting: dict[int, tuple[Place, float]] = field(default_factory=dict)
    """Where the manifest stands, and since when (monotonic seconds) the update has waited."""

    def add(self, offset: int, place: Place, now: float) -> None:
        """Remember an update that waits."""
        self.waiting[offset] = place, now

    def take(self, known: ManifestCache, now: float) -> list[int]:
        """Take out the updates whose manifest can be seen by now, or that have waited long enough for it."""
        due = list(islice(self._due(known, now), TAKEN_AT_ONCE))
        for offset in due:
            del self.waiting[offset]
        return due

    def _due(self, known: ManifestCache, now: float) -> Iterator[int]:
        for offset, (place, since) in self.waiting.items():
            if known.has_come(place) or now - since >= manifest_cache.ARRIVES_S:
                yield offset
