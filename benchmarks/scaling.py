"""Scaling: one scan worker and four, where the model's time is all there is to spend."""

import time
from typing import Any

from benchmarks.cluster import Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row

TIMEOUT_S = 900.0
WORKERS = 4
PLAYBOOKS = 16
REFLECTIONS = 256
"""16 groups and a combine for each playbook: 272 calls a run, so that the last combines weigh little."""
LATENCY_S = 0.4
CONCURRENCY = 2
"""Calls a worker may have in flight: few, so that they are what is scarce and not this machine's cores."""
BAR = 3.6


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return how much faster four workers are than one; both stacks stand side by side and take turns."""
    options: dict[str, Any] = {
        "latency": f"{LATENCY_S}",
        "batch_size": REFLECTIONS,
        "llm_concurrency": CONCURRENCY,
    }
    one_s, many_s = [], []
    async with (
        running_cluster(bootstrap_servers, **options) as cluster,
        running_cluster(bootstrap_servers, scan_workers=WORKERS, **options) as many,
    ):
        for _ in range(runs):
            one_s.append(await _all_through(cluster))
            many_s.append(await _all_through(many))
    ratios = [alone / together for alone, together in zip(one_s, many_s, strict=True)]
    return [
        row(f"1 → {WORKERS} scan workers", ratios, "× faster", BAR, at_least=True),
        row("1 scan worker", one_s, "s"),
        row(f"{WORKERS} scan workers", many_s, "s"),
    ]


async def _all_through(cluster: Cluster) -> float:
    """Return the seconds from the last ack to the last playbook's version."""
    given = [lessons(fresh(f"scale{n}"), REFLECTIONS) for n in range(PLAYBOOKS)]
    for lessons_of_playbook in given:
        await cluster.publish(lessons_of_playbook)
    acked = time.monotonic()
    for lessons_of_playbook in given:
        last = await cluster.through(lessons_of_playbook[0].playbook)
    return last - acked
