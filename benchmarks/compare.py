"""``make bench-compare``: processor time per learned trace, this working tree against another commit.

Both sides are driven by their command lines only, so they may differ in every module. They share the broker and the
stand-in model, run beside each other and take turns, so whatever else the machine does hits both. What the services'
processes use for their own work counts; their start, the broker, the stand-in and the publishing command do not.
"""

import argparse
import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.broker import broker
from benchmarks.machine import describe
from benchmarks.paired import LEAST_PAIRS, estimate, exceeds, interval
from benchmarks.processor import process_ms
from benchmarks.report import show, write
from benchmarks.rows import Row, row
from benchmarks.sides import ROOT, Side, checked_out, default_base, output, side
from combee.adapters.ports import CombeeError, FatalError

ROLES = ("control", "publish", "scan", "shuffle", "reflect")
PAIRS = 8
LIMIT = 1.05
PAIRS_OF_A_START = 4
"""Processes differ a little from start to start."""
WARM_UP, WORK = 80, 400
"""Traces before the readings, and of each."""
LEARNING_S = 120.0
STOP_S = 20.0
LOOK_S = 0.05
SLOWER, UNMEASURED = 1, 2
Reading = Mapping[str, float]
"""Milliseconds of one core per trace, by role."""
Pair = tuple[Reading, Reading]
"""The base's, then this tree's."""
HERE = "this tree"


async def compare(base: str | None, pairs: int, console: Console) -> tuple[str, list[Pair]]:
    """Return the base's name and the readings of both sides, pair by pair."""
    async with AsyncExitStack() as stack:
        commit = base or await default_base()
        sides = (await stack.enter_async_context(checked_out(commit)), await side(HERE, ROOT))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="combee-compare-")))
        bootstrap_servers = await stack.enter_async_context(broker())
        model = await stack.enter_async_context(_process(sides[1], ("sim", "serve"), {}, folder))
        shared = {
            "COMBEE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "COMBEE_MODEL": "simulated",
            "COMBEE_BASE_URL": model.said,
            "COMBEE_API_KEY": "simulated",
            "COMBEE_LOG_LEVEL": "error",
        }
        measured: list[Pair] = []
        while len(measured) < pairs:
            given = shared | {"COMBEE_DATA_DIR": str(folder), "PYTHONHASHSEED": str(len(measured))}
            async with AsyncExitStack() as running:
                deployed = [
                    await running.enter_async_context(_deployed(checkout, given, folder))
                    for checkout in sides
                ]
                for _ in range(min(PAIRS_OF_A_START, pairs - len(measured))):
                    measured.append(await _pair(deployed, first=len(measured) % 2))
                    shown = " ÷ ".join(f"{_total(run):.2f} ms" for run in reversed(measured[-1]))
                    console.print(
                        f"[{len(measured)}/{pairs}] {HERE} ÷ {sides[0].name}: {shown}", markup=False
                    )
    return sides[0].name, measured


async def _pair(deployed: Sequence["_Deployed"], *, first: int) -> Pair:
    """Let both sides do the same work; who begins changes, so a machine that slows down wrongs each in turn."""
    readings: dict[int, Reading] = {}
    for n in (first, 1 - first):
        readings[n] = await deployed[n].reading(WORK)
    return readings[0], readings[1]


@dataclass(slots=True, kw_only=True)
class _Deployed:
    """The running services of one side."""

    side: Side
    environment: Mapping[str, str]
    folder: Path
    workers: Mapping[str, int]
    """Role → process."""
    readings: int = 0

    async def reading(self, count: int) -> Reading:
        """Learn from so many traces, all of them new; return what each role used per trace."""
        self.readings += 1
        before = {role: process_ms(pid) for role, pid in self.workers.items()}
        await _learn(self.side, self.environment, self.folder, self.readings, count)
        return {role: (process_ms(pid) - before[role]) / count for role, pid in self.workers.items()}


@asynccontextmanager
async def _deployed(side: Side, given: Mapping[str, str], folder: Path) -> AsyncIterator[_Deployed]:
    """Run the services of a side under a prefix of their own, warm, while the context is open."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    given = {**given, "COMBEE_TOPIC_PREFIX": folder.name}
    env = {**side.environment, **given}
    async with AsyncExitStack() as running:
        await output(*side.command, "topics", "create", env=env, folder=folder)
        started = [_process(side, ("worker", role), given, folder) for role in ROLES]
        workers = await asyncio.gather(*map(running.enter_async_context, started))
        pids = {role: worker.pid for role, worker in zip(ROLES, workers, strict=True)}
        deployed = _Deployed(side=side, environment=env, folder=folder, workers=pids)
        await deployed.reading(WARM_UP)
        yield deployed


async def _learn(side: Side, env: Mapping[str, str], folder: Path, number: int, count: int) -> None:
    """Learn from so many traces and wait until all of them are applied."""
    file = folder / f"{number}.jsonl"
    file.write_text("".join(f"{json.dumps(_trace(number, n))}\n" for n in range(count)), "utf-8")
    async with asyncio.timeout(LEARNING_S):
        said = await output(
            *side.command,
            "learn",
            str(file),
            "--playbook",
            f"compare/{number}",
            "--json",
            env=env,
            folder=folder,
        )
    counts = json.loads(said)["reflections"]
    if counts["applied"] != count:
        raise FatalError(f"{side.name} applied {counts} of {count} traces")


def _trace(number: int, n: int) -> dict[str, str]:
    return {
        "trace_id": f"{number}-{n}",
        "task": f"Report metric {n} of plant {number}: 37 of 1480 units.",
        "trajectory": f"Looked up metric {n}. Divided 37 by 1480 and reported the plain quotient. " * 4,
        "answer": "0.025",
        "target": "2.5 %",
        "feedback": f"Wrong: metric {n} of plant {number} is a percentage with {n % 4} decimals.",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    pid: int
    said: str
    """What it wrote into its ready file."""


@asynccontextmanager
async def _process(
    side: Side, arguments: Sequence[str], given: Mapping[str, str], folder: Path
) -> AsyncIterator[_Running]:
    """Run a command that says when it is ready; it ends with the context."""
    ready, log = (folder / f"{'-'.join(arguments)}.{end}" for end in ("ready", "log"))
    with log.open("wb") as lines:
        process = await asyncio.create_subprocess_exec(
            *side.command,
            *arguments,
            env={**side.environment, **given, "COMBEE_READY_FILE": str(ready)},
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
        )
    try:
        while not ready.exists():
            if process.returncode is not None:
                said = log.read_text("utf-8", errors="replace")[-2000:]
                raise FatalError(f"{side.name}: {' '.join(arguments)} ended:\n{said}")
            await asyncio.sleep(LOOK_S)
        yield _Running(pid=process.pid, said=ready.read_text("utf-8").strip())
    finally:
        await _stopped(process)


async def _stopped(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def rows(base: str, pairs: Sequence[Pair]) -> list[Row]:
    """Return each side's figures by role and in total, and what they say of each other."""
    shown = [
        row(f"{name}: {role}", [pair[n][role] for pair in pairs], "ms")
        for role in ROLES
        for n, name in enumerate((base, HERE))
    ]
    totals = [
        row(f"{name}: all services", [_total(pair[n]) for pair in pairs], "ms")
        for n, name in enumerate((base, HERE))
    ]
    ratios = ratios_of(pairs)
    low, high = interval(ratios)
    verdict = Row(
        name=f"{HERE} ÷ {base}, with its 95 % interval",
        value=round(estimate(ratios), 4),
        unit="×",
        bar=LIMIT,
        at_least=False,
        min=round(low, 4),
        max=round(high, 4),
        runs=len(ratios),
    )
    return [*shown, *totals, verdict]


def ratios_of(pairs: Sequence[Pair]) -> list[float]:
    """Return what this tree uses of what the base uses, pair by pair."""
    return [_total(after) / _total(before) for before, after in pairs]


def _total(reading: Reading) -> float:
    return sum(reading.values())


def main() -> int:
    """Compare; 1 only if this tree certainly uses over 5 % more, 2 if nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument(
        "base", nargs="?", help="a commit; HEAD if files differ from it, else the one before it"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"readings of each side ({PAIRS})")
    asked = parser.parse_args()
    if asked.pairs < LEAST_PAIRS:
        parser.error(f"--pairs: {LEAST_PAIRS} at least, for an interval of 95 %")
    console, machine = Console(), describe()
    try:
        base, pairs = asyncio.run(compare(asked.base, asked.pairs, console))
    except (CombeeError, OSError, TimeoutError) as error:
        console.print(f"not measured: {error!r}", style="red", markup=False)
        return UNMEASURED
    measured = rows(base, pairs)
    show(console, "compare", measured)
    write("compare", measured, machine)
    slower = exceeds(ratios_of(pairs), LIMIT)
    console.print(
        "this tree uses over 5 % more" if slower else "no more than 5 %, as far as this run can tell"
    )
    return SLOWER if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
