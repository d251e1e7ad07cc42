"""Simulated agents at the service desk: they run on real services and tell how each run went."""

import asyncio
from collections.abc import Mapping
from random import Random

from combee.adapters.clock import SystemClock
from combee.assembly import backends
from combee.assembly.local.stack import model_environment
from combee.core.names.identity import reflection_id
from combee.log.inspection.outcomes import outcomes_of
from combee.log.inspection.tracker import Tracker
from combee_schemas.base import Shown
from combee_schemas.topics import outgoing
from combee_schemas.trace import Trace
from combee_sim.family.desk import tickets
from combee_sim.family.family import right
from combee_sim.fleet import run_fleet
from support.running import Running

STALL_S = 60.0


async def serve_desk(running: Running, playbook: str, count: int, *, agents: int, seed: int = 1) -> None:
    """Let agents answer tickets until all that they taught is in the playbook, and all outcomes are counted."""
    where: Mapping[str, str] = model_environment(running.supervisor)
    model = backends.language_model(running.settings.model.model_copy(update=dict(where)))
    drawn = tickets(Random(seed))
    asked = [next(drawn) for _ in range(count)]
    traces: dict[str, Trace] = {}
    try:
        async with Tracker(running.log, playbook, SystemClock()).running() as tracker:

            async def publish(trace: Trace) -> None:
                told = trace.model_copy(
                    update={
                        "success": right(trace.answer, trace.target or ""),
                        "shown": trace.shown or Shown(version=0),
                        "created_at_ms": SystemClock().now_ms(),
                    }
                )
                traces[reflection_id(playbook, told.trace_id)] = told
                await running.log.produce(outgoing(told))

            await run_fleet(
                model,
                asked,
                name=playbook,
                playbook=lambda: tracker.newest,
                publish=publish,
                agents=agents,
                seed=seed,
            )
            await running.learning().settle(tracker, traces, stall_s=STALL_S)
    finally:
        await model.close()
    async with asyncio.timeout(STALL_S):
        while await _counted(running, playbook) < count:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.2)


async def _counted(running: Running, playbook: str) -> int:
    statistics = await outcomes_of(running.log, playbook)
    return sum(version.figures.runs for version in statistics.versions) if statistics else 0
