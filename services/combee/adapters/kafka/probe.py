"""Probes for ``combee doctor``: API versions, replicas, transactions that stay open, the clock's skew."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import ApiVersionRequest

from combee.adapters.kafka.connection import Connection, introduced
from combee.adapters.kafka.errors import translated
from combee.adapters.kafka.lifetime import running, started, stopped
from combee.adapters.ports import TransientError

LOG_APPEND_TIME = 1
PROBE_TOPIC = "doctor"
LONGEST = "transaction.max.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The brokers of the cluster, and the newest version of each request that any of them understands."""

    addresses: tuple[str, ...]
    requests: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replication of a topic; ``leaderless`` and ``under_replicated`` count partitions."""

    replication_factor: int
    leaderless: int
    under_replicated: int


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
    prefix = f"{connection.prefix}."
    described = await _described(connection)
    return {topic.removeprefix(prefix): _replicas(partitions) for topic, partitions in described.items()}


async def _described(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """Return the partitions of every topic under the prefix, by its whole name."""
    prefix = f"{connection.prefix}."
    async with running(AIOKafkaAdminClient(**connection.client)) as admin:
        with translated("describing topics"):
            topics = await admin.describe_topics()
    return {t["topic"]: t["partitions"] for t in topics if t["topic"].startswith(prefix) and t["partitions"]}


def _replicas(partitions: list[dict[str, Any]]) -> Replicas:
    return Replicas(
        replication_factor=min(len(partition["replicas"]) for partition in partitions),
        leaderless=sum(partition["leader"] < 0 for partition in partitions),
        under_replicated=sum(len(partition["isr"]) < len(partition["replicas"]) for partition in partitions),
    )


async def open_transactions(connection: Connection) -> dict[str, float]:
    """Return the transactions under the prefix that have not ended; most end within moments.

    They are given as the age of their first record, in seconds, by its place (``TOPIC[P]@O``): readers of committed
    records stop there.
    """
    described = await _described(connection)
    partitions = [
        TopicPartition(topic, state["partition"]) for topic in described for state in described[topic]
    ]
    options = connection.client | {"enable_auto_commit": False}
    async with (
        running(aiokafka.AIOKafkaConsumer(**options, isolation_level="read_committed")) as committed,
        running(aiokafka.AIOKafkaConsumer(**options)) as reader,
    ):
        with translated("looking for open transactions"):
            for client in (reader, committed):
                await introduced(client, described)
            ends = await reader.end_offsets(
                partitions
            )  # looked up first: later records do not prove an open transaction
            stable = await committed.end_offsets(partitions)
            behind = {tp: at for tp, at in stable.items() if at < ends[tp]}
            reader.assign(list(behind))
            for tp, at in behind.items():
                reader.seek(tp, at)
            records = [await reader.getone(tp) for tp in behind]
    now_ms = time.time_ns() / 1e6
    return {f"{r.topic}[{r.partition}]@{r.offset}": (now_ms - r.timestamp) / 1000 for r in records}


async def longest_transaction_s(connection: Connection) -> float | None:
    """Return the largest time-out of transactions that any broker allows (s); None: unknown."""
    async with running(AIOKafkaAdminClient(**connection.client)) as admin:
        with translated("looking at the brokers' settings"):
            nodes = [broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]]
            resources = [
                ConfigResource(ConfigResourceType.BROKER, str(node), {LONGEST: None}) for node in nodes
            ]
            answers = await admin.describe_configs(resources)
    items = [item for answer in answers for resource in answer.resources for item in resource[4]]
    values = [int(item[1]) / 1000 for item in items if item[0] == LONGEST and item[1]]
    return max(values, default=None)


async def skew(connection: Connection) -> Skew:
    """Measure the clock skew with one record that the broker stamps, in a topic made for it and deleted afterwards.

    Brokers do not tell the time, and ordinary records have their writer's time.
    """
    topic = connection.full(f"{PROBE_TOPIC}-{uuid4().hex[:8]}")
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}
    new = NewTopic(name=topic, num_partitions=1, replication_factor=1, topic_configs=config)
    async with running(AIOKafkaAdminClient(**connection.client)) as admin:
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
    async with running(aiokafka.AIOKafkaProducer(**connection.client, acks="all", linger_ms=0)) as producer:
        with translated("writing to compare clocks"):
            # The first waits for the leader; the second measures.
            await producer.send_and_wait(topic, b"")
            before_ms = time.time_ns() / 1e6
            written = await producer.send_and_wait(topic, b"")
            after_ms = time.time_ns() / 1e6
    if written.timestamp_type != LOG_APPEND_TIME:
        raise TransientError("the broker does not set timestamps")
    # The stamp is whole milliseconds, cut off.
    theirs_ms = written.timestamp + 0.5
    return Skew(ahead_ms=(before_ms + after_ms) / 2 - theirs_ms, within_ms=(after_ms - before_ms) / 2 + 0.5)
