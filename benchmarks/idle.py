"""Idle: what a deployment that has nothing to do takes of a core."""

import asyncio
from itertools import pairwise

from benchmarks.cluster import ROLES, running_cluster
from benchmarks.processor import shares, used_ms
from benchmarks.rows import Row, row

TIMEOUT_S = 300.0
SETTLE_S = 5.0
"""After the start: groups are joined, topics are read."""
SECONDS = 10
BAR_MS = 40.0


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the processor time of each process per second, in milliseconds."""
    async with running_cluster(bootstrap_servers) as cluster:
        await asyncio.sleep(SETTLE_S)
        used = [used_ms(cluster)]
        for _ in range(runs):
            await asyncio.sleep(SECONDS)
            used.append(used_ms(cluster))
    together = [
        sum(after[role] - before[role] for role in ROLES) / SECONDS for before, after in pairwise(used)
    ]
    return [
        *shares(used, SECONDS, "idle second"),
        row("processor time per idle second: all services", together, "ms", BAR_MS),
    ]
