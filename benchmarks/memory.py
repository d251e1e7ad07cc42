"""Peak RSS of each service that is started on a backlog: 100,000 records beside 1,000, the same work done on both."""

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.cluster import lessons, running_cluster
from benchmarks.rows import Row, row
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import Outgoing
from combee_schemas import topics
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

SMALL, LARGE = 1_000, 100_000
BAR = 1.2
TIMEOUT_S = 3_600.0
SERVICES = ("control", "publish", "reflect", "scan", "shuffle")
PLAYBOOKS = 20
BATCH_SIZE = 40
REFLECTED = 500
"""Traces that reflect must have got through before its peak counts."""
PLAYBOOK_TOKENS = 500
"""So small that playbooks are full early: what is learned must not be taken for what waits."""
CHUNK = 2_000
WAIT_S = 600.0
POLL_S = 0.5
KIB = 1024


def peak_mib(pid: int) -> float:
    """Return the most memory a process ever had (MiB)."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / KIB


def traces(number: int) -> list[Outgoing]:
    """Return small traces of playbooks of their own."""
    return [
        topics.TRACES.record(
            Trace(trace_id=f"t{n}", playbook=f"traced/{n % PLAYBOOKS}", task=f"Metric {n}?", answer="0")
        )
        for n in range(number)
    ]


async def last_in_line(log: KafkaLog) -> dict[int, list[Reflection]]:
    """Return one full batch per partition, of a playbook of its own."""
    waiting_lessons: dict[int, list[Reflection]] = {}
    wanted = await log.partitions(topics.REFLECTIONS.name)
    for number in count():
        name = f"last/{number}"
        partition = await log.partition_for(topics.REFLECTIONS.name, name.encode())
        waiting_lessons.setdefault(partition, lessons(name, BATCH_SIZE))
        if len(waiting_lessons) == wanted:
            return waiting_lessons
    raise AssertionError  # count() has no end


async def fill(log: KafkaLog, number: int) -> list[str]:
    """Write the backlog; return the playbooks that stand last in it, one per partition."""
    each = number // PLAYBOOKS
    waiting = [lessons(f"backlog/{n}", each) for n in range(PLAYBOOKS)]
    records = [
        topics.REFLECTIONS.record(reflection) for turn in zip(*waiting, strict=True) for reflection in turn
    ] + traces(number)
    for start in range(0, len(records), CHUNK):
        await log.produce(*records[start : start + CHUNK])
    last = await last_in_line(log)
    await log.produce(
        *(topics.REFLECTIONS.record(reflection) for queue in last.values() for reflection in queue)
    )
    return [queue[0].playbook for queue in last.values()]


async def peaks(bootstrap_servers: str, number: int) -> dict[str, float]:
    """Return each service's peak (MiB) once shuffle has read the backlog and the others have had their share."""
    last: list[str] = []

    async def before(log: KafkaLog) -> None:
        last.extend(await fill(log, number))

    async with running_cluster(
        bootstrap_servers,
        roles=SERVICES,
        before=before,
        batch_size=BATCH_SIZE,
        playbook_tokens=PLAYBOOK_TOKENS,
        max_wait_s=2.0,
    ) as cluster:
        playbooks = cluster.subscriber.playbooks
        await cluster.subscriber.until(lambda: all(playbooks.latest(name).version for name in last), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while await reflected(cluster.log) < REFLECTED:  # noqa: ASYNC110 - offsets are only to be asked for
                await asyncio.sleep(POLL_S)
        return {name: peak_mib(cluster.supervisor.pid(name)) for name in SERVICES}


async def reflected(log: KafkaLog) -> int:
    """Return how many traces reflect has finished."""
    return sum((await log.committed("reflect", topics.TRACES.name)).values())


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return peaks and ratios per service."""
    small, large = [], []
    for _ in range(runs):
        small.append(await peaks(bootstrap_servers, SMALL))
        large.append(await peaks(bootstrap_servers, LARGE))
    return [line for name in SERVICES for line in _rows(name, small, large)]


def _rows(
    name: str, small: Sequence[dict[str, float]], large: Sequence[dict[str, float]]
) -> tuple[Row, Row, Row]:
    few, many = [memory[name] for memory in small], [memory[name] for memory in large]
    return (
        row(f"rss_{name}_{SMALL}", few, "MiB"),
        row(f"rss_{name}_{LARGE}", many, "MiB"),
        row(f"rss_{name}_ratio", [b / a for a, b in zip(few, many, strict=True)], "×", BAR),
    )
