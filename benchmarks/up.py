"""``combee up`` as users run it: the memory of all its processes with the broker, and what verbs beside it take."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.processor import memory_mb
from benchmarks.rows import Row, row
from benchmarks.sides import FOREIGN, output
from combee.adapters.ports import FatalError
from combee.process.settings.loading import environment

TIMEOUT_S = 900.0
READY_S = 90.0
STOP_S = 30.0
POLL_S = 0.1
SETTLE_S = 5.0
"""After the last batch."""
NAME = "bench/up"
REFLECTIONS = 80
MEMORY_BAR_MB = 680.0
VERB_BAR_S, COMPLETION_BAR_S = 1.0, 0.5
COMBEE = (sys.executable, "-m", "combee.cli")
COMPLETED = "combee playbook show ben"
COMPLETION = {
    "_COMBEE_COMPLETE": "complete_bash",
    "COMP_WORDS": COMPLETED,
    "COMP_CWORD": str(COMPLETED.count(" ")),
}
COMPLETE = "import sys; sys.argv[0] = 'combee'; from combee.cli.__main__ import main; main()"
"""What the installed script does, by whose name the shell asks."""
ALL = "all processes with the broker"


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the memory after a batch, and the seconds of verbs; each run is a start with a broker of its own."""
    del bootstrap_servers
    memory: dict[str, list[float]] = {}
    taken: dict[str, list[float]] = {}
    for _ in range(runs):
        async with _up() as (root, env):
            await _learn(env)
            await asyncio.sleep(SETTLE_S)
            for name, value in _memory_mb(root).items():
                memory.setdefault(name, []).append(value)
            for name, seconds in (await _verbs_s(env)).items():
                taken.setdefault(name, []).append(seconds)
    return [*_memory_rows(memory), *(_verb_row(name, seconds) for name, seconds in taken.items())]


@asynccontextmanager
async def _up() -> AsyncIterator[tuple[psutil.Process, Mapping[str, str]]]:
    """Run ``combee up`` in a folder of its own; yield its process, and the environment in which verbs find it."""
    kept = {name: value for name, value in environment().items() if not name.startswith(FOREIGN)}
    with tempfile.TemporaryDirectory(prefix="combee-bench-", ignore_cleanup_errors=True) as folder:
        env = kept | {"COMBEE_DATA_DIR": folder, "COMBEE_GATEWAY_PORT": "0"}
        with (Path(folder) / "up.log").open("wb") as log:
            running = await asyncio.create_subprocess_exec(
                *(*COMBEE, "up", "--simulated"), env=env, cwd=folder, stdout=log, stderr=log
            )
        try:
            await _ready(running, Path(folder))
            yield psutil.Process(running.pid), env
        finally:
            if running.returncode is None:
                running.terminate()
            async with asyncio.timeout(STOP_S):
                await running.wait()


async def _ready(running: asyncio.subprocess.Process, folder: Path) -> None:
    """Wait until the file of the stack names the gateway's address: that is the last that is started."""
    async with asyncio.timeout(READY_S):
        while not _serves(folder):
            if running.returncode is not None:
                raise FatalError(f"combee up has ended:\n{(folder / 'up.log').read_text('utf-8')[-2000:]}")
            await asyncio.sleep(POLL_S)


def _serves(folder: Path) -> bool:
    return any("http" in json.loads(file.read_text("utf-8")) for file in folder.glob("stack-*.json"))


async def _learn(env: Mapping[str, str]) -> None:
    file = Path(env["COMBEE_DATA_DIR"]) / "lessons.jsonl"
    lines = [
        json.dumps({"reflection_id": f"r{n}", "key_insight": f"Metric {n}: {n % 4} decimals."})
        for n in range(REFLECTIONS)
    ]
    file.write_text("\n".join(lines), "utf-8")
    await output(*COMBEE, "learn", str(file), "--playbook", NAME, env=env)


# ---- memory


def _memory_mb(root: psutil.Process) -> dict[str, float]:
    """Return the memory of each process, and of all; what several share is divided among them (PSS)."""
    by_name: dict[str, float] = {}
    for process in (root, *root.children(recursive=True)):
        name = "up" if process == root else _name(process.cmdline())
        by_name[name] = by_name.get(name, 0.0) + memory_mb(process.pid, "Pss")
    return {ALL: sum(by_name.values()), **by_name}


def _name(command: Sequence[str]) -> str:
    """Return what a process of the deployment is."""
    if "kafka.Kafka" in command and not any(word.endswith("guard.py") for word in command):
        return "broker"
    roles = [after for word, after in pairwise(command) if word == "worker"]
    return next(iter(roles), "sim" if "sim" in command else "other")


def _memory_rows(memory: Mapping[str, list[float]]) -> list[Row]:
    return [
        row(f"memory of combee up (PSS): {name}", values, "MB", MEMORY_BAR_MB if name == ALL else None)
        for name, values in memory.items()
    ]


# ---- verbs


async def _verbs_s(env: Mapping[str, str]) -> dict[str, float]:
    """Return how many seconds verbs take on the running deployment; once before, so that files are in the cache."""
    verbs = {
        "combee status": ((*COMBEE, "status"), env),
        "combee playbook show": ((*COMBEE, "playbook", "show", NAME), env),
        "completion of a playbook's name": ((sys.executable, "-c", COMPLETE), {**env, **COMPLETION}),
    }
    taken = {}
    for name, (command, given) in verbs.items():
        await output(*command, env=given)
        began = time.monotonic()
        said = await output(*command, env=given)
        taken[name] = time.monotonic() - began
        if NAME not in said:
            raise FatalError(f"{name} does not name {NAME}:\n{said}")
    return taken


def _verb_row(name: str, seconds: Sequence[float]) -> Row:
    return row(name, seconds, "s", COMPLETION_BAR_S if name.startswith("completion") else VERB_BAR_S)
