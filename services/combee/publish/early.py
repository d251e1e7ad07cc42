"""Updates that came before their predecessor: where each one stands in the log, and whether its batch was planned.

What waits is not committed. An update that no manifest planned would hold up the commit for ever, so it is taken out.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from combee.ports import Log, Record, TopicPartition
from combee.worker.lookup import MANIFEST_S, is_planned
from combee_schemas import topics
from combee_schemas.plan import Plan
from combee_schemas.scan import Update

LOOKED_UP_AT_ONCE = 20
"""Plans that are looked up in one turn: looking must not hold up what is in order."""
Key = tuple[str, int]
"""Playbook and sequence of a batch."""


@dataclass(slots=True, kw_only=True)
class EarlyUpdate:
    """Where an update stands that waits for its predecessor."""

    offset: int
    plan: Plan
    manifest_offset: int
    since: float
    """Monotonic seconds."""
    is_planned: bool = False


class EarlyUpdates:
    """The early updates of one partition, one per batch."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log = log
        self._source = TopicPartition(topic=topics.UPDATES.name, partition=partition)
        self._updates: dict[Key, EarlyUpdate] = {}

    def __contains__(self, batch: Key) -> bool:
        return batch in self._updates

    def add(self, update: Update, offset: int, now: float) -> None:
        """Remember where an update stands."""
        self._updates[update.plan.playbook, update.plan.sequence] = EarlyUpdate(
            offset=offset, plan=update.plan, manifest_offset=update.manifest_offset, since=now
        )

    async def take(self, batch: Key) -> Record | None:
        """Take out the update of a batch, if there is one."""
        early = self._updates.pop(batch, None)
        return (
            None if early is None else (await self._log.read_at(self._source, [early.offset]))[early.offset]
        )

    async def take_unplanned(self, batch: Key) -> Record | None:
        """Take out the update of a batch, if there is one and no manifest planned it."""
        early = self._updates.get(batch)
        if early is None or early.is_planned:
            return None
        early.is_planned = await is_planned(self._log, early.plan, early.manifest_offset)
        return None if early.is_planned else await self.take(batch)

    async def overdue(self, now: float) -> AsyncIterator[Record]:
        """Take out what has waited long enough for its manifest."""
        waiting = ((batch, early) for batch, early in self._updates.items() if not early.is_planned)
        due = (batch for batch, early in waiting if now - early.since >= MANIFEST_S)
        for batch in [batch for batch, _ in zip(due, range(LOOKED_UP_AT_ONCE), strict=False)]:
            record = await self.take_unplanned(batch)
            if record is not None:
                yield record
