"""Follow one playbook's reflections through the topics: published, batched, applied or dead-lettered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeVar

import structlog

from combee.adapters.ports import Clock, FatalError, Log, Record, TransientError
from combee.core.log.dead_letters.subject import reflection_of
from combee.core.log.fates import Fate, fate_of
from combee.core.names.identity import claimed_identities, fingerprint, owner_of
from combee.core.playbook.pausing import pause_of
from combee.core.playbook.spend import UNCAPPED, Pause, SpendPolicy, pause
from combee.log.history import partition_of
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import AnyTopic, Topic

logger = structlog.get_logger()
RETRY_S = 1.0
GAP = 10_000
"""Number of unwanted offsets above which a gap is skipped by a second read."""
PAUSED_S = 10.0
"""Seconds without progress before a pause is believed: services may have a higher cap and continue."""
M = TypeVar("M", bound=Message)


class StalledError(TransientError):
    """Nothing moved for too long; published items are safe and continue when the services do."""


class PausedError(TransientError):
    """A spend cap or a person holds the playbook back; published items are safe and continue when that ends."""


class Tracker:
    """The state of one playbook's items in the log, kept current while the context is open."""

    def __init__(
        self,
        log: Log,
        playbook: str,
        clock: Clock,
        spending: SpendPolicy = UNCAPPED,
        *,
        unvouched: Mapping[str, str] = MappingProxyType({}),
        unproven: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Follow a playbook.

        ``unvouched``: identities by id of reflections on signed traces for which reflect cannot vouch. ``unproven``:
        the same for everything signed, until a proof is seen to be checked: from then on a reflection without its
        proof is another reflection.
        """
        self._log = log
        self._unvouched = unvouched
        self._unproven = unproven
        self.name = playbook
        self._clock = clock
        self._spending = spending
        self._changed = asyncio.Condition()
        self.reflections: dict[str, tuple[int, Reflection]] = {}
        """By id: offset and body of the reflections read since the start."""
        self.batches: dict[int, Batch] = {}
        self.batch_of: dict[str, int] = {}
        """Reflection id → sequence of its batch."""
        self.versions: dict[int, Playbook] = {}
        """Versions made by batches, by batch sequence, without their entries."""
        self.newest: Playbook | None = None
        self._attempts: dict[str, int] = {}
        """Reflection id → its attempt in that batch."""
        self._failed: dict[str, int] = {}
        """By reflection id: the number of failed attempts in its dead letter; 0 if its trace has one."""
        self.moved_at = clock.monotonic()
        self._fatal: FatalError | None = None
        """Why a topic is no longer followed."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Tracker"]:
        """Follow the topics while the context is open; earlier batches are known on entry."""
        starts = {
            # Reflections that wait in a window are at or above shuffle's committed offset.
            topics.REFLECTIONS.name: {
                **await self._log.beginnings(topics.REFLECTIONS.name),
                **await self._log.committed("shuffle", topics.REFLECTIONS.name),
            },
            topics.DEAD_LETTERS.name: await self._log.ends(topics.DEAD_LETTERS.name),
        }
        current = [asyncio.Event() for _ in range(4)]
        follows = [
            asyncio.create_task(self._follow(topic, starts.get(topic.name), take, event))
            for (topic, take), event in zip(self._takes(), current, strict=True)
        ]
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(event.wait() for event in current))
            self._refuse_fatal()
            yield self
        finally:
            for task in follows:
                task.cancel()
            await asyncio.gather(*follows, return_exceptions=True)

    def _takes(self) -> tuple[tuple[AnyTopic, Callable[[Record], None]], ...]:
        return (
            (topics.REFLECTIONS, self._reflection),
            (topics.BATCHES, self._batch),
            (topics.HISTORY, self._version),
            (topics.DEAD_LETTERS, self._letter),
        )

    async def _follow(
        self,
        topic: AnyTopic,
        starts: Mapping[int, int] | None,
        take: Callable[[Record], None],
        current: asyncio.Event,
    ) -> None:
        while True:
            try:
                async for records in self._log.follow(topic.name, starts):
                    if records is None:
                        current.set()
                    for record in records or ():
                        take(record)
                    async with self._changed:
                        self._changed.notify_all()
            except TransientError as error:
                logger.warning("log_unavailable", topic=topic.name, error=str(error))
                await asyncio.sleep(RETRY_S)
            except FatalError as error:
                self._fatal = error
                current.set()
                return

    def _refuse_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    def _reflection(self, record: Record) -> None:
        reflection = self._mine(record, topics.REFLECTIONS)
        if reflection is not None:
            own_id = claimed_identities(reflection.reflection_id, reflection.source, record.headers)[0]
            self.reflections.setdefault(self.known_as(own_id), (record.offset, reflection))

    def _batch(self, record: Record) -> None:
        batch = self._mine(record, topics.BATCHES)
        if batch is not None:
            sequence = batch.plan.sequence
            self.batches[sequence] = batch
            if self._unproven and any(owner_of(member.source) for member in batch.members):
                self._unproven = {}
            for member in batch.members:
                own_id = self.known_as(member.reflection_id)
                self.batch_of[own_id], self._attempts[own_id] = sequence, member.attempt

    def known_as(self, reflection_id: str) -> str:
        """Return the id of a reflection in this tracker."""
        return self._unvouched.get(reflection_id) or self._unproven.get(reflection_id, reflection_id)

    def _version(self, record: Record) -> None:
        version = self._mine(record, topics.HISTORY)
        if version is None:
            return
        self.newest = version
        if version.origin == "batch":
            self.versions[version.batch_sequence] = version.model_copy(update={"entries": ()})

    def _letter(self, record: Record) -> None:
        letter = topics.DEAD_LETTERS.read_or_none(record)
        name, reflection_id = (letter and reflection_of(letter)) or ("", "")
        if letter is not None and name == self.name:
            self.moved_at = self._clock.monotonic()
            is_named = letter.record_id and letter.origin_topic == topics.REFLECTIONS.name
            self._failed[self.known_as(reflection_id)] = letter.attempts if is_named else 0

    def _mine(self, record: Record, topic: Topic[M]) -> M | None:
        message = next(topic.under(self.name, [record]), None)
        if message is not None:
            self.moved_at = self._clock.monotonic()
        return message

    def fate(self, reflection_id: str) -> Fate:
        """Return the fate of the reflection with this id."""
        failed, attempt = self._failed.get(reflection_id, -1), self._attempts.get(reflection_id, -1)
        return fate_of(
            letter=Fate.DEAD_LETTERED if failed > attempt else None,
            batched=reflection_id in self.batch_of,
            applied=self.batch_of.get(reflection_id) in self.versions,
        )

    def is_applied(self, reflection_id: str) -> bool:
        """Return whether a version contains the reflection of this id."""
        return self.fate(reflection_id) == Fate.APPLIED

    def is_reflected(self, reflection_id: str) -> bool:
        """Return whether the reflection of this id is in the log."""
        return reflection_id in self.reflections or reflection_id in self.batch_of

    async def counted(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the known fingerprints of the reflections that count under these ids."""
        places = {
            self.known_as(member.reflection_id): member.offset
            for batch in self.batches.values()
            for member in batch.members
        }
        fingerprints: dict[str, str] = {}
        missing: dict[int, str] = {}
        for reflection_id in ids:
            offset, body = self.reflections.get(reflection_id, (-1, None))
            if reflection_id in places and places[reflection_id] != offset:
                missing[places[reflection_id]] = reflection_id
            elif body is not None:
                fingerprints[reflection_id] = fingerprint(body)
        source = await partition_of(self._log, topics.REFLECTIONS, self.name)
        for near in _runs(sorted(missing)):
            for offset, record in (await self._log.read_at(source, near)).items():
                body = topics.REFLECTIONS.read_or_none(record)
                if body is not None:
                    fingerprints[missing[offset]] = fingerprint(body)
        return fingerprints

    def unsettled(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that are neither applied nor dead-lettered."""
        return [reflection_id for reflection_id in ids if self.fate(reflection_id).is_pending]

    def _pause(self, *, heeds_cap: bool) -> Pause | None:
        """Return the pause that holds the playbook back, or None; the services may have a newer cap."""
        if self.newest is None:
            return None
        now_ms = self._clock.now_ms()
        if ordered := pause_of({self.name: self.newest.paused}, now_ms):
            return ordered
        if not heeds_cap or max(self.batches, default=0) > self.newest.batch_sequence:
            return None
        size = self.batches[max(self.batches)].plan.batch_size if self.batches else 1
        spend = self.newest.spend
        policy = self._spending.or_recorded(spend)
        return pause(spend, policy, in_flight=0, batch_size=size, now_ms=now_ms)

    def _complain(self, idle_s: float, stall_s: float, *, heeds_cap: bool) -> None:
        self._refuse_fatal()
        if idle_s >= min(PAUSED_S, stall_s) and (reached := self._pause(heeds_cap=heeds_cap)):
            until = datetime.fromtimestamp(reached.until_ms / 1000, tz=UTC)
            raise PausedError(
                f"{self.name} is paused until {until:%Y-%m-%d %H:%M} UTC: {reached.reason}. Published items"
                f" are safe and continue then, or at once with {reached.remedy}; a flush overrides no pause"
            )
        if idle_s >= stall_s:
            raise StalledError(f"nothing moved for {stall_s:.0f} s")

    async def wait(
        self,
        done: Callable[[], bool],
        *,
        stall_s: float,
        on_change: Callable[[], None] = lambda: None,
        heeds_cap: bool = False,
    ) -> None:
        """Wait until ``done``; do not wait for a paused playbook, with ``heeds_cap`` not for one at its cap.

        Raises
        ------
        FatalError
            If a topic can no longer be followed.
        StalledError
            If nothing about this playbook moved for ``stall_s``.
        PausedError
            If a spend cap, or a person's order, is why.
        """
        while not done():
            on_change()
            idle_s = self._clock.monotonic() - self.moved_at
            self._complain(idle_s, stall_s, heeds_cap=heeds_cap)
            left = stall_s - idle_s
            await self.change(min(left, 1.0))
        on_change()

    async def change(self, timeout_s: float = 1.0) -> None:
        """Wait until something was read, ``timeout_s`` at most."""
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()


def _runs(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield ascending offsets in runs without a wide gap."""
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] - offsets[at - 1] > GAP:
            yield offsets[start:at]
            start = at
