"""Not waiting for the slowest call: two deployments on one broker take turns, one waits and one does not.

The bars were set before the first run: of the plain tree's time, the mean ≤ 0.75 × and the 95th percentile ≤ 0.6 ×.
"""

from statistics import fmean
from typing import Any

from benchmarks.cluster import Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row

TIMEOUT_S = 2_400.0
REFLECTIONS = 100
"""Ten groups."""
BATCHES_PER_RUN = 8
WARM_UP = 2
CONCURRENCY = 32
# A second, as of hosted models: beside much shorter calls our own time and the machine's load would be compared.
LAWS = {"log-normal, sigma 1": "lognormal:1,1", "Pareto, shape 1.6": "pareto:1,1.6"}
MEAN, P95 = 0.75, 0.6
MORE_CALLS = 1.1


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return how long batches take without waiting, of what they take with waiting."""
    return [
        one
        for name, latency in LAWS.items()
        for one in await _law(bootstrap_servers, name, latency, runs * BATCHES_PER_RUN)
    ]


async def _law(bootstrap_servers: str, name: str, latency: str, batches: int) -> list[Row]:
    chosen: dict[str, Any] = {"latency": latency, "batch_size": REFLECTIONS, "llm_concurrency": CONCURRENCY}
    plain, ahead = list[float](), list[float]()
    async with (
        running_cluster(bootstrap_servers, **chosen, stragglers=False) as waiting,
        running_cluster(bootstrap_servers, **chosen, stragglers=True) as going_on,
    ):
        for _ in range(WARM_UP):
            await _through(waiting)
            await _through(going_on)
        for _ in range(batches):
            plain.append(await _through(waiting))
            ahead.append(await _through(going_on))
        calls = len(going_on.calls()) / len(waiting.calls())
    return [
        row(f"a batch, waiting, {name}", plain, "s"),
        row(f"a batch, not waiting, {name}", ahead, "s"),
        row(f"mean of {batches} batches, {name}", [fmean(ahead) / fmean(plain)], "× waiting", MEAN),
        row(f"95th percentile, {name}", [p95(ahead) / p95(plain)], "× waiting", P95),
        row(f"model calls, {name}", [calls], "× waiting", MORE_CALLS),
    ]


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[int(0.95 * len(values))]


async def _through(cluster: Cluster) -> float:
    given = lessons(fresh("run"), REFLECTIONS)
    acked = await cluster.publish(given)
    return await cluster.through(given[0].playbook) - acked
