"""kill -9 of any service, or of all at once, loses nothing and counts nothing twice."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.kills import SERVICES, survives_kills

KILLS = 2


@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", [*SERVICES, "all"])
async def test_killed_service_loses_and_doubles_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path, target: str
) -> None:
    await survives_kills(kafka.bootstrap_servers, topic_prefix, tmp_path, target=target, kills=KILLS, seed=1)
