"""Digests of what agents were shown tell lines apart; where nothing is to be told apart they cost no group."""

import pytest

from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

ENTRIES = 450
BATCH = 40


async def learned(*reflections: Reflection) -> Deployment:
    async with Deployment(batch_size=len(reflections)).running() as running:
        await running.log.produce(*map(outgoing, reflections))
        await running.until(lambda: ledger.applied(running.log) == len(reflections))
    return running


def read_by_an_agent(number: int, digests: tuple[str, ...], line: str = "") -> Reflection:
    entry_ids = tuple(f"calc-{each:05}" for each in range(ENTRIES))
    shown = Shown(version=0, entry_ids=entry_ids, digests=digests, line=line)
    return reflection(number).model_copy(update={"shown": shown})


@pytest.mark.parametrize("line", ["", NAME])
async def test_a_batch_has_the_groups_that_it_would_have_without_digests(line: str) -> None:
    found = {
        digests: await learned(*(read_by_an_agent(number, digests, line) for number in range(BATCH)))
        for digests in ((), ("12345678",) * ENTRIES)
    }
    plain, told = (ledger.batches(each.log)[0].plan for each in found.values())
    assert told.widths == plain.widths == (6, 1)
    (*_, with_digests) = found.values()
    groups = ledger.messages(with_digests.log, topics.GROUPS, Group)
    assert groups
    assert not any(
        member.reflection.shown.digests
        for group in groups
        for member in group.members
        if member.reflection.shown
    )


async def test_digests_of_another_line_go_with_the_reflection() -> None:
    digests = ("12345678",) * ENTRIES
    found = await learned(read_by_an_agent(0, digests, f"{NAME}@exp"))
    (group,) = ledger.messages(found.log, topics.GROUPS, Group)
    shown = group.members[0].reflection.shown
    assert shown is not None
    assert shown.digests == digests
