"""Extreme numbers in what agents write, on the real services."""

import asyncio

import pytest

from combee.inspection.live import Live
from combee_schemas import topics
from combee_schemas.records import Outgoing
from combee_schemas.topics import TOPICS, AnyTopic
from support import ledger
from support.deployment import CONTROL, ROLES, Deployment
from support.hostile import body
from support.ledger import NAME, outgoing, reflection
from support.numbers import extreme_bodies

pytestmark = pytest.mark.usefixtures("quick_polls")

OPEN = [topic for topic in TOPICS if topic.is_open]


@pytest.mark.parametrize("topic", OPEN, ids=lambda topic: topic.name)
async def test_no_number_that_an_agent_may_write_ends_a_service(topic: AnyTopic) -> None:
    key = NAME.encode()
    sent = [
        Outgoing(topic=topic.name, key=key, value=body(topic.message, **fields))
        for _, fields in extreme_bodies(topic.message)
    ]
    deployment = Deployment(batch_size=5, max_wait_s=5)
    live = Live(deployment.log, deployment.clock, batch_size=5)
    live.look()
    watching = asyncio.create_task(live.run())
    try:
        for first in (0, 100):  # and again after a restart
            async with deployment.running((*ROLES, CONTROL)):
                await deployment.log.produce(*sent, *(outgoing(reflection(first + n)) for n in range(4)))
                await _learned(deployment, {f"r-{first + n}" for n in range(4)})
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _learned(deployment: Deployment, ids: set[str]) -> None:
    def done() -> bool:
        deployment.advance(1)
        batches = ledger.messages(deployment.log, topics.BATCHES, topics.BATCHES.message)
        taken = {member.reflection_id for batch in batches for member in batch.members}
        return ids <= taken and not ledger.behind(deployment.log)

    await deployment.until(done)
