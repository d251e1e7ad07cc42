"""One playbook beside another one's backlog: how long its batch takes, alone and beside 10,000 waiting reflections.

The bar was set before the first run: at most its time alone and one call for each level of its tree.
"""

from benchmarks.cluster import Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row
from combee_schemas import topics
from combee_schemas.control import BatchSize

TIMEOUT_S = 1_200.0
BACKLOG = 10_000
BATCH_SIZE = 40
LARGE = 1_000
"""Reflections in a batch of the backlog, as the controller makes them: 31 groups for 8 slots."""
CALL_S = 1.0
CONCURRENCY = 8
LEVELS = 2


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the batch's time alone and beside the backlog, and what of that are calls of others."""
    async with running_cluster(
        bootstrap_servers,
        roles=("publish", "scan", "shuffle"),
        latency=str(CALL_S),
        llm_concurrency=CONCURRENCY,
        batch_size=BATCH_SIZE,
    ) as cluster:
        alone = [await _through(cluster) for _ in range(runs + 1)][1:]
        heavy = fresh("backlog")
        sized = BatchSize(playbook=heavy, batch_size=LARGE)
        await cluster.log.produce(topics.BATCH_SIZES.record(sized))
        await cluster.publish(lessons(heavy, BACKLOG))
        await cluster.through(heavy)
        beside = [await _through(cluster) for _ in range(runs)]
        left = BACKLOG - LARGE * cluster.subscriber.playbooks.latest(heavy).batch_sequence
    calls = [(late - min(alone)) / CALL_S / LEVELS for late in beside]
    return [
        row("a batch of 40, alone", alone, "s"),
        row("the same, beside a backlog of 10,000", beside, "s"),
        row("longer, per level of its tree", calls, "calls", 1.0),
        row("reflections that still waited at the end", [left], "", 1, at_least=True),
    ]


async def _through(cluster: Cluster) -> float:
    given = lessons(fresh("late"), BATCH_SIZE)
    acked = await cluster.publish(given)
    return await cluster.through(given[0].playbook) - acked
