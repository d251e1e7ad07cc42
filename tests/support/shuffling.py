"""A shuffler driven by hand: no Faust, no loop of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from combee.adapters.ports import Log, Record, TopicPartition
from combee.core.batching.limits import ShuffleLimits
from combee.process.settings.batch import BatchSettings
from combee.process.worker.provenance import Provenance
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from support.clock import ManualClock
from support.deployment import DEADLINE_S, LIMITS

INPUTS = (topics.REFLECTIONS.name, topics.COMMANDS.name)


class Shuffling:
    """One shuffler that owns every partition; ``step`` delivers what is new and takes a turn."""

    def __init__(
        self,
        log: Log,
        clock: ManualClock,
        settings: BatchSettings,
        limits: ShuffleLimits,
        provenance: Provenance | None = None,
    ) -> None:
        self.log = log
        self.shuffler = Shuffler(log, clock, settings, limits=limits, provenance=provenance)
        self._delivered: dict[TopicPartition, int] = {}

    async def undelivered(self, *inputs: str) -> list[Record]:
        """Return what has not been delivered yet, topic by topic."""
        records: list[Record] = []
        for topic in inputs or INPUTS:
            for partition in range(await self.log.partitions(topic)):
                source = TopicPartition(topic=topic, partition=partition)
                records += [r async for r in self.log.read(source, self._delivered.get(source, 0))]
        self._delivered |= {record.source: record.offset + 1 for record in records}
        return records

    async def step(self, *inputs: str) -> None:
        """Deliver in order, then take one turn."""
        for record in await self.undelivered(*inputs):
            self.shuffler.deliver([record])
        await self.shuffler.turn()


@asynccontextmanager
async def shuffling(log: Log, clock: ManualClock, **settings: Any) -> AsyncIterator[Shuffling]:
    """Yield a shuffler with its views current and every partition assigned; then let it die."""
    provenance: Provenance | None = settings.pop("provenance", None)
    limits = ShuffleLimits(**{name: settings.pop(name) for name in LIMITS & settings.keys()})
    rig = Shuffling(log, clock, BatchSettings(**{"batch_size": 5, **settings}), limits, provenance)
    views = (rig.shuffler.playbooks.view, rig.shuffler.sizes)
    tasks = [asyncio.create_task(views[0].run()), asyncio.create_task(views[1].run())]
    try:
        await views[0].wait_current(DEADLINE_S)
        await views[1].wait_current(DEADLINE_S)
        await rig.shuffler.assign(range(await log.partitions(INPUTS[0])))
        yield rig
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
