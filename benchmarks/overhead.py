"""Overhead: last ack to playbook at a subscriber, by what the model's own log makes the least possible."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cluster import Cluster, fresh, lessons, running_cluster
from benchmarks.gather import in_process
from benchmarks.ideal import Ideal, ideal, logged_calls
from benchmarks.rows import Row, row
from combee.adapters.ports import TopicPartition
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.codec import decode

TIMEOUT_S = 420.0
GATHER_BAR = 1.05
WARM_UP = 4
"""Batches before the first that counts: by then broker and services have compiled and imported what they use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load; the bar is a multiple of the ideal."""

    name: str
    reflections: int
    latency: str
    concurrency: int
    bar: float
    beside_gather: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(name="n = 40, L = 1 s", reflections=40, latency="1", concurrency=8, bar=1.06, beside_gather=True),
    Case(name="n = 144, L = 0.5 s", reflections=144, latency="0.5", concurrency=16, bar=1.15),
    Case(name="n = 400, L = 0.5 s", reflections=400, latency="0.5", concurrency=32, bar=1.25),
    Case(
        name="n = 144, three levels, log-normal L, 8 in flight",
        reflections=144,
        latency="lognormal:0.5,0.5",
        concurrency=8,
        bar=1.15,
        settings={"fan_in": 4},
    ),
)


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows of every case; those beside a gather tree take turns with it on the same stand-in."""
    return [measured for case in CASES for measured in await _case(bootstrap_servers, case, runs)]


async def _case(bootstrap_servers: str, case: Case, runs: int) -> list[Row]:
    ratios, behind_ms, greedy, plain, beside = [], [], [], [], []
    async with running_cluster(
        bootstrap_servers,
        latency=case.latency,
        batch_size=case.reflections,
        llm_concurrency=case.concurrency,
        **case.settings,
    ) as cluster:
        for _ in range(WARM_UP):
            await _through(cluster, case)
        if case.beside_gather:
            await in_process(cluster.model, lessons(fresh("warm"), case.reflections))
        for _ in range(runs):
            took_s, best = await _through(cluster, case)
            ratios.append(took_s / best.least_s)
            greedy.append(took_s / best.greedy_s)
            behind_ms.append((took_s - best.least_s) * 1000)
            if case.beside_gather:
                alone_s = await in_process(cluster.model, lessons(fresh("alone"), case.reflections))
                plain.append(alone_s / best.least_s)
                beside.append(took_s / alone_s)
    rows = [
        row(f"overhead, {case.name}", ratios, "× ideal", case.bar),
        row(f"overhead, {case.name}", greedy, "× greedy schedule"),
        row(f"behind the ideal, {case.name}", behind_ms, "ms"),
    ]
    if case.beside_gather:
        rows.append(row(f"gather tree, {case.name}", plain, "× ideal"))
        rows.append(row(f"overhead, {case.name}", beside, "× gather tree", GATHER_BAR))
    return rows


async def _through(cluster: Cluster, case: Case) -> tuple[float, Ideal]:
    """Return how many seconds a batch took from its last ack, and what it must have taken."""
    given = lessons(fresh("run"), case.reflections)
    name = given[0].playbook
    acked = await cluster.publish(given)
    took_s = await cluster.through(name) - acked
    batch = await _manifest(cluster, name)
    seconds = logged_calls(cluster.call_log)
    # In a thread: virtual time has a loop of its own.
    return took_s, await asyncio.to_thread(ideal, batch, given, seconds, case.concurrency)


async def _manifest(cluster: Cluster, name: str) -> Batch:
    at = cluster.subscriber.playbooks.latest(name).manifest_offset
    partition = await cluster.log.partition_for(topics.BATCHES.name, name.encode())
    source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
    return decode((await cluster.log.read_at(source, [at]))[at].value, Batch)
