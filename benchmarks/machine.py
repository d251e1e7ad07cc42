"""What the figures were taken on."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")


def describe() -> dict[str, str]:
    """Return the machine in words, and when it was asked."""
    return {
        "cpu": f"{_first(CPUINFO, 'model name') or platform.machine()}, {os.cpu_count()} cores",
        "memory": _gib(_first(MEMINFO, "MemTotal")),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f} before the run",
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),  # noqa: TID251 - a label, nothing is timed
        "model": "simulated",
    }


def _first(path: Path, name: str) -> str:
    """Return the value of the first line ``name: value``; empty where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _gib(kib: str) -> str:
    return f"{int(kib.split(maxsplit=1)[0]) / (1 << 20):.0f} GiB" if kib else "unknown"
