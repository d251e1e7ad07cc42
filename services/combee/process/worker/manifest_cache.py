"""The manifests that records of the scan name, followed as they are written to save a look-up per batch."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from weakref import WeakValueDictionary

import structlog

from combee.adapters.ports import Log, Record, TopicPartition, TransientError
from combee.core.batching.planned import Manifest, forgery, kept_of
from combee.process.worker.views import RETRY_S
from combee_schemas import topics
from combee_schemas.scan import Planned

logger = structlog.get_logger()

ARRIVES_S = 30.0
"""Seconds before a manifest counts as absent: a transaction's markers reach manifest and groups at different times.

A transaction lasts at most half as long."""
READ_BACK = 64
"""Offsets per partition read at the start, usually all batches in flight; other manifests are looked up."""
KEPT_BYTES = 4 << 20
"""Maximum bytes of manifests in memory, counted as in the log; decoded they take about twice as much."""

Place = tuple[int, int]
"""Partition and offset."""


class ManifestCache:
    """The newest manifests by their places, decoded when used; ``run`` follows them, others are looked up."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept: OrderedDict[Place, Record | Manifest | None] = OrderedDict()
        self._sizes: dict[Place, int] = {}
        self._bytes = 0
        self._ends: dict[int, int] = {}
        """By partition: every manifest below this offset is visible by now."""
        self._arrivals: WeakValueDictionary[Place, asyncio.Event] = WeakValueDictionary()
        self._current = asyncio.Event()

    async def run(self) -> None:
        """Follow the manifests for ever; after a disconnect from a little before the end."""
        while True:
            try:
                ends = await self._log.ends(topics.BATCHES.name)
                starts = {partition: max(0, end - READ_BACK) for partition, end in ends.items()}
                async with aclosing(self._log.follow(topics.BATCHES.name, starts)) as changes:
                    async for records in changes:
                        for record in records or ():
                            self._keep(record)
                            self._reach({record.partition: record.offset + 1})
                        if records is None:
                            self._reach(ends)
                            self._current.set()
            except TransientError as error:
                logger.warning("log_unavailable", topic=topics.BATCHES.name, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def wait_current(self) -> None:
        """Wait until every manifest written before the start is in memory or can be looked up."""
        await self._current.wait()

    async def place_of(self, record: Planned) -> Place:
        """Return the place of the manifest that a record names."""
        partition = await self._log.partition_for(topics.BATCHES.name, record.plan.playbook.encode())
        return partition, record.manifest_offset

    def has_come(self, place: Place) -> bool:
        """Return whether a manifest is visible by now, or never will be."""
        partition, offset = place
        return offset < self._ends.get(partition, 0)

    def arrival(self, place: Place) -> asyncio.Event:
        """Return the event that is set once a manifest is visible, or never will be."""
        event = self._arrivals.setdefault(place, asyncio.Event())
        if self.has_come(place):
            event.set()
        return event

    async def forgery(self, record: Planned) -> str:
        """Return why a record was not planned, as far as is known by now; empty: it may be planned."""
        return forgery(record, await self.find(await self.place_of(record)))

    async def find(self, place: Place) -> Manifest | None:
        """Return the manifest at a place; None: there is none."""
        if place not in self._kept:
            partition, offset = place
            source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
            record = (await self._log.read_at(source, [offset])).get(offset)
            if record is None:
                return None
            self._keep(record)
        self._kept.move_to_end(place)
        manifest = self._kept[place]
        if isinstance(manifest, Record):
            batch = topics.BATCHES.read_or_none(manifest)
            manifest = self._kept[place] = kept_of(batch) if batch else None
        return manifest

    def _keep(self, record: Record) -> None:
        place = record.partition, record.offset
        if place in self._kept:
            return
        self._kept[place], self._sizes[place] = record, len(record.value or b"")
        self._bytes += self._sizes[place]
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._bytes -= self._sizes.pop(oldest)

    def _reach(self, ends: Mapping[int, int]) -> None:
        for partition, end in ends.items():
            self._ends[partition] = max(end, self._ends.get(partition, 0))
        for place, event in self._arrivals.items():
            if self.has_come(place):
                event.set()
