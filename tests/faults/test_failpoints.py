"""Death at each point between a model's answer and the commit, and around each transaction."""

import pytest

from support.broker import Broker
from support.failpoints.points import POINTS
from support.faults.injected import failpoints
from support.faults.plugin import Survives


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", POINTS)
async def test_death_at_a_point(kafka: Broker, survives: Survives, fault_seed: int, point: str) -> None:
    at, fault = failpoints(point, fault_seed)
    await survives(kafka.bootstrap_servers, f"exit {point}", fault, failpoints=at)
