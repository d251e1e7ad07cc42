"""The feed: every new version in order and without a gap, for any number of streams.

A stream holds only a position, so a slow stream costs no memory: it reads versions that have left the feed's short
memory from ``history``.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import structlog

from combee.adapters.ports import Log, Record, TransientError
from combee.log.history import History, placed
from combee_schemas import topics
from combee_schemas.playbook import Playbook

logger = structlog.get_logger()

RETRY_S = 1.0
KEPT = 256
KEPT_BYTES = 8 << 20
DECODED_KEPT = 8


class Changes:
    """Wakes waiters. A waiter gets ``seen`` before it reads the state, so it misses no later change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def seen(self) -> asyncio.Event:
        """The signal of the next change; get it *before* reading the state."""
        return self._event

    def notify(self) -> None:
        """Wake all waiters."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seen: asyncio.Event, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` for the next change after ``seen`` was read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await seen.wait()


class Feed:
    """Follows ``history`` from the moment it starts."""

    def __init__(self, log: Log, history: History, *, kept: int = KEPT) -> None:
        self.changed = Changes()
        """Notified at every new version."""
        self._log = log
        self._history = history
        self._most = kept, KEPT_BYTES
        self._recent: deque[Record] = deque()
        """Records not yet decoded; a version that no stream requests is never decoded."""
        self._decoded: OrderedDict[tuple[int, int], Playbook | None] = OrderedDict()
        """Versions that streams requested last, by partition and offset."""
        self._bytes = 0
        self._starts: dict[int, int] = {}
        """Next offset to read, per partition."""
        self._covered: dict[int, int] = {}
        """First offset from which all records read are in memory, per partition."""
        self._current = asyncio.Event()
        self._connected = False

    @property
    def is_current(self) -> bool:
        """Whether the feed follows ``history``."""
        return self._connected

    async def wait_current(self, timeout_s: float) -> None:
        """Wait until the feed follows."""
        async with asyncio.timeout(timeout_s):
            await self._current.wait()

    async def run(self) -> None:
        """Follow for ever; after a disconnect, resume at the last position."""
        while True:
            try:
                await self._follow()
            except TransientError as error:
                self._connected = False
                logger.warning("log_unavailable", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        if not self._starts:
            self._starts = dict(await self._log.ends(topics.HISTORY.name))
            self._covered = dict(self._starts)
        async with aclosing(self._log.follow(topics.HISTORY.name, dict(self._starts))) as changes:
            async for records in changes:
                if records is None:
                    self._connected = True
                    self._current.set()
                for record in records or ():
                    self._take(record)
                self.changed.notify()

    def _take(self, record: Record) -> None:
        self._starts[record.partition] = record.offset + 1
        self._recent.append(record)
        self._bytes += len(record.value or b"")
        most, most_bytes = self._most
        while len(self._recent) > most or self._bytes > most_bytes:
            oldest = self._recent.popleft()
            self._covered[oldest.partition] = oldest.offset + 1
            self._bytes -= len(oldest.value or b"")

    async def start(self, name: str) -> int:
        """Return a position before which an unknown playbook has no version."""
        source = await self._history.source(name)
        return self._covered.get(source.partition, 0) - 1

    async def after(self, name: str, position: int) -> AsyncGenerator[Playbook, None]:
        """Yield every version of a playbook after ``position``, oldest first, up to the present newest."""
        source = await self._history.source(name)
        while position + 1 < (covered := self._covered.get(source.partition, 0)):
            async with aclosing(self._history.between(name, position + 1, covered)) as versions:
                async for version in versions:
                    yield version
            position = covered - 1
        key = name.encode()
        for record in [record for record in self._recent if record.key == key and record.offset > position]:
            if (decoded := self._version(record)) is not None:
                yield decoded

    def _version(self, record: Record) -> Playbook | None:
        """Return the version in a record, decoded once for all streams."""
        place = record.partition, record.offset
        if place not in self._decoded:
            self._decoded[place] = placed(record)
            while len(self._decoded) > DECODED_KEPT:
                self._decoded.popitem(last=False)
        return self._decoded[place]
