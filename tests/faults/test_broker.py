"""A broker that dies, or that one service cannot reach."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import EmbeddedKafka
from support.faults.actions import How
from support.faults.brokers import Fronted, fronted_broker, own_broker
from support.faults.injected import broker_killed, partition, random_kills
from support.faults.plugin import Survives

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def own(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[EmbeddedKafka]:
    async with own_broker(tmp_path, machine_env) as kafka:
        yield kafka


@pytest.fixture
async def fronted(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[Fronted]:
    async with fronted_broker(tmp_path, machine_env) as broker:
        yield broker


async def test_kill_9_of_the_broker(own: EmbeddedKafka, survives: Survives) -> None:
    await survives(own.bootstrap_servers, "kill -9 broker", broker_killed(own))


async def test_kills_of_broker_and_services_at_random_moments(own: EmbeddedKafka, survives: Survives) -> None:
    await survives(own.bootstrap_servers, "kill -9 of broker and services at random", random_kills(own))


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
