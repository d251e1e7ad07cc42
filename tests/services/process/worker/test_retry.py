"""What a model was asked for is not asked for again because the log is away."""

from collections import Counter
from collections.abc import Sequence

import pytest
import stamina

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, TransientError
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 20


async def calls(deployment: Deployment) -> int:
    """Let a deployment learn from traces, and return what it asked."""
    traces = [Trace(trace_id=f"t-{n}", playbook=NAME, task=f"task {n}", answer="?") for n in range(COUNT)]
    async with deployment.running():
        await deployment.log.produce(
            *(Outgoing(topic=topics.TRACES.name, key=b"t", value=encode(one)) for one in traces)
        )
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    return deployment.model.calls


async def test_a_log_that_is_away_for_every_write_costs_no_call_more(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = await calls(Deployment())
    deployment, failed = Deployment(), Counter[bytes]()
    whole = MemoryLog.produce

    async def flaky(log: MemoryLog, *outgoing: Outgoing) -> Sequence[int]:
        value = outgoing[0].value or b""
        if outgoing[0].topic != topics.TRACES.name and failed[value] < 2:
            failed[value] += 1
            raise TransientError("the log is away")
        return await whole(log, *outgoing)

    monkeypatch.setattr(MemoryLog, "produce", flaky)
    with stamina.set_testing(True, attempts=1_000):
        assert await calls(deployment) == usual
    assert failed.total() > 2 * COUNT
