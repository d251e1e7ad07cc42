"""One fault of each kind that kills alone do not show (`test_kills.py`); `make test-faults` runs them all."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.faults.brokers import fronted_broker
from support.faults.injected import failpoints, partition
from support.faults.plugin import Survives
from support.faults.records import again, poison
from support.faults.run import Run

pytestmark = pytest.mark.timeout(180)


async def test_poison_in_every_topic_between_repeats(kafka: Broker, survives: Survives) -> None:
    async def both(run: Run) -> None:
        await poison()(run)
        await again(1)(run)

    await survives(kafka.bootstrap_servers, "poison and repeats", both)


async def test_death_between_an_effect_and_its_commit(
    kafka: Broker, survives: Survives, fault_seed: int
) -> None:
    point = "offsets in transaction"
    at, fault = failpoints(point, fault_seed)
    await survives(kafka.bootstrap_servers, f"exit {point}", fault, failpoints=at)


async def test_silent_partition_between_shuffle_and_the_broker(
    tmp_path: Path, machine_env: dict[str, str], survives: Survives
) -> None:
    async with fronted_broker(tmp_path, machine_env) as broker:
        await survives(
            broker.bootstrap_servers,
            "partition 5 s, silent: shuffle",
            partition(broker.proxy, "shuffle", 5, how="silent"),
            environment={"shuffle": {"COMBEE_BOOTSTRAP_SERVERS": broker.address}},
        )
