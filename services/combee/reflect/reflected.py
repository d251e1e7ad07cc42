"""Which traces already have their reflection in the log."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakValueDictionary

from combee.adapters.ports import Log, Record, TopicPartition
from combee.core.names import identity
from combee.process.worker.lookup import oldest_timestamp, read_since
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.topics import key_of
from combee_schemas.trace import Trace

REMEMBERED = 100_000
Key = tuple[str, str]
"""Playbook and reflection id."""


class Reflected:
    """The last reflections known to be in the log, by playbook and id, each with its content's fingerprint."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._known: OrderedDict[Key, str] = OrderedDict()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def only_once(self, trace: Trace, content: str) -> AsyncIterator[str | None]:
        """Yield the fingerprint of what this trace's reflection was made from, None if there is none yet.

        After the block there is one, made from ``content``. One at a time per playbook and trace id.
        """
        # A reflection that nobody vouched for cannot be that of a proven trace, unless no service vouches here.
        key = trace.playbook, self._provenance.derived_ids(trace)[1]
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._known.get(key)
            yield known
            if known is None:
                self._add(key, content)

    def _add(self, key: Key, content: str) -> None:
        self._known.setdefault(key, content)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def restore(
        self, log: Log, starts: Mapping[TopicPartition, int], playbook: str | None = None
    ) -> None:
        """Read ``reflections``, or one playbook's, from the time of the oldest unfinished trace in ``starts``."""
        since = await oldest_timestamp(log, starts)
        if since is not None:
            await read_since(log, topics.REFLECTIONS.name, since, partial(self._take, playbook))

    async def _take(self, playbook: str | None, record: Record) -> None:
        if playbook is not None and key_of(record) != playbook:
            return
        if topics.REFLECTIONS.read_or_none(record) is not None:  # shuffle dead-letters what cannot be read
            reflection = self._provenance.reflection(record, is_reread=True)
            self._add((reflection.playbook, reflection.reflection_id), identity.fingerprint(reflection))
