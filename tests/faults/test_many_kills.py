"""The same as tests/kafka/test_kills.py, longer: five kills each, other seeds."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.kills import SERVICES, survives_kills

KILLS = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("target", [*SERVICES, "all"])
async def test_service_killed_five_times_loses_and_doubles_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path, target: str, seed: int
) -> None:
    await survives_kills(
        kafka.bootstrap_servers, topic_prefix, tmp_path, target=target, kills=KILLS, seed=seed, count=200
    )
