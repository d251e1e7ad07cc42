"""A worker joins while calls are under way: the group waits for none of them, and most go on."""

from pathlib import Path

import pytest

from combee.log.inspection.audit import audit
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.faults.cluster import Cluster, Scenario, patched, running_cluster
from support.faults.driver import PLAYBOOKS
from support.faults.progress import Progress
from support.ledger import reflection

NAME = PLAYBOOKS[0]
CALL_S = 32.0
"""Longer than a process may take to start and a group to rebalance, on a busy machine, too."""
GROUPS = 8
"""One for each partition of ``scan.0``: 64 reflections make ⌊√64⌋ groups."""
MOVED = {True: 3, False: 5}
"""Two members have partitions 0–3 and 4–7, three have 0–2, 3–5 and 6–7 (range). If the one that joins is the last
by its number, 3, 6 and 7 change hands; a dynamic member may be the first: then 0–2, 4 and 5 do."""
FORGETFUL = """
from combee.process.worker.loop import Loop

reassigned = Loop._reassigned


async def forget(self, assigned):
    await self._cancel(list(self._tasks))
    self._marks = {}
    await reassigned(self, assigned)


Loop._reassigned = forget
"""


async def join_during_calls(cluster: Cluster, progress: Progress) -> int:
    """Return how many calls had been answered when a third worker was ready."""
    log = cluster.log()
    await log.produce(*(outgoing(reflection(n, NAME)) for n in range(GROUPS**2)))
    await log.close()
    await progress.until(lambda: cluster.model_stats()["in_flight"] == GROUPS, 60, "not all groups are asked")
    await cluster.start("scan", 2)
    await cluster.supervisor.wait_ready(30)
    return int(cluster.model_stats()["outcomes"].get("ok", 0))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("forgets", "numbered"), [(False, True), (True, True), (False, False)])
async def test_only_calls_of_partitions_that_change_hands_are_made_again(
    kafka: Broker, topic_prefix: str, tmp_path: Path, *, forgets: bool, numbered: bool
) -> None:
    forgetful = patched(tmp_path, FORGETFUL) if forgets else {}
    scenario = Scenario(
        bootstrap_servers=kafka.bootstrap_servers,
        prefix=topic_prefix,
        folder=tmp_path,
        latency=str(CALL_S),
        replicas=2,
        numbered=numbered,
        settings={"batch_size": GROUPS**2, "model_timeout_s": 4 * CALL_S, "fan_in": 32},
        environment=dict.fromkeys(("scan", "scan-1"), forgetful),
    )
    async with running_cluster(scenario) as cluster:
        log = cluster.log()
        try:
            async with Progress(log).running() as progress:
                answered = await join_during_calls(cluster, progress)
                await progress.until(lambda: progress.applied.get(NAME) == 1, 4 * CALL_S, "no version")
            ledger = await audit(log)
        finally:
            await log.close()

    again = len(cluster.calls()) - ledger.model_calls.made
    assert not ledger.violations
    assert answered == 0, "the group waited for a call"
    assert (0 < again <= MOVED[numbered]) != forgets
