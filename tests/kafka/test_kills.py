"""kill -9 of any service, or of all at once, loses nothing and counts nothing twice."""

from pathlib import Path

import pytest

from support.broker import Broker
from support.kills import survives_kills

KILLS = 2
CASES = [("reflect", 1), ("shuffle", 3), ("scan", 3), ("publish", 3), ("all", 1)]
"""Who is killed, and how many batches may be in flight; tests/faults has every combination."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("target", "inflight"), CASES)
async def test_killed_service_loses_and_doubles_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path, target: str, inflight: int
) -> None:
    await survives_kills(
        kafka.bootstrap_servers,
        topic_prefix,
        tmp_path,
        target=target,
        kills=KILLS,
        seed=1,
        inflight=inflight,
    )
