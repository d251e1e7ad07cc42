"""A backlog costs a window its offsets, not its reflections; nothing of it is lost or counted twice."""

from collections.abc import Mapping, Sequence

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Record, TopicPartition
from combee.shuffle import partition
from combee_schemas import topics
from combee_schemas.scan import Group
from support import ledger
from support.deployment import Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, lessons, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

BACKLOG = 80
KEPT = 15


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "WINDOW_KEPT", KEPT)


def kept(deployment: Deployment) -> int:
    states = deployment.shuffler._states.values() if deployment.shuffler else ()
    return max((len(w.waiting) for state in states for w in state.windows.values()), default=0)


async def settled(deployment: Deployment, count: int) -> None:
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, kept(deployment))
        return ledger.applied(deployment.log) == count and not ledger.behind(deployment.log)

    await deployment.until(done)
    assert 0 < most <= KEPT + 10


@pytest.mark.parametrize("inflight", [1, 4])
async def test_a_backlog_ends_in_full_batches_in_order_and_little_of_it_is_in_memory(inflight: int) -> None:
    published = [reflection(n) for n in range(BACKLOG)]
    deployment = Deployment(batch_size=10, max_inflight_batches=inflight)
    await deployment.log.produce(*map(outgoing, published))
    async with deployment.running():
        await settled(deployment, BACKLOG)
    ledger.check(deployment.log, {NAME: published})
    cut = ledger.batches(deployment.log)
    assert [len(one.members) for one in cut] == [10] * (BACKLOG // 10)
    offsets = [member.offset for one in cut for member in one.members]
    assert offsets == sorted(offsets)
    assert [one.plan.waiting for one in cut] == list(range(BACKLOG - 10, -1, -10))
    assert {entry.content for entry in ledger.latest(deployment.log).entries} == lessons(range(BACKLOG))


async def test_repeats_in_a_backlog_count_once() -> None:
    published = [reflection(n) for n in range(BACKLOG // 2)]
    deployment = Deployment(batch_size=10)
    await deployment.log.produce(*map(outgoing, [*published, *published]))
    async with deployment.running():
        await settled(deployment, BACKLOG // 2)
    ledger.check(deployment.log, {NAME: published})


@pytest.mark.parametrize("at", [3, 9, 17])
async def test_a_crash_amid_a_backlog_loses_nothing(at: int) -> None:
    published = [reflection(n) for n in range(BACKLOG)]
    deployment = Deployment(batch_size=10)
    await deployment.log.produce(*map(outgoing, published))
    with pytest.raises(CrashError):
        async with deployment.running(failpoint=CrashFailpoint(at)):
            await settled(deployment, BACKLOG)
    async with deployment.running():
        await settled(deployment, BACKLOG)
    ledger.check(deployment.log, {NAME: published})


async def test_shuffle_does_not_read_a_batch_larger_than_what_is_kept_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[int] = []
    read_at = MemoryLog.read_at

    async def counted(
        self: MemoryLog, source: TopicPartition, offsets: Sequence[int]
    ) -> Mapping[int, Record]:
        again.extend(offsets if source.topic == topics.REFLECTIONS.name else ())
        return await read_at(self, source, offsets)

    monkeypatch.setattr(MemoryLog, "read_at", counted)
    async with Deployment(batch_size=3 * KEPT).running(["shuffle"]) as deployment:
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(3 * KEPT)))
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.GROUPS, Group)))
    assert again == []
