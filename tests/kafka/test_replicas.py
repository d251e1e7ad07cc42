"""Two processes of every service share the work; when one of each dies and returns, nothing is lost."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.kills import survives_the_loss_of_one_replica


@pytest.mark.timeout(180)
async def test_two_of_each_service_survive_the_loss_of_one(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    await survives_the_loss_of_one_replica(kafka.bootstrap_servers, topic_prefix, tmp_path, inflight=1)
