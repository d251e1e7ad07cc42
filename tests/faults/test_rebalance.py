"""A worker joins while calls are under way: the group waits for none of them, and most go on."""

from pathlib import Path

import pytest

from combee.core.formats.items import outgoing
from combee.inspection.audit import audit
from support.broker import Broker
from support.faults_driver import PLAYBOOKS
from support.faults_stage import Scene, Stage, on_stage
from support.faults_watch import Watch
from support.ledger import reflection
from support.switched_off import patched

NAME = PLAYBOOKS[0]
CALL_S = 32.0
"""Longer than a process may take to start and a group to rebalance, on a busy machine, too."""
GROUPS = 8
"""One for each partition of ``scan.0``: 64 reflections make ⌊√64⌋ groups."""
MOVED = 3
"""Two members have partitions 0–3 and 4–7, three have 0–2, 3–5 and 6–7 (range): 3, 6 and 7 change hands."""
FORGETFUL = """
from combee.worker.loop import Loop

reassigned = Loop._reassigned


async def forget(self, assigned):
    await self._cancel(list(self._tasks))
    self._marks = {}
    await reassigned(self, assigned)


Loop._reassigned = forget
"""


async def join_during_calls(stage: Stage, watch: Watch) -> int:
    """Return how many calls had been answered when a third worker was ready."""
    log = stage.log()
    await log.produce(*(outgoing(reflection(n, NAME)) for n in range(GROUPS**2)))
    await log.close()
    await watch.until(lambda: stage.model_stats()["in_flight"] == GROUPS, 60, "not all groups are asked")
    await stage.start("scan", 2)
    await stage.supervisor.wait_ready(30)
    return int(stage.model_stats()["outcomes"].get("ok", 0))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("forgets", [False, True])
async def test_only_calls_of_partitions_that_change_hands_are_made_again(
    kafka: Broker, topic_prefix: str, tmp_path: Path, *, forgets: bool
) -> None:
    forgetful = patched(tmp_path, FORGETFUL) if forgets else {}
    scene = Scene(
        bootstrap_servers=kafka.bootstrap_servers,
        prefix=topic_prefix,
        folder=tmp_path,
        latency=str(CALL_S),
        replicas=2,
        settings={"batch_size": GROUPS**2, "model_timeout_s": 4 * CALL_S, "fan_in": 32},
        environment=dict.fromkeys(("scan", "scan-1"), forgetful),
    )
    async with on_stage(scene) as stage:
        log = stage.log()
        try:
            async with Watch(log).running() as watch:
                answered = await join_during_calls(stage, watch)
                await watch.until(lambda: watch.applied.get(NAME) == 1, 4 * CALL_S, "no version")
            ledger = await audit(log)
        finally:
            await log.close()

    again = len(stage.calls()) - ledger.planned_calls
    assert not ledger.violations
    assert answered == 0, "the group waited for a call"
    assert (0 < again <= MOVED) != forgets
