"""The SDK: what publishing costs an agent, and how long a new version takes to reach subscribers."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from statistics import quantiles
from uuid import uuid4

from benchmarks.cluster import fresh, lessons
from benchmarks.rows import Row, row
from combee import Client
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import Outgoing
from combee.assembly import backends
from combee.process.settings.loading import load_settings
from combee.sdk import PlaybookView
from combee_schemas import topics
from combee_schemas.playbook import Entry, Playbook

TIMEOUT_S = 600.0
WAIT_S = 60.0
CALLS = 20_000
WAIT_BAR_US = 1_000.0
SUBSCRIBERS = (1, 10, 100)
PROCESSES = 4
"""Subscribers share so many processes; agents have one each, and as many machines."""
UPDATES = 40
EVERY_S = 0.15
PUSH_BAR_MS = 100.0


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows; nothing here asks a model."""
    settings = load_settings(
        bootstrap_servers=bootstrap_servers, topic_prefix=f"bench-{uuid4().hex[:8]}", model="simulated"
    )
    connected = backends.connection(settings, bootstrap_servers)
    await backends.create_topics(settings, connected)
    where = bootstrap_servers, settings.kafka.topic_prefix
    published = [await asyncio.to_thread(_publish, *where) for _ in range(runs)]
    rows = [
        row("publish, calls", [run.calls_per_s for run in published], "/s"),
        row("publish, the caller's wait, p50", [run.p50_us for run in published], "µs"),
        row("publish, the caller's wait, p99", [run.p99_us for run in published], "µs", WAIT_BAR_US),
        row("publish, delivered", [run.delivered_per_s for run in published], "/s"),
    ]
    log = KafkaLog(connected)
    try:
        for count in SUBSCRIBERS:
            rows += await _push(log, where, count, runs)
    finally:
        await log.close()
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One run of publishing as fast as calls return."""

    calls_per_s: float
    p50_us: float
    p99_us: float
    delivered_per_s: float


def _publish(bootstrap_servers: str, prefix: str) -> Published:
    given = lessons(fresh("sdk"), CALLS)
    with Client(bootstrap_servers, prefix=prefix, max_messages=CALLS) as client:
        client.ready(WAIT_S)
        waits_ns = []
        began = time.perf_counter()
        for reflection in given:
            before = time.perf_counter_ns()
            client.publish(reflection)
            waits_ns.append(time.perf_counter_ns() - before)
        called = time.perf_counter()
        counts = client.flush(WAIT_S)
        done = time.perf_counter()
    if counts.delivered != CALLS:
        raise TimeoutError(f"{counts.delivered} of {CALLS} reflections were delivered within {WAIT_S} s")
    cuts = quantiles(waits_ns, n=100)
    return Published(
        calls_per_s=CALLS / (called - began),
        p50_us=cuts[49] / 1e3,
        p99_us=cuts[98] / 1e3,
        delivered_per_s=CALLS / (done - began),
    )


async def _push(log: KafkaLog, where: tuple[str, str], count: int, runs: int) -> list[Row]:
    """Return how long versions take from before they are written until callbacks have them, in milliseconds."""
    middle, late = [], []
    for _ in range(runs):
        latencies = await _latencies(log, where, count)
        cuts = quantiles(latencies, n=100)
        middle.append(cuts[49])
        late.append(cuts[98])
    who = f"{count} subscriber{'s' if count > 1 else ''}"
    return [
        row(f"update to {who}, p50", middle, "ms"),
        row(f"update to {who}, p99", late, "ms", PUSH_BAR_MS),
    ]


async def _latencies(log: KafkaLog, where: tuple[str, str], count: int) -> list[float]:
    name, shares = fresh("push"), _shares(count)
    await log.produce(_version(name, 1))
    spawn = multiprocessing.get_context("spawn")
    pipes, workers = list[Pipe](), list[SpawnProcess]()
    try:
        for share in shares:
            ours, theirs = spawn.Pipe()
            worker = spawn.Process(target=subscribe, args=(*where, name, share, theirs), daemon=True)
            worker.start()
            theirs.close()
            pipes.append(ours)
            workers.append(worker)
        await _answers(pipes)  # all have the first version
        for number in range(2, UPDATES + 2):
            await log.produce(_version(name, number))
            await asyncio.sleep(EVERY_S)
        return [latency for sample in await _answers(pipes) for latency in sample]
    finally:
        for worker in workers:
            await asyncio.to_thread(worker.join, WAIT_S)
            worker.kill()


def _shares(count: int) -> list[int]:
    processes = min(count, PROCESSES)
    return [len(range(at, count, processes)) for at in range(processes)]


async def _answers(pipes: Sequence[Pipe]) -> list[list[float]]:
    answers = []
    for pipe in pipes:
        if not await asyncio.to_thread(pipe.poll, WAIT_S):
            raise TimeoutError(f"a subscriber did not answer within {WAIT_S} s")
        answers.append(pipe.recv())
    return answers


def _version(name: str, number: int) -> Outgoing:
    entry = Entry(id="misc-00001", section="OTHERS", content=str(time.time_ns()))
    playbook = Playbook(name=name, version=number, entries=(entry,))
    return topics.PLAYBOOKS.record(playbook)


def subscribe(bootstrap_servers: str, prefix: str, name: str, count: int, pipe: Pipe) -> None:
    """Be ``count`` agents: tell when all have the first version, then how long each later one took (ms)."""
    lock, latencies, begun, ended = threading.Lock(), list[float](), [0], [0]
    all_begun, all_ended = threading.Event(), threading.Event()

    def hear(view: PlaybookView) -> None:
        now_ns = time.time_ns()
        with lock:
            if view.version == 1:
                begun[0] += 1
            else:
                latencies.append((now_ns - int(view.entries[0].content)) / 1e6)
            ended[0] += view.version == UPDATES + 1
            if begun[0] == count:
                all_begun.set()
            if ended[0] == count:
                all_ended.set()

    clients = [Client(bootstrap_servers, prefix=prefix) for _ in range(count)]
    for client in clients:
        client.on_update(name, hear)
    if all_begun.wait(WAIT_S):
        pipe.send([])
        if all_ended.wait(WAIT_S):
            pipe.send(latencies)
    for client in clients:
        client.close(1.0)
