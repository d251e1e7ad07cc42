"""Updates that came too early: before their predecessor's, or before their own manifest could be seen.

What waits is not committed. An update that no manifest planned would hold up the commit for ever, so it is taken out.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from combee.ports import Log, Record, TopicPartition
from combee.worker import manifest_cache
from combee.worker.manifest_cache import ManifestCache, Place
from combee_schemas import topics
from combee_schemas.scan import Update

LOOKED_AT_ONCE = 20
"""Updates whose time is up that are taken in one turn: looking must not hold up what is in order."""
Key = tuple[str, int]
"""Playbook and sequence of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """An update whose manifest cannot be seen yet."""

    place: Place
    since: float
    """Monotonic seconds."""


class EarlyUpdates:
    """Where the early updates of one partition stand: one per batch, and those that wait for a manifest."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log = log
        self._source = TopicPartition(topic=topics.UPDATES.name, partition=partition)
        self._offsets: dict[Key, int] = {}
        self._unseen: dict[int, Unseen] = {}

    def __contains__(self, batch: Key) -> bool:
        return batch in self._offsets

    def add(self, update: Update, offset: int) -> None:
        """Remember where an update stands that waits for its predecessor."""
        self._offsets[update.plan.playbook, update.plan.sequence] = offset

    async def take(self, batch: Key) -> Record | None:
        """Take out the update of a batch, if there is one."""
        offset = self._offsets.pop(batch, None)
        return None if offset is None else await self._read(offset)

    def add_unseen(self, offset: int, place: Place, now: float) -> None:
        """Remember where an update stands whose manifest cannot be seen yet."""
        self._unseen[offset] = Unseen(place=place, since=now)

    async def seen(self, known: ManifestCache, now: float) -> AsyncIterator[Record]:
        """Take out the updates whose manifest can be seen by now, or that have waited long enough for it."""
        due = (
            offset
            for offset, update in self._unseen.items()
            if known.has_come(update.place) or now - update.since >= manifest_cache.ARRIVES_S
        )
        for offset in [offset for offset, _ in zip(due, range(LOOKED_AT_ONCE), strict=False)]:
            del self._unseen[offset]
            yield await self._read(offset)

    async def _read(self, offset: int) -> Record:
        return (await self._log.read_at(self._source, [offset]))[offset]
