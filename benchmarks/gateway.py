"""The gateway with nobody looking: what each reflection that passes by costs it, and what memory it holds then.

What it uses in the same time with nothing passing by is taken off: else a slow machine would count as a cost.
"""

import asyncio
import time

from benchmarks.cluster import ROLES, Cluster, fresh, lessons, running_cluster
from benchmarks.processor import memory_mb, process_ms
from benchmarks.rows import Row, row

TIMEOUT_S = 600.0
PLAYBOOKS = 16
EACH = 200
BATCH_SIZE = 40
SETTLE_S, IDLE_S = 5.0, 20.0
PROCESSOR_BAR_MS, MEMORY_BAR_MB = 0.1, 130.0


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return processor time per reflection and memory after each run, with and without the dashboard."""
    return [
        measured
        for name, dashboard in (("", True), (", dashboard off", False))
        for measured in await _passing_by(bootstrap_servers, runs, name, dashboard=dashboard)
    ]


async def _passing_by(bootstrap_servers: str, runs: int, name: str, *, dashboard: bool) -> list[Row]:
    used, memory = [], []
    async with running_cluster(
        bootstrap_servers,
        roles=(*ROLES, "gateway"),
        batch_size=BATCH_SIZE,
        gateway_port=0,
        dashboard=dashboard,
    ) as cluster:
        pid = cluster.supervisor.pid("gateway")
        await asyncio.sleep(SETTLE_S)
        before_ms = process_ms(pid)
        await asyncio.sleep(IDLE_S)
        idle_ms = (process_ms(pid) - before_ms) / IDLE_S
        for _ in range(runs + 1):
            before_ms, began = process_ms(pid), time.monotonic()
            await _learned(cluster)
            took_ms = process_ms(pid) - before_ms - idle_ms * (time.monotonic() - began)
            used.append(took_ms / (PLAYBOOKS * EACH))
            memory.append(memory_mb(pid, "Rss"))
    return [
        row(f"gateway, nobody looks{name}: processor time per reflection", used[1:], "ms", PROCESSOR_BAR_MS),
        row(f"gateway, nobody looks{name}: processor time per idle second", [idle_ms], "ms"),
        row(f"gateway, nobody looks{name}: memory (RSS)", memory[1:], "MB", MEMORY_BAR_MB),
    ]


async def _learned(cluster: Cluster) -> None:
    names = [fresh(f"passing{n}") for n in range(PLAYBOOKS)]
    await cluster.publish([lesson for name in names for lesson in lessons(name, EACH)])
    for name in names:
        await cluster.through(name, EACH // BATCH_SIZE)
