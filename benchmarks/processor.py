"""Processor time and memory of a deployment's processes: what a busy machine changes least."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.cluster import ROLES, Cluster
from benchmarks.rows import Row, row

PROCESSES = (*ROLES, "sim")


def used_ms(cluster: Cluster) -> dict[str, float]:
    """Return what each process has used so far, in milliseconds of one core."""
    return {name: process_ms(cluster.supervisor.pid(name)) for name in PROCESSES}


def process_ms(pid: int) -> float:
    """Return what a process has used so far, user and system."""
    times = psutil.Process(pid).cpu_times()
    return 1000 * float(times.user + times.system)


def memory_mb(pid: int, kind: Literal["Pss", "Rss"]) -> float:
    """Return the memory of a process; of what several share, PSS has a part and RSS all."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{kind}:"))
    return int(kib) * 1024 / 1e6


def shares(marks: Sequence[dict[str, float]], count: int, per: str) -> list[Row]:
    """Return a row per process: what it used between two marks, by ``count`` things of name ``per``."""
    between = list(pairwise(marks))
    return [
        row(
            f"processor time per {per}: {name}",
            [(after[name] - before[name]) / count for before, after in between],
            "ms",
        )
        for name in PROCESSES
    ]
