"""Which traces already have their reflection in the log."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from combee.ports import Log, Record, TopicPartition
from combee.runtime.restore import oldest_timestamp, read_since
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode
from combee_schemas.reflection import Reflection

REMEMBERED = 100_000


class Reflected:
    """The last reflection ids known to be in the log."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def only_once(self, reflection_id: str) -> AsyncIterator[bool]:
        """Yield whether the reflection is known; after the block it is. One at a time per id."""
        lock = self._locks.setdefault(reflection_id, asyncio.Lock())
        async with lock:
            yield reflection_id in self._ids
            self._add(reflection_id)

    def _add(self, reflection_id: str) -> None:
        self._ids[reflection_id] = None
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    async def restore(self, log: Log, starts: Mapping[TopicPartition, int]) -> None:
        """Read ``reflections`` from the time of the oldest unfinished trace in ``starts``."""
        since = await oldest_timestamp(log, starts)
        if since is not None:
            await read_since(log, topics.REFLECTIONS.name, since, self._take)

    def _take(self, record: Record) -> None:
        try:
            self._add(decode(record.value, Reflection).reflection_id)
        except CodecError:
            return  # shuffle dead-letters it
