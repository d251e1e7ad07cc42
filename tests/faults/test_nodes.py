"""Three nodes, replication 3, two in-sync replicas wanted: one may go; when two go, writers wait."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.faults.brokers import own_broker
from support.faults.injected import leader_killed, majority_killed
from support.faults.kafka import FragileKafka
from support.faults.plugin import Survives

pytestmark = pytest.mark.timeout(420)
SETTINGS = {"replication_factor": 3}


@pytest.fixture
async def three(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[FragileKafka]:
    async with own_broker(tmp_path, machine_env, nodes=3, min_insync_replicas="2") as kafka:
        yield kafka


async def test_leader_dies(three: FragileKafka, survives: Survives) -> None:
    await survives(
        three.bootstrap_servers, "3 nodes: kill -9 leader", leader_killed(three), settings=SETTINGS
    )


async def test_two_of_three_die(three: FragileKafka, survives: Survives) -> None:
    fault = majority_killed(three)
    await survives(three.bootstrap_servers, "3 nodes: kill -9 two", fault, settings=SETTINGS)
