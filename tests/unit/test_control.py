import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee.control.controller import Controller
from combee.core.playbook import empty
from combee.core.sizing.policy import SizingPolicy
from combee.ports import Outgoing
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize
from support import ledger
from support.deployment import Deployment, together
from support.ledger import NAME


@asynccontextmanager
async def controlling(deployment: Deployment, batch_size: int) -> AsyncIterator[None]:
    policy = SizingPolicy(configured=batch_size)
    controller = Controller(deployment.log, deployment.clock, policy)
    session = controller.session(asyncio.Event(), lambda: None)
    work = asyncio.create_task(together(session, controller.playbooks.view.run(), controller.sizes.run()))
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def appear(deployment: Deployment, name: str, version: int = 1) -> None:
    playbook = empty(name).model_copy(update={"version": version})
    await deployment.log.produce(Outgoing(topic="playbooks", key=name.encode(), value=encode(playbook)))


def sizes(deployment: Deployment) -> list[tuple[str, int]]:
    return [
        (one.playbook, one.batch_size)
        for one in ledger.messages(deployment.log, topics.BATCH_SIZES, BatchSize)
    ]


async def test_every_playbook_that_appears_gets_the_configured_batch_size_once() -> None:
    deployment = Deployment()
    await appear(deployment, NAME)
    async with controlling(deployment, 84):
        await deployment.until(lambda: len(sizes(deployment)) == 1)
        await appear(deployment, NAME, 2)
        await appear(deployment, "a")
        await deployment.until(lambda: len(sizes(deployment)) == 2)
    assert sizes(deployment) == [(NAME, 84), ("a", 84)]


async def test_what_stands_is_not_said_again_and_a_new_size_is() -> None:
    deployment = Deployment()
    await appear(deployment, NAME)
    async with controlling(deployment, 84):
        await deployment.until(lambda: len(sizes(deployment)) == 1)
    async with controlling(deployment, 84):
        await appear(deployment, "a")
        await deployment.until(lambda: len(sizes(deployment)) == 2)
    async with controlling(deployment, 40):
        await deployment.until(lambda: len(sizes(deployment)) == 4)
    assert sorted(sizes(deployment)) == [("a", 40), ("a", 84), (NAME, 40), (NAME, 84)]
