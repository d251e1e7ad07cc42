"""Agents that write in transactions: what they abort is never learned, and one that hangs is waited for briefly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTransactionTimeout

from combee.adapters.embedded_kafka.node import MAX_TRANSACTION_MS
from combee.adapters.kafka.transactor import TRANSACTION_TIMEOUT_MS
from combee.adapters.ports import Outgoing
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.reflection import Reflection
from support.broker import Broker
from support.running import PLAYBOOK, Running, nothing_waits, running_stack, until_applied

WITHIN_S = 90.0
HANGS_MS = 1_000
SETTINGS: dict[str, Any] = {
    "batch_size": 4,
    "max_wait_s": 1.0,
    "metrics_port": 0,
    "roles": ("shuffle", "scan", "publish"),
}


def reflection(name: str) -> Outgoing:
    return topics.REFLECTIONS.record(
        Reflection(reflection_id=name, playbook=PLAYBOOK, key_insight=f"the lesson of {name}")
    )


@asynccontextmanager
async def agent(kafka: Broker, prefix: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"{prefix}.an-agent", **options
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def send(producer: AIOKafkaProducer, running: Running, *names: str) -> None:
    for name in names:
        record = reflection(name)
        number = await running.log.partition_for(record.topic, record.key or b"")
        topic = f"{running.settings.kafka.topic_prefix}.{record.topic}"
        await producer.send_and_wait(topic, record.value, key=record.key, partition=number)


async def members(running: Running) -> list[str]:
    batches = [batch for batch in await running.messages(topics.BATCHES) if isinstance(batch, Batch)]
    return sorted(member.reflection_id for batch in batches for member in batch.members)


async def until_learned(running: Running, *names: str) -> None:
    await until_applied(running.log, len(names))
    assert await members(running) == sorted(names)


@pytest.mark.timeout(300)
async def test_what_an_agent_aborts_is_never_learned_and_what_it_commits_is(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, **SETTINGS) as running:
        async with agent(kafka, topic_prefix) as producer:
            await producer.begin_transaction()
            await send(producer, running, *(f"aborted-{n}" for n in range(6)))
            await producer.abort_transaction()
            async with producer.transaction():
                await send(producer, running, "kept-0", "kept-1")
            await producer.begin_transaction()
            await send(producer, running, "aborted-6")
            await producer.abort_transaction()
        await running.log.produce(reflection("plain"))
        await until_learned(running, "kept-0", "kept-1", "plain")
        await nothing_waits(running.log, WITHIN_S)
        report = await audit(running.log)
    assert report.good, report.violations
    assert (report.reflections, report.applied) == (3, 3)


@pytest.mark.timeout(300)
async def test_an_agent_that_hangs_in_a_transaction_holds_learning_up_for_its_timeout_only(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, **SETTINGS) as running:
        async with agent(kafka, topic_prefix, transaction_timeout_ms=HANGS_MS) as producer:
            await producer.begin_transaction()
            await send(producer, running, "hangs")
            await running.log.produce(reflection("behind it"))
            await until_learned(running, "behind it")
        report = await audit(running.log)
    assert report.good, report.violations
    assert (report.reflections, report.applied) == (1, 1)


async def test_the_broker_refuses_transactions_that_may_stay_open_for_more_than_a_minute(
    kafka: Broker, topic_prefix: str
) -> None:
    assert TRANSACTION_TIMEOUT_MS < MAX_TRANSACTION_MS <= 60_000
    async with agent(kafka, topic_prefix, transaction_timeout_ms=MAX_TRANSACTION_MS):
        pass
    with pytest.raises(InvalidTransactionTimeout):
        async with (
            asyncio.timeout(WITHIN_S),
            agent(kafka, topic_prefix, transaction_timeout_ms=MAX_TRANSACTION_MS + 1),
        ):
            pass
