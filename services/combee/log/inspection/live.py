"""The live picture, kept current from the topics while somebody looks; it joins no consumer group.

One task per topic follows it. Nobody looks for a while: they end, and what they gathered is let go; of what happens
meanwhile offsets alone are looked at, now and then. Who looks then has the picture read anew.
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
"""All who ask within this time get the same snapshot."""
LOOK_S = 1.0
"""How often offsets and lags are looked at."""
COARSE_S = 10.0
"""How often while nobody looks at the picture: what tells of the last 10 s stays true."""
QUIET_S = 120.0
"""So long after the last look the picture is let go."""
SEEN_S = 5.0
"""So long who looks after that waits for it, at most."""
RETRY_S = 1.0
SURE_S = 2.0
"""A topic that has been followed for so long may be read."""
LOOKED_S = 5.0
"""A look that takes longer is given up."""
MEMORY_MS = 15 * 60 * 1000
"""How far back results of the scan and dead letters are read when somebody begins to look."""
TAIL = 200
"""So many offsets back per partition manifests and versions are read then; of results of the scan so many at most, of
dead letters at least."""
OFFSETS = "offsets"
"""What the picture waits for beside topics."""
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
    """Follows a deployment's topics while somebody looks; ``picture`` is what they say.

    Who has playbooks anyway, and notes them in the picture, leaves them out of ``followed``.
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
        """Since when the log has not answered: what is shown is of then; None: it answers."""
        self._answers = 0
        """Questions of the last look that were answered, with a refusal or otherwise."""
        self._looked_s = 0.0
        self._wanted = asyncio.Event()
        self._lines_known = asyncio.Event()
        self._lines_known.set()  # unless playbooks are still to be read
        self._current = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Work for ever; a broker that is away is waited for, and so is a right that is missing."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_while_wanted())
            tasks.create_task(self._look_often())

    # ---- looking at the picture

    def look(self) -> None:
        """Say that somebody looks: the picture is kept current for a while."""
        self._looked_s = self._clock.monotonic()
        if not self._wanted.is_set():
            self._behind = {OFFSETS, *(topic.name for topic, _ in self._takers)}
            self._wanted.set()

    async def seen(self) -> Picture:
        """Look; return the picture, current unless that takes too long."""
        with suppress(TimeoutError):
            await self.wait_current(SEEN_S)
        return self.picture

    def shared(self) -> Snapshot:
        """Look; return everything at this moment, or a moment ago; made once for all who look at it."""
        self.look()
        now_s, (at_s, known) = self._clock.monotonic(), self._shared
        if known is None or (known.revision != self.picture.revision and now_s - at_s >= SHARED_S):
            known = self.picture.snapshot(self._clock.now_ms())
            self._shared = now_s, known
        return known

    async def wait_current(self, timeout_s: float) -> None:
        """Look; wait until everything that there was then has been read; TimeoutError after ``timeout_s``."""
        self.look()
        async with asyncio.timeout(timeout_s):
            await self._current.wait()

    def acknowledged(self, playbook: str, offset: int, at_ms: int) -> None:
        """Note a reflection that was just written, so that who looks next is told of it."""
        if self._wanted.is_set():
            self.picture.acknowledged(playbook, offset, at_ms)

    async def changed(self, since: int, timeout_s: float) -> int:
        """Look; wait until the revision is above ``since``, ``timeout_s`` at most; return the revision."""
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
                    done, _ = await asyncio.wait((following,), timeout=LOOK_S)
                    for task in done:
                        task.result()
                # At once, so that who looks from here on waits for a picture that is read anew.
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
        """Take records from ``starts`` on, which move along."""
        sure: asyncio.TimerHandle | None = None
        try:
            async with aclosing(self._log.follow(topic.name, dict(starts))) as changes:
                async for records in changes:
                    if sure is None:
                        # Of an empty topic nothing had to be fetched yet: a refusal comes with the first fetch.
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
        """Wait for something no longer: it has been read, or must not be."""
        self._behind.discard(name)
        if name == topics.PLAYBOOKS.name:
            self._lines_known.set()
        if not self._behind and self._wanted.is_set():
            self._current.set()

    def _unreadable(self, name: str, why: str) -> None:
        """Say once why something is not in the picture; an onlooker ends for no lack of a right."""
        if self.picture.unreadable(name, why):
            logger.error("live_unreadable", what=name, error=why)
        self._changed.set()

    async def _starts(self, topic: AnyTopic) -> Mapping[int, int]:
        """Return where there is something to say about now; further back nothing is in flight."""
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
            with suppress(CodecError):  # whoever works with it says so, and keeps it
                message = topic.read(record)
                if topic is topics.HISTORY and isinstance(message, Playbook):
                    self.picture.past(message)
                else:
                    self.picture.take(message, record.timestamp_ms)

        return take

    # ---- looking at offsets

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
                await asyncio.sleep(LOOK_S)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(COARSE_S):
                        await self._wanted.wait()

    async def _look(self, *, lags: bool) -> None:
        """Look at the ends of topics, and at ``lags``: for these a record of each partition has to be read."""
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
            raise TransientError("the brokers answer nothing")

    async def _allowed(self, name: str, look: Awaitable[T]) -> T | None:
        """Return what was looked up; None if that is not allowed."""
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
