"""Probes for ``combee doctor``: API versions, replicas, transactions that stay open, the clock's skew."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import ApiVersionRequest

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import translated
from combee.adapters.kafka.lifetime import started, stopped
from combee.ports import TransientError

LOG_APPEND_TIME = 1
PROBE_TOPIC = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The brokers of the cluster, and the newest version of each request that one of them understands."""

    addresses: tuple[str, ...]
    requests: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replication of a topic; ``leaderless`` and ``under_replicated`` count partitions."""

    replication_factor: int
    leaderless: int
    under_replicated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """Where readers of committed records stop; ``age_s`` is the age of the transaction's first record there."""

    topic: str
    partition: int
    offset: int
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How far this machine's clock is ahead of the broker's, and the error of that measurement (ms)."""

    ahead_ms: float
    within_ms: float


async def abilities(connection: Connection) -> Abilities:
    """Return the brokers and their request versions."""
    client = AIOKafkaClient(**connection.client)
    try:
        with translated("connecting"):
            await started(client.bootstrap())
            brokers = client.cluster.brokers()
            node = next(iter(brokers)).nodeId
            answer = await client.send(node, ApiVersionRequest())
    finally:
        await stopped(client)
    addresses = tuple(sorted(f"{broker.host}:{broker.port}" for broker in brokers))
    return Abilities(addresses=addresses, requests={key: newest for key, _, newest in answer.api_versions})


async def replicas(connection: Connection) -> dict[str, Replicas]:
    """Return the replicas of every topic under the prefix, by name without it."""
    return {topic: _replicas(partitions) for topic, partitions in (await _described(connection)).items()}


async def _described(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """Return the partitions of every topic under the prefix, by name without it."""
    prefix = f"{connection.prefix}."
    async with _admin(connection) as admin:
        with translated("describing topics"):
            topics = [t for t in await admin.describe_topics() if t["topic"].startswith(prefix)]
    return {t["topic"].removeprefix(prefix): t["partitions"] for t in topics if t["partitions"]}


def _replicas(partitions: list[dict[str, Any]]) -> Replicas:
    return Replicas(
        replication_factor=min(len(partition["replicas"]) for partition in partitions),
        leaderless=sum(partition["leader"] < 0 for partition in partitions),
        under_replicated=sum(len(partition["isr"]) < len(partition["replicas"]) for partition in partitions),
    )


async def open_transactions(connection: Connection) -> list[OpenTransaction]:
    """Return the transactions that have not ended, in every partition under the prefix; most end within moments."""
    partitions = [
        TopicPartition(connection.full(topic), described["partition"])
        for topic, all_described in (await _described(connection)).items()
        for described in all_described
    ]
    async with _reader(connection, "read_committed") as committed, _reader(connection) as reader:
        with translated("looking for open transactions"):
            ends = await reader.end_offsets(partitions)  # first: what comes later is no sign of an open one
            stable = await committed.end_offsets(partitions)
            behind = {tp: at for tp, at in stable.items() if at < ends[tp]}
            reader.assign(list(behind))
            for tp, at in behind.items():
                reader.seek(tp, at)
            records = [await reader.getone(tp) for tp in behind]
    now_ms = time.time_ns() / 1e6
    return [
        OpenTransaction(
            topic=record.topic.removeprefix(f"{connection.prefix}."),
            partition=record.partition,
            offset=record.offset,
            age_s=(now_ms - record.timestamp) / 1000,
        )
        for record in records
    ]


@asynccontextmanager
async def _reader(connection: Connection, isolation: str = "read_uncommitted") -> AsyncIterator[Any]:
    reader = aiokafka.AIOKafkaConsumer(
        **connection.client, isolation_level=isolation, enable_auto_commit=False
    )
    try:
        with translated("connecting"):
            await started(reader.start())
        yield reader
    finally:
        await stopped(reader)


async def skew(connection: Connection) -> Skew:
    """Measure the clock skew with one record that the broker stamps, in a topic made for it and deleted afterwards.

    Brokers do not tell the time, and ordinary records carry their writer's.
    """
    topic = connection.full(f"{PROBE_TOPIC}-{uuid4().hex[:8]}")
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}
    new = NewTopic(name=topic, num_partitions=1, replication_factor=1, topic_configs=config)
    async with _admin(connection) as admin:
        with translated("creating a topic to compare clocks with"):
            answer = await admin.create_topics([new])
        if answer.topic_errors[0][1]:
            raise TransientError(
                f"no topic can be created to compare clocks with: {answer.topic_errors[0][2]}"
            )
        try:
            return await _stamped(connection, topic)
        finally:
            with translated("deleting the topic again"):
                await asyncio.shield(admin.delete_topics([topic]))


async def _stamped(connection: Connection, topic: str) -> Skew:
    producer = aiokafka.AIOKafkaProducer(**connection.client, acks="all", linger_ms=0)
    try:
        with translated("writing to compare clocks"):
            await started(producer.start())
            # The first waits for the leader; the second measures.
            await producer.send_and_wait(topic, b"")
            before_ms = time.time_ns() / 1e6
            written = await producer.send_and_wait(topic, b"")
            after_ms = time.time_ns() / 1e6
    finally:
        await stopped(producer)
    if written.timestamp_type != LOG_APPEND_TIME:
        raise TransientError("the broker does not stamp records")
    # The stamp is whole milliseconds, cut off.
    theirs_ms = written.timestamp + 0.5
    return Skew(ahead_ms=(before_ms + after_ms) / 2 - theirs_ms, within_ms=(after_ms - before_ms) / 2 + 0.5)


@asynccontextmanager
async def _admin(connection: Connection) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**connection.client)
    try:
        with translated("connecting"):
            await started(admin.start())
        yield admin
    finally:
        await stopped(admin)
