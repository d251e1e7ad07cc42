"""Versions of playbooks in ``history``: where each stands, found when somebody asks, remembered as places alone."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from combee.ports import Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.playbook import Playbook

NAMES_KEPT = 256
VERSIONS_KEPT = 64


@dataclass(slots=True)
class _Places:
    """Where the versions of one playbook stand, as far as its partition has been read."""

    read_to: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class History:
    """Any version of any playbook, by number."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places: OrderedDict[str, _Places] = OrderedDict()
        self._versions: OrderedDict[tuple[str, int], Playbook] = OrderedDict()

    async def source(self, name: str) -> TopicPartition:
        """Return where a playbook's versions are written."""
        number = await self._log.partition_for(topics.HISTORY.name, name.encode())
        return TopicPartition(topic=topics.HISTORY.name, partition=number)

    async def places(self, name: str) -> dict[int, int]:
        """Return the offset of each retained version, oldest first."""
        known = self._places.setdefault(name, _Places())
        self._places.move_to_end(name)
        while len(self._places) > NAMES_KEPT:
            self._places.popitem(last=False)
        async with known.reading:
            source = await self.source(name)
            end = (await self._log.ends(source.topic))[source.partition]
            async for version in self.between(name, known.read_to, end):
                known.offsets[version.version] = version.history_offset
            known.read_to = max(known.read_to, end)
            return dict(known.offsets)

    async def exactly(self, name: str, version: int) -> Playbook | None:
        """Return one version; None if it is not retained."""
        if (name, version) not in self._versions:
            offset = (await self.places(name)).get(version)
            if offset is None:
                return None
            async for found in self.between(name, offset, offset + 1):
                self.remember(found)
        return self._versions.get((name, version))

    def remember(self, version: Playbook) -> None:
        """Keep a version in memory; those that were asked for long ago make way."""
        self._versions[version.name, version.version] = version
        self._versions.move_to_end((version.name, version.version))
        while len(self._versions) > VERSIONS_KEPT:
            self._versions.popitem(last=False)

    async def between(self, name: str, start: int, end: int) -> AsyncGenerator[Playbook, None]:
        """Yield a playbook's versions that stand from ``start`` up to ``end``."""
        if start >= end:
            return
        async with aclosing(self._log.read(await self.source(name), start, end)) as records:
            async for record in records:
                version = placed(record) if record.key == name.encode() else None
                if version is not None:
                    yield version


def placed(record: Record) -> Playbook | None:
    """Return the version in a record of ``history``, with its place; None if it cannot be read."""
    version = topics.HISTORY.read_or_none(record)  # publish writes here alone, and it writes what it can read
    return version.model_copy(update={"history_offset": record.offset}) if version else None
