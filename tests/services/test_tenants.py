"""Limits of tenants where batches are cut: what came is held back, is not lost, and keeps nobody else waiting."""

import asyncio

import pytest
from structlog.testing import capture_logs

from combee.core.names.tenants import IN_BATCHES_S, Limits
from combee.shuffle.rules import HOLDS_BACK
from combee_schemas.base import DAY_MS
from support import ledger
from support.deployment import Deployment
from support.ledger import outgoing, reflection

OVER, ANOTHER = "support/refunds", "sales/leads"
SIZE = 5
BATCH_S = 2 * IN_BATCHES_S

pytestmark = pytest.mark.usefixtures("quick_polls")


async def publish(deployment: Deployment, name: str, numbers: range) -> None:
    await deployment.log.produce(*(outgoing(reflection(n, name)) for n in numbers))


def applied(deployment: Deployment, name: str) -> int:
    return sum(version.reflections for version in ledger.versions(deployment.log, name))


async def turns(deployment: Deployment) -> None:
    for _ in range(3):
        await deployment.shuffler.turn()  # type: ignore[union-attr]
        await asyncio.sleep(0)


@pytest.mark.usefixtures("every_level")
async def test_a_tenant_over_its_tokens_of_the_day_waits_for_the_next_and_another_does_not() -> None:
    deployment = Deployment(batch_size=SIZE, limits={"support": Limits(daily_tokens=1)})
    with capture_logs() as logs:
        async with deployment.running():
            await publish(deployment, OVER, range(SIZE))
            await deployment.until(lambda: applied(deployment, OVER) == SIZE)
            await publish(deployment, "support/other", range(SIZE))
            await publish(deployment, ANOTHER, range(SIZE))
            await deployment.until(lambda: applied(deployment, ANOTHER) == SIZE)
            await turns(deployment)
            assert applied(deployment, "support/other") == 0
            assert deployment.shuffler is not None
            assert deployment.shuffler.held() == {"source": 0, "tenant": SIZE, "spend": 0, "pause": 0}
            deployment.advance(DAY_MS / 1000)
            await deployment.until(lambda: applied(deployment, "support/other") == SIZE)
            assert deployment.shuffler.held() == dict.fromkeys(HOLDS_BACK, 0)
    (held,) = [event for event in logs if event["event"] == "tenant_held"]
    assert held["tenant"] == "support"
    assert "tokens spent today by all its playbooks" in held["reason"]
    assert [event["tenant"] for event in logs if event["event"] == "tenant_resumed"] == ["support"]


async def test_a_tenant_above_its_rate_is_cut_into_batches_at_that_rate() -> None:
    limits = {"support": Limits(reflections_per_second=SIZE / BATCH_S)}
    deployment = Deployment(batch_size=SIZE, limits=limits)
    async with deployment.running():
        await publish(deployment, OVER, range(3 * SIZE))
        await publish(deployment, ANOTHER, range(SIZE))
        await deployment.until(lambda: applied(deployment, OVER) == SIZE)
        await deployment.until(lambda: applied(deployment, ANOTHER) == SIZE)
        for batches in (2, 3):
            await turns(deployment)
            assert applied(deployment, OVER) == (batches - 1) * SIZE
            deployment.advance(BATCH_S)
            await deployment.until(lambda count=batches: applied(deployment, OVER) == count * SIZE)  # type: ignore[misc]
    ledger.check(
        deployment.log,
        {
            OVER: [reflection(n, OVER) for n in range(3 * SIZE)],
            ANOTHER: [reflection(n, ANOTHER) for n in range(SIZE)],
        },
    )
