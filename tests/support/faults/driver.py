"""Publishes traces and reflections of several playbooks, and keeps its own record of what was acknowledged."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from uuid import uuid4

from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import FencedError, Outgoing, TransientError
from combee.core.names import identity
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from combee_schemas.trace import Trace
from combee_sim.family.family import questions
from combee_sim.family.insights import insight
from support.faults.checker import Place

PLAYBOOKS = ("faults/one", "faults/two", "faults/three")
CHUNK = 12
RETRY_S = 0.3
PUBLISH_S = 90.0
TRACES_OF_THREE = 2
"""Of three items, so many are traces; the rest are reflections that agents publish themselves."""

Item = Trace | Reflection


def items(count: int, seed: int) -> list[Item]:
    """Return seeded items, the playbooks in turn; every id is used once."""
    rng = Random(f"items {seed}")
    drawn = questions(rng)
    return [_item(number, seed, PLAYBOOKS[number % len(PLAYBOOKS)], next(drawn)) for number in range(count)]


def _item(number: int, seed: int, playbook: str, question: object) -> Item:
    text, target = str(question.text), str(question.target)  # type: ignore[attr-defined]
    name = f"{seed}-{number}"
    if number // len(PLAYBOOKS) % 3 < TRACES_OF_THREE:
        return Trace(trace_id=name, playbook=playbook, task=text, answer="0", target=target)
    return Reflection(reflection_id=f"r-{name}", playbook=playbook, key_insight=insight(text, "0", target))


def learned_id(item: Item) -> str:
    """Return the id under which an item ends in a batch."""
    return (
        item.reflection_id
        if isinstance(item, Reflection)
        else identity.reflection_id(item.playbook, item.trace_id)
    )


class Driver:
    """One producer, as an agent has it: what it is told is safe, it writes down; what fails, it sends again."""

    def __init__(self, connect: Callable[[], KafkaLog]) -> None:
        self._connect = connect
        self._log = connect()
        self.acked: dict[str, Place] = {}
        self.traces = 0

    async def publish(self, given: Sequence[Item]) -> None:
        """Publish in chunks, each until it is acknowledged."""
        async with asyncio.timeout(PUBLISH_S):
            for start in range(0, len(given), CHUNK):
                chunk = given[start : start + CHUNK]
                await self.publish_as(chunk, [outgoing(item) for item in chunk])

    async def publish_as(self, given: Sequence[Item], records: Sequence[Outgoing]) -> None:
        """Publish items as these records, until they are acknowledged."""
        places = await self.send(records)
        self.acked |= dict(zip(map(learned_id, given), places, strict=True))
        self.traces += sum(isinstance(item, Trace) for item in given)

    async def send(self, records: Sequence[Outgoing]) -> list[Place]:
        """Write records, again and again until they are acknowledged; return where they are."""
        while True:
            try:
                return await self._send(records)
            except (TransientError, FencedError):
                # A new producer: the old one may be past its last retry for good.
                await self.close()
                await asyncio.sleep(RETRY_S)
                self._log = self._connect()

    async def _send(self, records: Sequence[Outgoing]) -> list[Place]:
        partitions = [await self._partition(record) for record in records]
        placed = [
            Outgoing(topic=r.topic, key=r.key, value=r.value, headers=r.headers, partition=at)
            for r, at in zip(records, partitions, strict=True)
        ]
        offsets = await self._log.produce(*placed)
        return [
            Place(topic=record.topic, partition=at, offset=offset)
            for record, at, offset in zip(records, partitions, offsets, strict=True)
        ]

    async def _partition(self, record: Outgoing) -> int:
        if record.partition is not None:
            return record.partition
        return await self._log.partition_for(record.topic, record.key or b"")

    async def flush(self, through: int) -> None:
        """Have every window closed up to an offset."""
        commands = [
            Command(command_id=f"flush-{uuid4().hex}", playbook=name, kind="flush", through_offset=through)
            for name in PLAYBOOKS
        ]
        await self.send([*map(topics.COMMANDS.record, commands)])

    async def close(self) -> None:
        try:
            async with asyncio.timeout(5):
                await self._log.close()
        except (TransientError, TimeoutError):
            return
