"""A broker that dies, or that one service cannot reach."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import TransientError
from support.faults.actions import How
from support.faults.brokers import Fronted, fronted_broker, own_broker
from support.faults.injected import broker_killed, partition, random_kills
from support.faults.kafka import FragileKafka
from support.faults.plugin import Survives
from support.transactions import EACH, PARTITIONS, TOPIC, WRITERS, write

pytestmark = pytest.mark.timeout(300)
DEATHS = 5
"""Several deaths: without what is done about them not each leaves a transaction open."""
SETTLED_S, POLL_S = 90.0, 0.2


@pytest.fixture
async def own(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[FragileKafka]:
    async with own_broker(tmp_path, machine_env) as kafka:
        yield kafka


@pytest.fixture
async def fronted(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[Fronted]:
    async with fronted_broker(tmp_path, machine_env) as broker:
        yield broker


async def test_kill_9_of_the_broker(own: FragileKafka, survives: Survives) -> None:
    await survives(own.bootstrap_servers, "kill -9 broker", broker_killed(own))


async def test_kills_of_broker_and_services_at_random_moments(own: FragileKafka, survives: Survives) -> None:
    await survives(own.bootstrap_servers, "kill -9 of broker and services at random", random_kills(own))


async def test_no_transaction_stays_open_when_a_killed_broker_is_back(
    own: FragileKafka, tmp_path: Path
) -> None:
    connection = Connection(bootstrap_servers=own.bootstrap_servers, prefix="open")
    await KafkaAdmin(connection).create(TOPIC, PARTITIONS, 1, {})
    log = KafkaLog(connection)
    controller_log = tmp_path / "kafka" / "node-1" / "controller" / "controller.log"
    try:
        for death in range(DEATHS):
            # Of other names than before: another transaction of the same writer would end the open one.
            await _die_under(own, log, [f"writer-{death}-{number}" for number in range(WRITERS)])
            assert "Fencing broker 1 " in controller_log.read_text(), "what the broker is protected by"
        async with asyncio.timeout(SETTLED_S):
            while not await _is_settled(log):  # noqa: ASYNC110 - Kafka tells nobody
                await asyncio.sleep(POLL_S)
    finally:
        await log.close()


async def _die_under(own: FragileKafka, log: KafkaLog, names: Sequence[str]) -> None:
    """Kill the broker while these write, and start it again."""
    counts = dict.fromkeys(names, 0)
    async with asyncio.TaskGroup() as writers:
        writing = [writers.create_task(write(log, name, counts)) for name in names]
        async with asyncio.timeout(SETTLED_S):
            while min(counts.values()) < EACH:  # noqa: ASYNC110 - it need not be exact
                await asyncio.sleep(POLL_S)
        own.kill()
        await own.restart_node(1)
        for task in writing:
            task.cancel()


async def _is_settled(log: KafkaLog) -> bool:
    with suppress(TransientError):
        return bool(await log.settled(TOPIC))
    return False


@pytest.mark.parametrize(
    ("role", "seconds", "how"),
    [
        ("reflect", 5, "silent"),
        ("shuffle", 5, "silent"),
        ("scan", 5, "resets"),
        ("publish", 5, "resets"),
        ("shuffle", 30, "silent"),
        ("publish", 30, "silent"),
        ("scan", 30, "resets"),
    ],
)
async def test_partition_between_a_service_and_the_broker(
    fronted: Fronted, survives: Survives, role: str, seconds: int, how: How
) -> None:
    await survives(
        fronted.bootstrap_servers,
        f"partition {seconds} s, {how}: {role}",
        partition(fronted.proxy, role, seconds, how=how),
        environment={role: {"COMBEE_BOOTSTRAP_SERVERS": fronted.address}},
    )
