"""Five kills -9 of each service and of all at once, with one and three batches in flight; replicas that die."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.faults.kills import SERVICES, survives_kills, survives_the_loss_of_one_replica

KILLS = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "inflight"), [(2, 1), (3, 3)])
@pytest.mark.parametrize("target", [*SERVICES, "all"])
async def test_service_killed_five_times_loses_and_doubles_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path, target: str, seed: int, inflight: int
) -> None:
    await survives_kills(
        kafka.bootstrap_servers,
        topic_prefix,
        tmp_path,
        target=target,
        kills=KILLS,
        seed=seed,
        inflight=inflight,
        count=200,
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("inflight", [1, 3])
async def test_replicas_survive_the_loss_of_one_of_each(
    kafka: Broker, topic_prefix: str, tmp_path: Path, inflight: int
) -> None:
    await survives_the_loss_of_one_replica(kafka.bootstrap_servers, topic_prefix, tmp_path, inflight=inflight)
