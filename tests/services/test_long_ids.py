"""Ids as long as agents may choose them, in the characters that take most bytes."""

import pytest

from combee_schemas.reflection import Reflection
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

BEE = "\N{HONEYBEE}"  # four bytes


def long_one(number: int) -> Reflection:
    return reflection(
        number,
        reflection_id=BEE * 195 + f"{number:05}",
        score={BEE * 38 + f"{name:02}": 0.12345 for name in range(10)},
        source={"name": BEE * 80, "proof": BEE * 200},
    )


async def learned(deployment: Deployment, count: int) -> None:
    def done() -> bool:
        deployment.advance(1)
        return ledger.applied(deployment.log) >= count and not ledger.behind(deployment.log)

    await deployment.until(done, timeout_s=60)


async def test_a_storm_of_repeats_with_long_ids_leaves_a_manifest_that_can_be_written() -> None:
    deployment = Deployment(batch_size=40, max_wait_s=5)
    async with deployment.running():
        first = [outgoing(long_one(number)) for number in range(39)]
        await deployment.log.produce(*first, *first * 26, outgoing(long_one(39)))
        await learned(deployment, 40)
    (batch, *_) = ledger.batches(deployment.log, NAME)
    assert len(batch.members) == 40
    assert 0 < len(batch.dropped) < 39 * 26


async def test_a_large_batch_of_reflections_with_long_ids_becomes_several_that_can_be_written() -> None:
    deployment = Deployment(batch_size=1_200, max_wait_s=5, copies=1)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(long_one(number)) for number in range(1_200)))
        await learned(deployment, 1_200)
    assert sum(len(batch.members) for batch in ledger.batches(deployment.log, NAME)) == 1_200
