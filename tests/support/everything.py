"""All services of a deployment at once, and what the gateway shows of the topics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee.control.controller import Controller
from combee.core.batching.sizing.policy import SizingPolicy
from combee.log.inspection.live import Live
from combee.process.worker.session import together
from combee_schemas import topics
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import CONTROL, ROLES, Deployment
from support.ledger import NAME, outgoing, reflection


@asynccontextmanager
async def everything(deployment: Deployment) -> AsyncIterator[None]:
    """Run all services and the live picture; what ends by itself raises."""
    log, clock = deployment.log, deployment.clock
    controller = Controller(log, clock, SizingPolicy())
    live = Live(log, clock, batch_size=5)
    live.look()
    beside = asyncio.create_task(
        together(
            controller.session(asyncio.Event(), lambda: None),
            controller.playbooks.view.run(),
            controller.sizes.run(),
            live.run(),
        )
    )
    try:
        async with deployment.running((*ROLES, CONTROL)):
            yield
            if beside.done():
                beside.result()
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)


async def learn(deployment: Deployment, first: int, count: int = 4) -> None:
    """Publish reflections and a trace, and wait until all of them count and everything is committed."""
    before = ledger.applied(deployment.log)
    trace = Trace(trace_id=f"t-{first}", playbook=NAME, task="a task", answer=f"answer {first}", success=True)
    await deployment.log.produce(
        *(outgoing(reflection(n)) for n in range(first, first + count)), topics.TRACES.record(trace)
    )

    def done() -> bool:
        deployment.advance(1)  # windows that are not full close by time
        return ledger.applied(deployment.log) > before + count and not ledger.behind(deployment.log)

    await deployment.until(done)
