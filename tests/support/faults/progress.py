"""The progress of a run as the topics show it, kept current while faults come and go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from combee.adapters.ports import CombeeError, Log, Record
from combee.core.names import identity
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import AnyTopic

RETRY_S = 0.3
WATCHED: tuple[AnyTopic, ...] = (topics.REFLECTIONS, topics.BATCHES, topics.HISTORY, topics.DEAD_LETTERS)
WRITER = {topics.REFLECTIONS.name: "reflect", topics.BATCHES.name: "shuffle", topics.HISTORY.name: "publish"}


class Progress:
    """Reflections seen, batched, applied, dead-lettered; and when each service wrote."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._changed = asyncio.Condition()
        self.offsets: dict[str, int] = {}
        """Reflection id → its highest offset in ``reflections``."""
        self.playbook_of: dict[str, str] = {}
        self.batch_of: dict[str, tuple[str, int]] = {}
        self.applied: dict[str, int] = {}
        """Playbook → last batch that has a version."""
        self.dead_letters: list[DeadLetter] = []
        self._written: dict[tuple[str, int, int], tuple[str, int]] = {}
        """Place of a record → who wrote it, when (ms)."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Progress"]:
        follows = [asyncio.create_task(self._follow(topic.name)) for topic in WATCHED]
        try:
            yield self
        finally:
            for task in follows:
                task.cancel()
            await asyncio.gather(*follows, return_exceptions=True)

    async def _follow(self, topic: str) -> None:
        while True:
            try:
                async for records in self._log.follow(topic):
                    for record in records or ():
                        self._apply(record)
                    async with self._changed:
                        self._changed.notify_all()
            except CombeeError:
                await asyncio.sleep(RETRY_S)  # the broker may be what is broken; everything is read again

    def _apply(self, record: Record) -> None:
        message = _readable(record)
        place = (record.topic, record.partition, record.offset)
        if record.topic in WRITER:
            self._written[place] = (WRITER[record.topic], record.timestamp_ms)
        match message:
            case Reflection():
                seen = self.offsets.get(message.reflection_id, -1)
                self.offsets[message.reflection_id] = max(seen, record.offset)
                self.playbook_of[message.reflection_id] = message.playbook
            case Batch():
                self.batch_of |= {
                    m.reflection_id: (message.plan.playbook, message.plan.sequence) for m in message.members
                }
            case Playbook():
                self.applied[message.name] = max(self.applied.get(message.name, 0), message.batch_sequence)
            case DeadLetter():
                self.dead_letters.append(message)

    @property
    def dead_lettered(self) -> set[str]:
        """Ids of the reflections that dead letters hold, or will never be made of the traces they hold."""
        return {
            identity.reflection_id(letter.playbook, letter.record_id)
            if letter.origin_topic == topics.TRACES.name
            else letter.record_id
            for letter in self.dead_letters
            if letter.record_id
        }

    def unsettled(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that are neither applied nor dead."""
        dead_lettered = self.dead_lettered
        return [
            reflection_id
            for reflection_id in ids
            if reflection_id not in dead_lettered and not self.is_applied(reflection_id)
        ]

    def is_applied(self, reflection_id: str) -> bool:
        playbook, sequence = self.batch_of.get(reflection_id, ("", 1))
        return sequence <= self.applied.get(playbook, 0)

    @property
    def open_windows(self) -> set[str]:
        """Playbooks with reflections in their windows, and no batch under way that these wait for."""
        waiting = {self.playbook_of[reflection_id] for reflection_id in self.offsets.keys() - self.batch_of}
        under_way = {
            name for name, sequence in self.batch_of.values() if sequence > self.applied.get(name, 0)
        }
        return waiting - under_way

    @property
    def steps(self) -> int:
        """Steps taken: a reflection is seen, is batched, is applied."""
        return len(self.offsets) + len(self.batch_of) + sum(map(self.is_applied, self.batch_of))

    def wrote_after(self, writer: str, at_ms: int) -> float | None:
        """Return after how many seconds a service wrote again."""
        later = [when for who, when in self._written.values() if who == writer and when > at_ms]
        return (min(later) - at_ms) / 1000 if later else None

    async def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until a condition holds; fail at the deadline, and say what was missing."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._change()
        except TimeoutError:
            raise AssertionError(f"{what} after {timeout_s:.0f} s: {self.summary()}") from None

    async def _change(self) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(0.5):
                    await self._changed.wait()
            except TimeoutError:
                return

    def summary(self) -> Mapping[str, object]:
        return {
            "reflections": len(self.offsets),
            "batched": len(self.batch_of),
            "applied": sum(map(self.is_applied, self.batch_of)),
            "versions": self.applied,
            "dead letters": [f"{letter.service}: {letter.reason[:80]}" for letter in self.dead_letters[:3]],
        }


def _readable(record: Record) -> Message | None:
    message: Message | None = next(topic for topic in WATCHED if topic.name == record.topic).read_or_none(
        record
    )
    return message
