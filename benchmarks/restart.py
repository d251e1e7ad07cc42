"""Restart: from SIGTERM to ready again, all services at once, with ever more history behind them."""

import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack

from benchmarks.cluster import ROLES, Cluster, fresh, running_cluster
from benchmarks.rows import Row, row
from benchmarks.synthetic import write_past
from combee.adapters.kafka import KafkaLog

TIMEOUT_S = 600.0
LENGTHS = (10, 100, 1_000)
KEPT = 10
"""Snapshots that compaction leaves; the segment that is written to holds some more than one per playbook."""
BAR = 1.25
READY_S = 60.0


def _past(length: int, snapshots: int) -> Callable[[KafkaLog], Coroutine[None, None, None]]:
    async def write(log: KafkaLog) -> None:
        await write_past(log, fresh("past"), length, snapshots=snapshots)

    return write


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the seconds for each length; the deployments take turns on the same machine."""
    pasts = {f"{n} versions": _past(n, KEPT) for n in LENGTHS}
    pasts[f"{LENGTHS[-1]} versions, none compacted away yet"] = _past(LENGTHS[-1], LENGTHS[-1])
    taken: dict[str, list[float]] = {name: [] for name in pasts}
    async with AsyncExitStack() as opened:
        clusters = {
            name: await opened.enter_async_context(running_cluster(bootstrap_servers, before=past))
            for name, past in pasts.items()
        }
        for _ in range(runs + 1):
            for name, cluster in clusters.items():
                taken[name].append(await _restarted(cluster))
    times = {name: seconds[1:] for name, seconds in taken.items()}
    first, last = times[f"{LENGTHS[0]} versions"], times[f"{LENGTHS[-1]} versions"]
    ratios = [long / short for long, short in zip(last, first, strict=True)]
    return [
        row(f"restart-to-ready, {LENGTHS[-1]} against {LENGTHS[0]} versions", ratios, "×", BAR),
        *(row(f"restart-to-ready, {name}", seconds, "s") for name, seconds in times.items()),
    ]


async def _restarted(cluster: Cluster) -> float:
    began = time.monotonic()
    for role in ROLES:
        cluster.supervisor.send(role, signal.SIGTERM)
    await cluster.supervisor.restarted(ROLES, READY_S)
    return time.monotonic() - began
