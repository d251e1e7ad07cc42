"""Processor time and memory of a deployment's processes: what a busy machine changes least.

As a benchmark: what a reflection costs each service, with empty playbooks and with full ones; the model is instant.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

import psutil

from benchmarks.cluster import ROLES, Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row
from combee.core.methods.ace import aggregate_prompt
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.versions import empty
from combee_schemas import topics
from combee_schemas.codec import decode, encode
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.trace import Trace

T = TypeVar("T")

PROCESSES = (*ROLES, "sim")
TIMEOUT_S = 1_200.0
BATCH_SIZE = 40
PLAYBOOKS, EACH = 8, 400
FULL_TOKENS = 16_000
"""The default budget of a playbook."""
BAR, FULL_BAR = 1.3, 1.3
TRACES = 1_000
CALLS = 100
POLL_S = 0.2
MIB = 1 << 20
Marks = Sequence[Mapping[str, float]]


def used_ms(cluster: Cluster, processes: Sequence[str] = PROCESSES) -> dict[str, float]:
    """Return what each process has used so far, in milliseconds of one core."""
    return {name: process_ms(cluster.supervisor.pid(name)) for name in processes}


def process_ms(pid: int) -> float:
    """Return what a process has used so far, user and system."""
    times = psutil.Process(pid).cpu_times()
    return 1000 * float(times.user + times.system)


def memory_mb(pid: int, kind: Literal["Pss", "Rss"]) -> float:
    """Return the memory of a process; of what several share, PSS has a part and RSS all."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{kind}:"))
    return int(kib) * 1024 / 1e6


def shares(marks: Marks, count: int, per: str) -> list[Row]:
    """Return a row per process: what it used between two marks, by ``count`` things of name ``per``."""
    return [row(f"processor time per {per}: {name}", _each(marks, [name], count), "ms") for name in marks[0]]


def _each(marks: Marks, names: Sequence[str], count: int) -> list[float]:
    """Return what some processes used together between two marks, by ``count``."""
    return [sum(after[name] - before[name] for name in names) / count for before, after in pairwise(marks)]


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return what a reflection costs each service where playbooks are empty and where they are full, and a trace."""
    empty, _ = await _learned(bootstrap_servers, runs, full=False)
    full, scan_mib = await _learned(bootstrap_servers, runs, full=True)
    traced, calls = await _traced(bootstrap_servers, runs)
    count = PLAYBOOKS * EACH
    ratios = [
        after / before
        for before, after in zip(_each(empty, ROLES, count), _each(full, ROLES, count), strict=True)
    ]
    return [
        *shares(empty, count, "reflection"),
        row("processor time per reflection: all services", _each(empty, ROLES, count), "ms", BAR),
        *shares(full, count, f"reflection, playbooks of {FULL_TOKENS} tokens"),
        row("the same with full playbooks, by that with empty ones", ratios, "×", FULL_BAR),
        row(
            f"scan's memory after {runs * count} more reflections, by that before",
            [scan_mib[-1] / scan_mib[0]],
            "×",
            1.2,
        ),
        *shares(traced, TRACES, "trace"),
        row("processor time per call of the model, of who asks", calls, "ms"),
        *_versions(runs),
    ]


async def _learned(bootstrap_servers: str, runs: int, *, full: bool) -> tuple[Marks, list[float]]:
    """Return what was used before and after each burst of reflections, and scan's memory; the first one warms up."""
    marks, scan_mib = [], []
    async with running_cluster(
        bootstrap_servers, batch_size=BATCH_SIZE, playbook_tokens=FULL_TOKENS
    ) as cluster:
        names = [fresh(f"load{n}") for n in range(PLAYBOOKS)]
        if full:
            await _filled(cluster, names)
        for burst in range(runs + 1):
            await _burst(cluster, names if full else [f"{name}/{burst}" for name in names], burst)
            marks.append(used_ms(cluster))
            scan_mib.append(psutil.Process(cluster.supervisor.pid("scan")).memory_info().rss / MIB)
    return marks, scan_mib


async def _filled(cluster: Cluster, names: Sequence[str]) -> None:
    """Import as many entries as the budget allows into each playbook."""
    await cluster.log.produce(*(topics.COMMANDS.record(_import(name)) for name in names))
    latest = cluster.subscriber.playbooks.latest
    await cluster.subscriber.until(lambda: all(latest(name).version for name in names))


def _import(name: str) -> Command:
    entries: list[Entry] = []
    left = FULL_TOKENS
    while left >= 0:
        n = len(entries)
        content = f"When asked for Figure {n} of {name}, answer in percent with {n % 4} decimals."
        evidence = tuple(f"{name}/known/{n}/{m}" for m in range(3))
        section = ACE_SECTIONS[n % len(ACE_SECTIONS)]
        entry = Entry(
            id=f"known-{n:05d}", section=section, content=content, evidence=evidence, evidence_count=3
        )
        left -= entry_tokens(entry)
        entries.append(entry)
    return Command(command_id=f"{name}/full", playbook=name, kind="import", entries=tuple(entries[:-1]))


async def _burst(cluster: Cluster, names: Sequence[str], burst: int) -> None:
    """Publish the same number of new lessons for each playbook and wait until all of them are learned."""
    latest = cluster.subscriber.playbooks.latest
    wanted = {name: latest(name).batch_sequence + EACH // BATCH_SIZE for name in names}
    new = slice(burst * EACH, (burst + 1) * EACH)
    await cluster.publish([lesson for name in names for lesson in lessons(name, new.stop)[new]])
    await cluster.subscriber.until(
        lambda: all(latest(name).batch_sequence >= sequence for name, sequence in wanted.items())
    )


async def _traced(bootstrap_servers: str, runs: int) -> tuple[Marks, list[float]]:
    """Return what reflect used before and after each burst of traces, and what a call takes of this process."""
    marks, calls = [], []
    async with running_cluster(bootstrap_servers, roles=("reflect",)) as cluster:
        for burst in range(runs + 1):
            before = await _reflections(cluster)
            await cluster.log.produce(*(topics.TRACES.record(_trace(burst, n)) for n in range(TRACES)))
            while await _reflections(cluster) < before + TRACES:  # noqa: ASYNC110 - offsets are only to be asked for
                await asyncio.sleep(POLL_S)
            marks.append(used_ms(cluster, ("reflect", "sim")))
        for _ in range(runs):
            asked = [aggregate_prompt(empty("asked"), lessons(fresh("asked"), 13)) for _ in range(CALLS)]
            calls.append(await _calls_ms(cluster, asked))
    return marks, calls


async def _calls_ms(cluster: Cluster, prompts: Sequence[Prompt]) -> float:
    began = time.process_time()
    for prompt in prompts:
        await cluster.model.ask(prompt)
    return 1000 * (time.process_time() - began) / len(prompts)


def _versions(runs: int) -> list[Row]:
    """Return what it takes to write and to read a full version, and the next one, of which 40 entries are new."""
    taken: dict[str, list[float]] = defaultdict(list)

    def timed(what: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        result = work()
        taken[f"a version of {FULL_TOKENS} tokens, {what}"].append(1000 * (time.process_time() - began))
        return result

    for _ in range(runs):
        entries = _import(fresh("version")).entries
        first = Playbook(name="a", version=1, entries=entries[BATCH_SIZE:])
        placed = first.model_copy(update={"history_offset": 1})
        second = first.model_copy(update={"version": 2, "entries": entries})
        raw = timed("written", partial(encode, first))
        timed("written again", partial(encode, placed))
        timed("read", partial(decode, raw, Playbook))
        timed("read, 40 entries new", partial(decode, encode(second), Playbook))
    return [row(what, values, "ms") for what, values in taken.items()]


async def _reflections(cluster: Cluster) -> int:
    """Return how many reflections were written."""
    return sum((await cluster.log.ends(topics.REFLECTIONS.name)).values())


def _trace(burst: int, n: int) -> Trace:
    return Trace(
        trace_id=f"{burst}-{n}",
        playbook=f"traced/{n % PLAYBOOKS}",
        task=f"Report metric {n} of plant {burst}: 37 of 1480 units.",
        trajectory=f"Looked up metric {n}. Divided 37 by 1480 and reported the plain quotient. " * 4,
        answer="0.025",
        target="2.5 %",
        feedback=f"Wrong: metric {n} of plant {burst} is a percentage with {n % 4} decimals.",
    )
