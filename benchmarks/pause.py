"""A paused playbook's backlog: how long reflect and shuffle take to work on others after a restart, and to resume.

Services run in this process with a model that answers at once: what is measured is reading, not the model.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

from benchmarks.cluster import CHUNK, empty_log, lessons
from benchmarks.rows import Row, row
from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import TopicPartition
from combee.assembly import wiring
from combee.log.history import partition_of
from combee.process.settings.loading import load_settings
from combee.reflect.handler import ReflectHandler
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import PauseOrder, Playbook
from combee_schemas.records import Record
from combee_schemas.topics import AnyTopic, key_of
from combee_schemas.trace import Trace

TIMEOUT_S = 1_800.0
COUNTS = (1_000, 10_000)
PAUSED = "paused"
TRAJECTORY = "I looked the order up, read its date and answered. " * 20
WITHIN_S = 600.0
LIMIT_S = 30.0
"""A restart is meant to be over within the time in which Kafka notices a dead process and a fleet's readers retry."""


class InstantModel:
    """The ``LanguageModel`` port: one lesson, at once."""

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:  # noqa: ARG002 - the port's
        return Reply(body={"key_insight": "Ask for the order number first."}, usage=Usage(calls=1))

    def drain(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return seconds for each length of the backlog."""
    rows: list[Row] = []
    for count in (0, *COUNTS):
        async with empty_log(bootstrap_servers) as log:
            rows += await _measured(log, count, runs)
    return rows


async def _measured(log: KafkaLog, count: int, runs: int) -> list[Row]:
    other, *fresh = await _neighbours(log, runs + 1)
    await _pause(log, until_ms=SystemClock().now_ms() + DAY_MS)
    async with _reflect(log):
        await _send(log, PAUSED, count)
        await _send(log, other, max(1, count // 10))
        await _reflected(log, other, max(1, count // 10))
    traces = [await _restarted(log, other, n) for n in range(runs)]
    named = f"{count:,} traces wait"
    rows = [row(f"reflect: restart to another playbook's reflection, {named}", traces, "s", LIMIT_S)]
    if count:
        anew = []
        for n in range(min(runs, 3)):
            await _forget_notes(log)
            anew.append(await _restarted(log, other, runs + n))
        rows.append(row(f"the same without the note on the offset, {named}", anew, "s"))
    for start in range(0, count, CHUNK):
        await log.produce(*map(topics.REFLECTIONS.record, lessons(PAUSED, count)[start : start + CHUNK]))
    batches = [await _cut(log, name) for name in fresh]
    rows.append(
        row(
            f"shuffle: restart to another playbook's batch, {count:,} reflections wait", batches, "s", LIMIT_S
        )
    )
    if count:
        began = time.monotonic()
        async with _reflect(log):
            await _pause(log, version=2)
            await _reflected(log, PAUSED, count)
            rows.append(
                row(
                    f"reflect: resume until all have their reflection, {named}",
                    [time.monotonic() - began],
                    "s",
                )
            )
    return rows


# ---- the services


@asynccontextmanager
async def _reflect(log: KafkaLog) -> AsyncIterator[None]:
    settings = load_settings(model="simulated").batch
    handler = ReflectHandler(log, InstantModel(), SystemClock(), settings)
    stop = asyncio.Event()
    task = asyncio.create_task(wiring.run_handler(log, handler, SystemClock(), stop, drain_s=5.0))
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def _shuffle(log: KafkaLog) -> AsyncIterator[None]:
    settings = load_settings(model="simulated", batch_size=1, max_inflight_batches=16).batch
    shuffler = Shuffler(log, SystemClock(), settings)
    partitions = range(await log.partitions(topics.REFLECTIONS.name))
    delivery = wiring.delivery_without_faust(log, shuffler, partitions, look_s=0.5)
    task = asyncio.create_task(wiring.run_shuffle(shuffler, delivery))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await shuffler.close()


# ---- what happens to them


async def _pause(log: KafkaLog, version: int = 1, until_ms: int | None = None) -> None:
    """Write the snapshot that publish makes of a pause; without a time of its end."""
    order = PauseOrder(since_ms=0, until_ms=until_ms) if until_ms else None
    await log.produce(topics.PLAYBOOKS.record(Playbook(name=PAUSED, version=version, paused=order)))


async def _neighbours(log: KafkaLog, count: int) -> list[str]:
    """Return other playbooks on the partition of the paused one: there a backlog matters."""
    home = (await partition_of(log, topics.REFLECTIONS, PAUSED)).partition
    names: list[str] = []
    for number in itertools.count():
        name = f"other-{number}"
        if (await partition_of(log, topics.REFLECTIONS, name)).partition == home:
            names.append(name)
        if len(names) == count:
            break
    return names


async def _send(log: KafkaLog, playbook: str, count: int, first: int = 0) -> None:
    sent = [
        topics.TRACES.record(
            Trace(
                trace_id=f"{playbook}/{number}",
                playbook=playbook,
                task="Is order 17 refundable?",
                trajectory=TRAJECTORY,
                answer="yes",
                feedback="Wrong: it is too old.",
                success=False,
            )
        )
        for number in range(first, first + count)
    ]
    for start in range(0, count, CHUNK):
        await log.produce(*sent[start : start + CHUNK])


async def _appeared(log: KafkaLog, topic: AnyTopic, wanted: Callable[[Record], bool], count: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        async for records in log.follow(topic.name):
            count -= sum(map(wanted, records or ()))
            if count <= 0:
                return


async def _reflected(log: KafkaLog, playbook: str, count: int) -> None:
    """Wait until so many traces of a playbook have their reflection."""

    def is_on_a_trace(record: Record) -> bool:
        reflection = topics.REFLECTIONS.read_or_none(record) if key_of(record) == playbook else None
        return reflection is not None and bool(reflection.trace_id)

    await _appeared(log, topics.REFLECTIONS, is_on_a_trace, count)


async def _restarted(log: KafkaLog, other: str, number: int) -> float:
    name = f"{other}/new-{number}/{uuid4().hex[:6]}"
    began = time.monotonic()
    async with _reflect(log):
        trace = Trace(trace_id=name, playbook=other, task="t", trajectory="x", answer="no", success=False)
        await log.produce(topics.TRACES.record(trace))
        await _appeared(log, topics.REFLECTIONS, lambda record: name.encode() in (record.value or b""), 1)
        return time.monotonic() - began


async def _forget_notes(log: KafkaLog) -> None:
    """Commit the same offsets without notes, as a restored archive has them."""
    assigned = asyncio.Event()

    async def on_assigned(sources: frozenset[TopicPartition]) -> None:
        if sources:
            assigned.set()

    consumer = await log.consumer("reflect", [topics.TRACES.name], on_assigned)
    try:
        while not assigned.is_set():
            await consumer.poll(0.2)
        count = await log.partitions(topics.TRACES.name)
        sources = [TopicPartition(topic=topics.TRACES.name, partition=number) for number in range(count)]
        await consumer.commit({source: await consumer.start_offset(source) for source in sources})
    finally:
        await consumer.close()


async def _cut(log: KafkaLog, name: str) -> float:
    began = time.monotonic()
    async with _shuffle(log):
        await log.produce(*map(topics.REFLECTIONS.record, lessons(name, 1)))
        await _appeared(log, topics.BATCHES, lambda record: f"{name}/0".encode() in (record.value or b""), 1)
        return time.monotonic() - began
