"""Overhead at n = 40, 1 s a call: last ack to playbook at a subscriber, beside a tree without Kafka."""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

from benchmarks.rows import Row, row
from combee import compose
from combee.adapters.kafka import KafkaLog
from combee.cli.stack import StackOptions, model_environment, stack
from combee.core import operations, plan
from combee.core.methods import ace
from combee.core.playbook import empty
from combee.ports import LanguageModel, Outgoing
from combee.runtime.clock import SystemClock
from combee.runtime.settings import Settings
from combee_schemas import topics
from combee_schemas.batch import Member
from combee_schemas.codec import decode, encode
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation

REFLECTIONS = 40
LATENCY_S = 1.0
LEVELS = 2
IDEAL_S = LEVELS * LATENCY_S
RUN_TIMEOUT_S = 60.0


def reflections(playbook: str) -> list[Reflection]:
    """Return one batch of distinct lessons."""
    return [
        Reflection(
            reflection_id=f"r{n}",
            playbook=playbook,
            key_insight=f"When asked for Metric {n}, answer in percent with {n % 4} decimals.",
        )
        for n in range(REFLECTIONS)
    ]


async def through_kafka(log: KafkaLog, updates: "asyncio.Queue[Playbook]", name: str) -> float:
    """Return seconds from the last ack to the version at a subscriber."""
    clock = SystemClock()
    outgoing = [
        Outgoing(topic=topics.REFLECTIONS.name, key=name.encode(), value=encode(one))
        for one in reflections(name)
    ]
    await log.produce(*outgoing)
    acked = clock.monotonic()
    async with asyncio.timeout(RUN_TIMEOUT_S):
        while (await updates.get()).name != name:
            pass
    return clock.monotonic() - acked


async def in_process(model: LanguageModel, name: str) -> float:
    """Return seconds of the same tree as plain coroutines, without a log."""
    clock = SystemClock()
    began = clock.monotonic()
    items = reflections(name)
    members = [Member(offset=n, reflection_id=one.reflection_id) for n, one in enumerate(items)]
    policy = plan.PlanPolicy(copies=2, fan_in=32, max_levels=4, group_bytes=700 * 1024)
    batch = plan.plan_batch(
        name,
        1,
        members,
        [200] * len(members),
        policy=policy,
        base=plan.Base(version=0, sequence=0, history_offset=-1),
        reason="size",
        batch_size=len(members),
        through_offset=len(members) - 1,
    )
    base = empty(name)

    async def propose(group: Sequence[Member]) -> list[Operation]:
        chosen = [items[member.offset] for member in group]
        reply = await model.ask(ace.aggregate_prompt(base, chosen))
        sources = [(one.reflection_id,) for one in chosen]
        return list(operations.read_operations(reply.body, sources).operations)

    found = await asyncio.gather(*(propose(group) for group in plan.deal_batch(batch)))
    await model.ask(ace.combine_prompt(base, [one for some in found for one in some]))
    return clock.monotonic() - began


async def _subscribe(log: KafkaLog, updates: "asyncio.Queue[Playbook]", ready: asyncio.Event) -> None:
    async with aclosing(log.follow(topics.PLAYBOOKS.name)) as changes:
        async for records in changes:
            if records is None:
                ready.set()
            for record in records or ():
                updates.put_nowait(decode(record.value, Playbook))


async def measure(settings: Settings, bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows; both ways take turns against the same simulated model."""
    with tempfile.TemporaryDirectory(prefix="combee-bench-") as folder:
        options = StackOptions(
            settings=settings,
            bootstrap_servers=bootstrap_servers,
            folder=Path(folder),
            simulated=True,
            sim_arguments=("--latency", str(LATENCY_S)),
            roles=("control", "publish", "scan", "shuffle"),
        )
        connected = compose.connection(settings, bootstrap_servers)
        await compose.create_topics(settings, connected)
        log = KafkaLog(connected)
        updates: asyncio.Queue[Playbook] = asyncio.Queue()
        ready = asyncio.Event()
        async with stack(options) as supervisor:
            where = model_environment(supervisor)
            model = compose.language_model(settings.model.model_copy(update=where))
            subscriber = asyncio.create_task(_subscribe(log, updates, ready))
            async with asyncio.timeout(RUN_TIMEOUT_S):
                await ready.wait()
            await through_kafka(log, updates, f"warm/{uuid4().hex[:6]}")
            await in_process(model, "warm")
            kafka, plain = [], []
            for number in range(runs):
                kafka.append(await through_kafka(log, updates, f"run{number}/{uuid4().hex[:6]}"))
                plain.append(await in_process(model, f"run{number}"))
            subscriber.cancel()
            await model.close()
        await log.close()
    return [
        row("overhead_n40_L1s", [one / IDEAL_S for one in kafka], "× ideal", 1.10),
        row("gather_n40_L1s", [one / IDEAL_S for one in plain], "× ideal"),
        row("kafka_vs_gather_n40_L1s", [a / b for a, b in zip(kafka, plain, strict=True)], "×"),
    ]
