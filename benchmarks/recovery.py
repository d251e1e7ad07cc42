"""Recovery: kill -9 of a worker that has calls in flight → the next call at the model, static membership and all."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from benchmarks.rows import Row, row
from benchmarks.stage import ROLES, Stage, fresh, lessons, staged
from combee.ports import Outgoing
from combee_schemas import topics
from combee_schemas.codec import encode
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

Give = Callable[[Stage], Awaitable[None]]


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the seconds from the signal to the next call, for each service that asks a model."""
    return [
        await _recovered(bootstrap_servers, runs, "scan", ROLES, _reflections),
        await _recovered(bootstrap_servers, runs, "reflect", ("reflect",), _traces),
    ]


async def _recovered(
    bootstrap_servers: str, runs: int, service: str, roles: tuple[str, ...], give: Give
) -> Row:
    async with staged(
        bootstrap_servers,
        roles=roles,
        latency=f"{LATENCY_S:g}",
        batch_size=REFLECTIONS,
        llm_concurrency=CONCURRENCY,
    ) as stage:
        waits = [await _killed(stage, service, give) for _ in range(runs + 1)]
    return row(f"kill -9 {service} → next call", waits[1:], "s", BAR_S)


async def _killed(stage: Stage, service: str, give: Give) -> float:
    """Kill a worker between two rounds of its calls; return after how many seconds the model was asked again."""
    began_ms = time.time_ns() / 1e6
    await give(stage)
    await _until(lambda: bool(_starts_ms(stage, began_ms)))
    killed_ms = time.time_ns() / 1e6
    stage.supervisor.send(service, signal.SIGKILL)
    await _until(lambda: bool(_starts_ms(stage, killed_ms)))
    return (min(_starts_ms(stage, killed_ms)) - killed_ms) / 1000


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not done():  # noqa: ASYNC110 - the stand-in's log is a file
            await asyncio.sleep(POLL_S)


def _starts_ms(stage: Stage, since_ms: float) -> list[float]:
    """Return when answered calls began from a time on: one that was abandoned may be the dying worker's."""
    calls = (call for call in stage.calls() if call["outcome"] == "ok")
    return [call["start_ms"] for call in calls if call["start_ms"] > since_ms]


async def _reflections(stage: Stage) -> None:
    await stage.publish(lessons(fresh("killed"), REFLECTIONS))


async def _traces(stage: Stage) -> None:
    name = fresh("killed")
    given = [Trace(trace_id=f"{name}/{n}", playbook=name, task=f"Metric {n}?") for n in range(TRACES)]
    await stage.log.produce(
        *(Outgoing(topic=topics.TRACES.name, key=one.trace_id.encode(), value=encode(one)) for one in given)
    )
