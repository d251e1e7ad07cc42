"""Recovery: kill -9 of a worker that asks → the next call; kill -9 of the broker → a learned reflection."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.cluster import ROLES, Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row
from combee.adapters.embedded_kafka import open_user_broker
from combee.adapters.embedded_kafka.data_dir import RunState
from combee.adapters.kafka import Reachability, is_ready
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import TransientError
from combee.log.inspection.audit import audit
from combee.process.settings.loading import environment
from combee.process.worker.retry import write
from combee_schemas import topics
from combee_schemas.trace import Trace

TIMEOUT_S = 900.0
BAR_S = 3.0
LATENCY_S = 1.0
CONCURRENCY = 4
REFLECTIONS = 64
"""Eight groups: two rounds of calls, so that some wait at the kill and some are in flight."""
TRACES = 16
WAIT_S = 60.0
POLL_S = 0.05

BROKER_BAR_S = 10.0
BATCH = 4
"""Reflections that close a window by their number: nobody waits for the clock."""
UP_TO_S = 2.0
"""So long after the work began, at most, the broker is killed."""

Give = Callable[[Cluster], Awaitable[None]]


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the seconds until work goes on, for each service that asks a model and for the broker."""
    return [
        await _recovered(bootstrap_servers, runs, "scan", ROLES, _reflections),
        await _recovered(bootstrap_servers, runs, "reflect", ("reflect",), _traces),
        *await _broker_killed(runs),
    ]


async def _recovered(
    bootstrap_servers: str, runs: int, service: str, roles: tuple[str, ...], give: Give
) -> Row:
    async with running_cluster(
        bootstrap_servers,
        roles=roles,
        latency=f"{LATENCY_S:g}",
        batch_size=REFLECTIONS,
        llm_concurrency=CONCURRENCY,
    ) as cluster:
        waits = [await _killed(cluster, service, give) for _ in range(runs + 1)]
    return row(f"kill -9 {service} → next call", waits[1:], "s", BAR_S)


async def _killed(cluster: Cluster, service: str, give: Give) -> float:
    """Kill a worker between two rounds of its calls; return after how many seconds the model was asked again."""
    began_ms = time.time_ns() / 1e6
    await give(cluster)
    await _until(lambda: bool(_starts_ms(cluster, began_ms)))
    killed_ms = time.time_ns() / 1e6
    cluster.supervisor.send(service, signal.SIGKILL)
    await _until(lambda: bool(_starts_ms(cluster, killed_ms)))
    return (min(_starts_ms(cluster, killed_ms)) - killed_ms) / 1000


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not done():  # noqa: ASYNC110 - the stand-in's log is a file
            await asyncio.sleep(POLL_S)


def _starts_ms(cluster: Cluster, since_ms: float) -> list[float]:
    """Return when answered calls began from a time on: one that was abandoned may be the dying worker's."""
    calls = (call for call in cluster.calls() if call["outcome"] == "ok")
    return [call["start_ms"] for call in calls if call["start_ms"] > since_ms]


async def _reflections(cluster: Cluster) -> None:
    await cluster.publish(lessons(fresh("killed"), REFLECTIONS))


async def _traces(cluster: Cluster) -> None:
    name = fresh("killed")
    given = [Trace(trace_id=f"{name}/{n}", playbook=name, task=f"Metric {n}?") for n in range(TRACES)]
    await cluster.log.produce(*map(topics.TRACES.record, given))


# ---- the broker, supervised as by 'combee up'


async def _broker_killed(runs: int) -> list[Row]:
    """Kill the broker, and with it a service every other time, at seeded moments; judge the log at the end."""
    rng = Random(1)  # noqa: S311 - reproducible, not secret
    with TemporaryDirectory(prefix="combee-bench-") as folder:
        home = Path(folder)
        async with (
            open_user_broker(home, ready=is_ready, env=environment()) as bootstrap_servers,
            running_cluster(bootstrap_servers, batch_size=BATCH) as cluster,
        ):
            connection = Connection(bootstrap_servers=bootstrap_servers, prefix="")
            waits = []
            for number in range(runs + 1):
                also = rng.choice(ROLES) if number % 2 else None
                waits.append(
                    await _learned_again(cluster, home, Reachability(connection), rng.random(), also)
                )
            ledger = await audit(cluster.log)
            wrong = ledger.lost + ledger.double + len(ledger.violations)
    return [
        row("kill -9 broker → learned reflection, from its first answer", waits[1:], "s", BROKER_BAR_S),
        row(f"lost or double of {ledger.reflections} reflections, {len(waits)} kills", [wrong], "", 0.0),
    ]


async def _learned_again(
    cluster: Cluster, home: Path, reachability: Reachability, share: float, also: str | None
) -> float:
    """Kill in the middle of work; return how long after the broker's first answer a new reflection was learned."""
    before, after = fresh("before"), fresh("after")
    await cluster.publish(lessons(before, 2 * BATCH))
    await asyncio.sleep(share * UP_TO_S)  # the moment is drawn
    run = RunState.load(home)
    assert run  # noqa: S101 - the broker runs
    os.kill(run.pids[1], signal.SIGKILL)
    if also:
        cluster.supervisor.send(also, signal.SIGKILL)
    # An agent's, sent while the broker is away.
    sent = asyncio.create_task(write(cluster.log, *map(topics.REFLECTIONS.record, lessons(after, BATCH))))
    answered = await _first_answer(reachability)
    await sent
    learned = await cluster.through(after)
    playbooks = cluster.subscriber.playbooks
    await cluster.subscriber.until(lambda: playbooks.latest(before).batch_sequence >= 2)  # noqa: PLR2004 - twice BATCH
    return learned - answered


async def _first_answer(reachability: Reachability) -> float:
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await reachability.check()
                    return time.monotonic()
                except TransientError:
                    await asyncio.sleep(POLL_S)
    finally:
        await reachability.close()
