"""Updates that came before their predecessor: only where they stand is kept, and only if shuffle planned them."""

from collections.abc import AsyncIterator

from combee.ports import Log, Record, TopicPartition
from combee.publish.desk import Desk, Held
from combee.worker.lookup import MANIFEST_S, is_planned
from combee_schemas import topics

ASKED_AT_ONCE = 20
"""Plans that are looked up in one turn: looking must not hold up what is in order."""


async def found_again(log: Log, desk: Desk, held: Held) -> Record:
    """Return the record of an update that waited."""
    source = TopicPartition(topic=topics.UPDATES.name, partition=desk.partition)
    return (await log.read_at(source, [held.offset]))[held.offset]


async def unplanned(log: Log, desk: Desk, now: float) -> AsyncIterator[Record]:
    """Take from the desk what has waited long enough without belonging to any batch."""
    due = (key for key, held in desk.held.items() if not held.is_planned and now - held.since >= MANIFEST_S)
    for key in [key for key, _ in zip(due, range(ASKED_AT_ONCE), strict=False)]:
        held = desk.held[key]
        held.is_planned = await is_planned(log, held.plan, held.manifest_offset)
        if not held.is_planned:
            del desk.held[key]
            yield await found_again(log, desk, held)
