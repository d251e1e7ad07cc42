"""The live picture, kept current from the topics while it has viewers; it joins no consumer group.

One task follows each topic. After a while without viewers the tasks end and the picture is dropped; then only offsets
are checked now and then. The next viewer makes the picture be read anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

import structlog

from combee.adapters.ports import Clock, FatalError, Log, Record, TransientError
from combee.core.formats.files import is_name
from combee.core.log.live.picture import Picture
from combee.core.log.live.values import Snapshot
from combee.core.names.tenants import Tenants
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.log.inspection.lag import INPUTS, Lag, Lags
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.playbook import Playbook
from combee_schemas.topics import AnyTopic, key_of

logger = structlog.get_logger()
T = TypeVar("T")
Take = Callable[[Record], None]

SHARED_S = 0.3
"""Seconds for which all viewers get the same snapshot."""
LOOK_UP_EVERY_S = 1.0
"""Seconds between look-ups of offsets and lags."""
COARSE_S = 10.0
"""Seconds between look-ups without viewers; rates over the last 10 s stay correct."""
QUIET_S = 120.0
"""Seconds after the last viewer until the picture is dropped."""
SEEN_S = 5.0
"""Maximum seconds that the next viewer waits for it."""
RETRY_S = 1.0
SURE_S = 2.0
"""Seconds of following a topic after which this client counts as allowed to read it."""
LOOKED_S = 5.0
"""Time limit of a look-up of offsets, in seconds."""
MEMORY_MS = 15 * 60 * 1000
"""How far back results of the scan and dead letters are read for a first viewer."""
TAIL = 200
"""Offsets per partition read back for a first viewer: a maximum for scan results, a minimum for dead letters."""
OFFSETS = "offsets"
"""The name of the offsets among the parts that the picture waits for."""
STAGES: tuple[AnyTopic, ...] = (
    topics.TRACES,
    topics.REFLECTIONS,
    topics.BATCHES,
    *topics.SCAN,
    topics.UPDATES,
    topics.PLAYBOOKS,
    topics.DEAD_LETTERS,
)
FOLLOWED: tuple[AnyTopic, ...] = (
    topics.BATCHES,
    *topics.SCAN[1:],
    topics.UPDATES,
    topics.PLAYBOOKS,
    topics.HISTORY,
    topics.BATCH_SIZES,
    topics.DEAD_LETTERS,
)


class Live:
    """Follows a deployment's topics while there are viewers; ``picture`` is the result.

    A caller that has playbooks anyway, and adds them to the picture, leaves them out of ``followed``.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        *,
        batch_size: int,
        spending: SpendPolicy = UNCAPPED,
        tenants: Tenants | None = None,
        followed: Sequence[AnyTopic] = FOLLOWED,
    ) -> None:
        self.picture = Picture(batch_size=batch_size, spending=spending, tenants=tenants)
        self._log = log
        self._clock = clock
        self._lags = {group: Lags(log, group) for group in INPUTS}
        self._takers: list[tuple[AnyTopic, Take]] = [
            (topics.REFLECTIONS, self._arrived),
            *((topic, self._taker(topic)) for topic in followed),
        ]
        self._behind: set[str] = set()
        self._shared: tuple[float, Snapshot | None] = (0.0, None)
        self.unanswered_since_ms: int | None = None
        """Time since which the log has not answered, and the picture is old; None: it answers."""
        self._answers = 0
        """Number of requests of the last look-up with an answer, including refusals."""
        self._looked_s = 0.0
        self._wanted = asyncio.Event()
        self._lines_known = asyncio.Event()
        self._lines_known.set()  # unless playbooks are still being read
        self._current = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run for ever; wait for a broker that is away and for a missing right."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_while_wanted())
            tasks.create_task(self._look_often())

    # ---- looking at the picture

    def look(self) -> None:
        """Register a viewer: the picture is kept current for a while."""
        self._looked_s = self._clock.monotonic()
        if not self._wanted.is_set():
            self._behind = {OFFSETS, *(topic.name for topic, _ in self._takers)}
            self._wanted.set()

    async def seen(self) -> Picture:
        """Register a viewer; return the picture, current unless that takes too long."""
        with suppress(TimeoutError):
            await self.wait_current(SEEN_S)
        return self.picture

    def shared(self) -> Snapshot:
        """Register a viewer; return a snapshot of the present, shared by all viewers for a moment."""
        self.look()
        now_s, (at_s, known) = self._clock.monotonic(), self._shared
        if known is None or (known.revision != self.picture.revision and now_s - at_s >= SHARED_S):
            known = self.picture.snapshot(self._clock.now_ms())
            self._shared = now_s, known
        return known

    async def wait_current(self, timeout_s: float) -> None:
        """Register a viewer; wait until everything present has been read; TimeoutError after ``timeout_s``."""
        self.look()
        async with asyncio.timeout(timeout_s):
            await self._current.wait()

    def acknowledged(self, playbook: str, offset: int, at_ms: int) -> None:
        """Record a reflection that was just written, so that the next viewer sees it."""
        if self._wanted.is_set():
            self.picture.acknowledged(playbook, offset, at_ms)

    async def changed(self, since: int, timeout_s: float) -> int:
        """Register a viewer; wait until the revision is above ``since``, ``timeout_s`` at most; return it."""
        self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.picture.revision <= since:
                    self._changed.clear()
                    await self._changed.wait()
        return self.picture.revision

    # ---- following

    async def _follow_while_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            following = asyncio.create_task(self._follow_all())
            try:
                while self._clock.monotonic() - self._looked_s < QUIET_S:
                    done, _ = await asyncio.wait((following,), timeout=LOOK_UP_EVERY_S)
                    for task in done:
                        task.result()
                # At once, so that later viewers wait for a picture that is read anew.
                self._wanted.clear()
                self._current.clear()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            self.picture.forget()

    async def _follow_all(self) -> None:
        if topics.PLAYBOOKS.name in self._behind:
            self._lines_known.clear()
        async with asyncio.TaskGroup() as tasks:
            for topic, take in self._takers:
                tasks.create_task(self._follow(topic, take))

    async def _follow(self, topic: AnyTopic, take: Take) -> None:
        if topic is topics.REFLECTIONS:  # they wait for branches, too
            await self._lines_known.wait()
        starts: dict[int, int] | None = None
        while True:
            try:
                starts = dict(await self._starts(topic)) if starts is None else starts
                await self._read_on(topic, starts, take)
            except TransientError as error:
                logger.warning("log_unavailable", topic=topic.name, error=str(error))
            except FatalError as error:
                self._unreadable(topic.name, str(error))
                self._read(topic.name)
            await asyncio.sleep(RETRY_S)

    async def _read_on(self, topic: AnyTopic, starts: dict[int, int], take: Take) -> None:
        """Read records from ``starts`` on; ``starts`` advances with them."""
        sure: asyncio.TimerHandle | None = None
        try:
            async with aclosing(self._log.follow(topic.name, dict(starts))) as changes:
                async for records in changes:
                    if sure is None:
                        # An empty topic needs no fetch, and a refusal only comes with the first fetch.
                        readable = partial(self.picture.readable, topic.name)
                        sure = asyncio.get_running_loop().call_later(SURE_S, readable)
                    for record in records or ():
                        take(record)
                        starts[record.partition] = record.offset + 1
                    if records is None:
                        self._read(topic.name)
                    self._changed.set()
        finally:
            if sure is not None:
                sure.cancel()

    def _read(self, name: str) -> None:
        """Stop waiting for a topic: it has been read, or this client may not read it."""
        self._behind.discard(name)
        if name == topics.PLAYBOOKS.name:
            self._lines_known.set()
        if not self._behind and self._wanted.is_set():
            self._current.set()

    def _unreadable(self, name: str, why: str) -> None:
        """Log once why a topic is missing in the picture; a viewer does not fail for a missing right."""
        if self.picture.unreadable(name, why):
            logger.error("live_unreadable", what=name, error=why)
        self._changed.set()

    async def _starts(self, topic: AnyTopic) -> Mapping[int, int]:
        """Return the offsets from which records matter now; before them nothing is in flight."""
        first = await self._log.beginnings(topic.name)
        if topic.cleanup == "compact":
            return first
        if topic is topics.REFLECTIONS:
            return {**first, **await self._log.committed("shuffle", topic.name)}
        ends = await self._log.ends(topic.name)
        tail = {partition: max(first[partition], end - TAIL) for partition, end in ends.items()}
        if topic in (topics.BATCHES, topics.HISTORY, topics.UPDATES):
            return tail
        recent = await self._log.offsets_at(topic.name, self._clock.now_ms() - MEMORY_MS)
        bound = min if topic is topics.DEAD_LETTERS else max
        return {partition: bound(start, recent[partition]) for partition, start in tail.items()}

    def _arrived(self, record: Record) -> None:
        name = key_of(record)
        if is_name(name):
            self.picture.arrived(name, record.offset, record.timestamp_ms)

    def _taker(self, topic: AnyTopic) -> Take:
        def take(record: Record) -> None:
            if record.value is None:
                if topic is topics.PLAYBOOKS:
                    self.picture.deleted(key_of(record))
                return
            with suppress(CodecError):  # a service that works on it reports that, and keeps it
                is_decision = topic is topics.DEAD_LETTERS and topics.RESOLUTIONS.read_or_none(record)
                message = is_decision or topic.read(record)
                if topic is topics.HISTORY and isinstance(message, Playbook):
                    self.picture.past(message)
                else:
                    self.picture.take(message, record.timestamp_ms, f"{record.partition}-{record.offset}")

        return take

    # ---- look-ups of offsets

    async def _look_often(self) -> None:
        while True:
            began_ms, wanted = self._clock.now_ms(), self._wanted.is_set()
            try:
                await self._look(lags=wanted)
                if wanted:
                    self._read(OFFSETS)
                self.unanswered_since_ms = None
            except TransientError as error:
                self.unanswered_since_ms = self.unanswered_since_ms or began_ms
                logger.warning("log_unavailable", error=str(error))
            self._changed.set()
            if self._wanted.is_set():
                await asyncio.sleep(LOOK_UP_EVERY_S)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(COARSE_S):
                        await self._wanted.wait()

    async def _look(self, *, lags: bool) -> None:
        """Look up the ends of topics, and with ``lags`` the lags, which need one record of each partition."""
        by_topic: dict[str, Lag] = {}
        self._answers = 0
        for group, lag_of_group in self._lags.items() if lags else ():
            by_topic |= await self._allowed(f"lag of {group}", lag_of_group.look()) or {}
        for topic in STAGES:
            ends = await self._allowed(f"offsets of {topic.name}", self._log.ends(topic.name))
            if ends is None:
                continue
            lag = by_topic.get(topic.name)
            self.picture.stage(
                topic.name,
                sum(ends.values()),
                self._clock.now_ms(),
                lag=lag.records if lag else None,
                oldest_ms=lag.oldest_ms if lag else None,
            )
        if not self._answers:
            raise TransientError("no broker answers")

    async def _allowed(self, name: str, look: Awaitable[T]) -> T | None:
        """Return the result of a look-up; None if it is not allowed."""
        try:
            async with asyncio.timeout(LOOKED_S):
                result = await look
        except FatalError as error:
            self._answers += 1
            self._unreadable(name, str(error))
            return None
        except TimeoutError:
            self._unreadable(name, f"no answer within {LOOKED_S:.0f} s")
            return None
        self._answers += 1
        self.picture.readable(name)
        return result
