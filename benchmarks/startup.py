"""Start-up: what a fresh process takes to import the library and to show help, beside its dependencies."""

import asyncio
import sys
import time

from benchmarks.rows import Row, row
from combee.adapters.ports import FatalError

TIMEOUT_S = 300.0
LEAST_RUNS = 7
PROCESS_S = 30.0
HELP, HELP_BAR_MS = "combee --help", 400.0
COMMANDS = {
    "bare Python": ("-c", "pass"),
    "import aiokafka, pydantic": ("-c", "import aiokafka, pydantic"),
    "import combee, all that an agent uses": ("-c", "from combee import AsyncClient, Client, Trace"),
    HELP: ("-m", "combee.cli", "--help"),
}


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the milliseconds of each; they take turns, so that all see the same machine."""
    del bootstrap_servers
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(max(runs, LEAST_RUNS) + 1):
        for name, arguments in COMMANDS.items():
            taken[name].append(await _process_ms(*arguments))
    return [  # the first fills the file cache
        row(name, times[1:], "ms", HELP_BAR_MS if name == HELP else None) for name, times in taken.items()
    ]


async def _process_ms(*arguments: str) -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PROCESS_S):
        _, said = await process.communicate()
    if process.returncode:
        raise FatalError(f"{' '.join(arguments)}: {said.decode(errors='replace')}")
    return (time.monotonic() - began) * 1000
