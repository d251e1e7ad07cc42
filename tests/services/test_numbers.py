"""Extreme numbers in what agents write, on the real services."""

import pytest

from combee_schemas import topics
from combee_schemas.records import Outgoing
from combee_schemas.topics import TOPICS, AnyTopic
from support import ledger
from support.deployment import Deployment
from support.everything import everything
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
    for first in (0, 100):  # and again after a restart
        async with everything(deployment):
            await deployment.log.produce(*sent, *(outgoing(reflection(first + n)) for n in range(4)))
            await _learned(deployment, {f"r-{first + n}" for n in range(4)})


async def _learned(deployment: Deployment, ids: set[str]) -> None:
    def done() -> bool:
        deployment.advance(1)
        batches = ledger.messages(deployment.log, topics.BATCHES, topics.BATCHES.message)
        taken = {member.reflection_id for batch in batches for member in batch.members}
        return ids <= taken and not ledger.behind(deployment.log)

    await deployment.until(done)
