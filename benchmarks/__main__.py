"""``make bench``: all benchmarks, or those named, on the embedded broker (or COMBEE_BOOTSTRAP_SERVERS).

A benchmark is a module with ``TIMEOUT_S`` and ``async measure(bootstrap_servers, runs) -> list[Row]``.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from rich.console import Console

from benchmarks.broker import broker
from benchmarks.machine import describe
from benchmarks.report import show, write
from benchmarks.rows import Row
from combee.adapters.ports import CombeeError
from combee.process.telemetry.logs import configure_logs

NAMES = (
    "startup",
    "verbs",
    "overhead",
    "hops",
    "scaling",
    "stragglers",
    "tenants",
    "throughput",
    "processor",
    "idle",
    "sdk",
    "restart",
    "pause",
    "recovery",
    "many",
    "ledger",
    "forget",
    "up",
    "gateway",
    "memory",
    "calls",
    "codec",
    "gepa",
)
RUNS = 5


def asked() -> argparse.Namespace:
    """Return what the command line asks for."""
    there = [name for name in NAMES if find_spec(f"benchmarks.{name}")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="All of it, or parts by name.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(there))
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the median is shown")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(there)):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(there)}")
    arguments.names = arguments.names or there
    return arguments


async def run_all(names: Sequence[str], runs: int, console: Console) -> list[str]:
    """Run each within its time; return the names of those that gave no result."""
    failed = []
    async with broker() as bootstrap_servers:
        for number, name in enumerate(names, 1):
            machine, began = describe(), time.monotonic()
            console.print(f"[{number}/{len(names)}] {name} …", markup=False)
            try:
                rows = await _measured(name, bootstrap_servers, runs)
            except (CombeeError, OSError, TimeoutError) as error:
                failed.append(name)
                console.print(f"{name} failed after {time.monotonic() - began:.0f} s: {error!r}", style="red")
                continue
            show(console, f"{name}, {time.monotonic() - began:.0f} s", rows)
            write(name, rows, machine)
    return failed


async def _measured(name: str, bootstrap_servers: str, runs: int) -> list[Row]:
    module = import_module(f"benchmarks.{name}")
    async with asyncio.timeout(module.TIMEOUT_S):
        rows: list[Row] = await module.measure(bootstrap_servers, runs)
    return rows


def main() -> int:
    """Run; 1 when a benchmark gave no result. A missed bar is shown, not an error."""
    arguments = asked()
    configure_logs("error", json=False)  # workers that end are what some benchmarks are about
    failed = asyncio.run(run_all(arguments.names, arguments.runs, Console()))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
