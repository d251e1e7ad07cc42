"""``make bench-compare``: processor time per learned trace, this working tree against another commit.

Both sides are driven by their command lines only, so they may differ in every module. They share the broker and the
stand-in model and take turns; every reading has processes, topics and a warm-up of its own. What the services'
processes use while they learn counts; their start, the broker, the stand-in and the publishing command do not.
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
from combee.ports import CombeeError, FatalError

ROLES = ("control", "publish", "scan", "shuffle", "reflect")
PAIRS = 8
LIMIT = 1.05
WARM_UP, WORK = 80, 400
"""Traces before and between the two marks of a reading."""
READING_S = 180.0
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
    async with AsyncExitStack() as staged:
        commit = base or await default_base()
        sides = (await staged.enter_async_context(checked_out(commit)), await side(HERE, ROOT))
        folder = Path(staged.enter_context(tempfile.TemporaryDirectory(prefix="combee-compare-")))
        bootstrap_servers = await staged.enter_async_context(broker())
        model = await staged.enter_async_context(_process(sides[1], ("sim", "serve"), {}, folder))
        shared = {
            "COMBEE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "COMBEE_MODEL": "simulated",
            "COMBEE_BASE_URL": model.said,
            "COMBEE_API_KEY": "simulated",
            "COMBEE_LOG_LEVEL": "error",
        }
        found = []
        for pair in range(pairs):
            readings: dict[int, Reading] = {}
            for n in (0, 1) if pair % 2 == 0 else (1, 0):  # a machine that slows down wrongs each in turn
                own = {
                    "COMBEE_TOPIC_PREFIX": f"compare-{pair}-{n}",
                    "COMBEE_DATA_DIR": str(folder),
                    "PYTHONHASHSEED": str(pair),
                }
                readings[n] = await _reading(sides[n], shared | own, folder)
                console.print(
                    f"[{pair + 1}/{pairs}] {sides[n].name}: {_total(readings[n]):.2f} ms", markup=False
                )
            found.append((readings[0], readings[1]))
    return sides[0].name, found


async def _reading(side: Side, given: Mapping[str, str], folder: Path) -> Reading:
    """Return what one deployment uses per trace once it is warm."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    env = {**side.environment, **given}
    async with asyncio.timeout(READING_S), AsyncExitStack() as running:
        await output(*side.command, "topics", "create", env=env, folder=folder)
        started = [_process(side, ("worker", role), given, folder) for role in ROLES]
        workers = await asyncio.gather(*map(running.enter_async_context, started))
        await _learn(side, env, folder, WARM_UP)
        before = [process_ms(worker.pid) for worker in workers]
        await _learn(side, env, folder, WORK)
        after = [process_ms(worker.pid) for worker in workers]
    return {role: (then - first) / WORK for role, first, then in zip(ROLES, before, after, strict=True)}


async def _learn(side: Side, env: Mapping[str, str], folder: Path, count: int) -> None:
    """Learn from so many traces and wait until all of them are applied."""
    file = folder / f"{count}.jsonl"
    file.write_text("".join(f"{json.dumps(_trace(count, n))}\n" for n in range(count)), "utf-8")
    report = json.loads(
        await output(
            *side.command,
            "learn",
            str(file),
            "--playbook",
            f"compare/{count}",
            "--json",
            env=env,
            folder=folder,
        )
    )
    if report["reflections"]["applied"] != count:
        raise FatalError(f"{side.name} applied {report['reflections']} of {count} traces")


def _trace(count: int, n: int) -> dict[str, str]:
    return {
        "trace_id": f"{count}-{n}",
        "task": f"Report metric {n} of plant {count}: 37 of 1480 units.",
        "trajectory": f"Looked up metric {n}. Divided 37 by 1480 and reported the plain quotient. " * 4,
        "answer": "0.025",
        "target": "2.5 %",
        "feedback": f"Wrong: metric {n} of plant {count} is a percentage with {n % 4} decimals.",
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
    found = rows(base, pairs)
    show(console, "compare", found)
    write("compare", found, machine)
    slower = exceeds(ratios_of(pairs), LIMIT)
    console.print(
        "this tree uses over 5 % more" if slower else "no more than 5 %, as far as this run can tell"
    )
    return SLOWER if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
