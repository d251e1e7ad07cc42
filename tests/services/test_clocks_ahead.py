"""A producer whose clock is ahead, and a restart: what was answered is known."""

from dataclasses import replace

import pytest

from combee_schemas import topics
from combee_schemas.records import Outgoing
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME

pytestmark = pytest.mark.usefixtures("quick_polls")

AHEAD_MS = 50 * 60 * 1000
TRACES = 20
READ = {"reflect": (topics.TRACES,)}


async def test_a_trace_from_a_clock_that_is_ahead_makes_nothing_be_reflected_on_again() -> None:
    deployment = Deployment()
    honest = [
        topics.TRACES.record(Trace(trace_id=f"t{n}", playbook=NAME, task="a task", answer=f"answer {n}"))
        for n in range(TRACES)
    ]
    ahead = replace(
        topics.TRACES.record(Trace(trace_id="ahead", playbook=NAME, task="a task", answer="an answer")),
        timestamp_ms=deployment.clock.now_ms() + AHEAD_MS,
    )
    await deployment.log.produce(*(replace(one, partition=0) for one in (ahead, *honest)))
    async with deployment.running(["reflect"]):
        await deployment.until(lambda: reflections(deployment) == TRACES + 1)
    deployment.log._store.committed.clear()  # it died before it committed
    deployment.clock.advance(600)
    late = Outgoing(topic=topics.TRACES.name, key=b"late", value=b"\xc1", partition=0)
    await deployment.log.produce(late)
    async with deployment.running(["reflect"]):
        await deployment.until(
            lambda: len(ledger.dead_letters(deployment.log)) == 1 and not ledger.behind(deployment.log, READ)
        )
    assert reflections(deployment) == TRACES + 1


def reflections(deployment: Deployment) -> int:
    return len(ledger.records(deployment.log, topics.REFLECTIONS))
