"""kill -9 of all services at once loses nothing and counts nothing twice; tests/faults kills each of them."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.faults.kills import survives_kills


@pytest.mark.timeout(180)
async def test_killed_services_lose_and_double_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    await survives_kills(
        kafka.bootstrap_servers, topic_prefix, tmp_path, target="all", kills=2, seed=1, inflight=1
    )
