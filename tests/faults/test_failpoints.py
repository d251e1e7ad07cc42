"""Death at each point between a model's answer and the commit, and around each transaction."""

from pathlib import Path

import pytest

from combee.adapters.failpoints import POINTS
from support.broker import Broker
from support.faults_injected import failpoints
from support.faults_plugin import Survives


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", POINTS)
async def test_death_at_a_point(
    kafka: Broker, survives: Survives, tmp_path: Path, fault_seed: int, point: str
) -> None:
    environment, fault = failpoints(tmp_path, point, fault_seed)
    await survives(kafka.bootstrap_servers, f"exit {point}", fault, environment=environment)
