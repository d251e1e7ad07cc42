import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import stamina

from combee.adapters.memory import MemoryLog
from combee.adapters.memory.consumer import MemoryConsumer
from combee.adapters.ports import (
    DrainingError,
    FatalError,
    OnAssigned,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
    TransientError,
)
from combee.process.worker.loop import COMMIT_S, Loop
from support.clock import ManualClock
from support.ledger import dead_letters
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

T = "reflections"
DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def no_backoff() -> Iterator[None]:
    with stamina.set_testing(True, attempts=1_000):
        yield


class Recording:
    """A handler that does what a test says, and remembers what it was given."""

    service = "worker"
    topics: Sequence[str] = (T,)
    bounded_topics = frozenset({T})

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.begun: list[int] = []
        self.starts: list[dict[TopicPartition, int]] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.errors: dict[int, list[Exception]] = {}
        self.draining = asyncio.Event()

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        self.starts.append(starts)

    def drain(self) -> None:
        self.draining.set()

    def poisoned(self, record: Record) -> tuple[str, str]:
        return f"id-{record.offset}", "playbook"

    async def handle(self, record: Record) -> None:
        self.begun.append(record.offset)
        if record.offset in self.gates:
            await self.gates[record.offset].wait()
        if errors := self.errors.get(record.offset):
            raise errors.pop(0)

    def hold(self, *offsets: int) -> None:
        self.gates |= {offset: asyncio.Event() for offset in offsets}

    def release(self, *offsets: int) -> None:
        for offset in offsets:
            self.gates[offset].set()

    async def committed(self) -> int:
        return (await self.log.committed("worker", T)).get(0, 0)


@pytest.fixture
def handler() -> Recording:
    return Recording(MemoryLog(ManualClock(), partitions=1))


@asynccontextmanager
async def running(
    handler: Recording, *, max_open: int = 100, stop: asyncio.Event | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    loop = Loop(handler.log, handler, ManualClock(), max_open=max_open)
    task = asyncio.create_task(loop.run(stop or asyncio.Event(), drain_s=1.0))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def produce(handler: Recording, count: int) -> None:
    await handler.log.produce(*(Outgoing(topic=T, value=b"%d" % n, partition=0) for n in range(count)))


async def until_committed(handler: Recording, offset: int) -> None:
    store = handler.log._store
    source = TopicPartition(topic=T, partition=0)
    await until(lambda: store.committed.get("worker", {}).get(source) == offset)


async def test_records_are_handled_at_once_and_committed_when_all_before_them_are_done(
    handler: Recording,
) -> None:
    handler.hold(0, 2)
    await produce(handler, 4)
    async with running(handler):
        await until(lambda: len(handler.begun) == 4)
        assert await handler.committed() == 0
        handler.release(0)
        await until_committed(handler, 2)
        handler.release(2)
        await until_committed(handler, 4)
    assert sorted(handler.begun) == [0, 1, 2, 3]


async def test_while_records_are_open_commits_keep_a_distance(
    handler: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = list[float]()
    commit = MemoryConsumer.commit

    async def noted(self: MemoryConsumer, *offsets: Mapping[TopicPartition, Any]) -> None:
        times.append(asyncio.get_running_loop().time())
        await commit(self, *offsets)

    monkeypatch.setattr(MemoryConsumer, "commit", noted)
    handler.hold(*range(40))
    await produce(handler, 40)
    async with running(handler):
        await until(lambda: len(handler.begun) == 40)
        for offset in range(40):
            handler.release(offset)
            await asyncio.sleep(COMMIT_S / 10)
        await until_committed(handler, 40)
    assert len(times) > 2
    # The last one need not: nothing is open any more.
    assert all(after - before >= COMMIT_S for before, after in pairwise(times[:-1]))


async def test_what_was_not_committed_comes_again_after_a_crash(handler: Recording) -> None:
    handler.hold(1)
    await produce(handler, 3)
    async with running(handler):
        await until_committed(handler, 1)
    handler.release(1)
    async with running(handler):
        await until_committed(handler, 3)
    assert sorted(handler.begun) == [0, 1, 1, 2, 2]
    assert [dict.fromkeys(one.values()) for one in handler.starts] == [{0: None}, {1: None}]


async def test_poison_is_dead_lettered_with_its_bytes_and_its_neighbours_go_on(handler: Recording) -> None:
    handler.errors[1] = [PoisonError("cannot be used")]
    await produce(handler, 3)
    async with running(handler):
        await until_committed(handler, 3)
    (letter,) = dead_letters(handler.log)
    assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == (T, 0, 1)
    assert (letter.value, letter.reason, letter.record_id) == (b"1", "cannot be used", "id-1")
    assert letter.service == "worker"


async def test_trouble_that_heals_is_waited_out_and_never_dead_lettered(handler: Recording) -> None:
    handler.errors[0] = [TransientError("away")] * 20
    await produce(handler, 2)
    async with running(handler):
        await until_committed(handler, 2)
    assert handler.begun.count(0) == 21
    assert dead_letters(handler.log) == []


async def test_a_record_that_waits_to_be_tried_again_holds_nobody_else_up(handler: Recording) -> None:
    handler.errors[0] = [TransientError("away")] * 5
    handler.hold(0)
    await produce(handler, 3)
    async with running(handler):
        await until(lambda: set(handler.begun) == {0, 1, 2})
        assert await handler.committed() == 0
        handler.release(0)
        await until_committed(handler, 3)


@pytest.mark.parametrize("error", [FatalError("mend me"), RuntimeError("a bug")], ids=repr)
async def test_anything_else_ends_the_loop_with_the_record_uncommitted(
    handler: Recording, error: Exception
) -> None:
    handler.errors[1] = [error]
    await produce(handler, 3)
    async with running(handler) as task, asyncio.timeout(DEADLINE_S):
        with pytest.raises(type(error)):
            await task
    assert await handler.committed() <= 1
    assert dead_letters(handler.log) == []


async def test_no_more_records_are_open_than_allowed_give_or_take_a_poll(handler: Recording) -> None:
    handler.hold(*range(6))
    await produce(handler, 6)
    async with running(handler, max_open=3):
        await until(lambda: len(handler.begun) == 6)
        await produce(handler, 6)
        await until(lambda: len(handler.begun) == 6)
        handler.release(0, 1, 2)
        await until(lambda: len(handler.begun) >= 6)
        handler.release(3, 4, 5)
        await until_committed(handler, 12)
    assert len(handler.begun) == 12


async def test_stopping_finishes_what_is_under_way_and_commits_it(handler: Recording) -> None:
    handler.hold(0)
    stop = asyncio.Event()
    await produce(handler, 2)
    async with running(handler, stop=stop) as task, asyncio.timeout(DEADLINE_S):
        await until(lambda: len(handler.begun) == 2)
        stop.set()
        await handler.draining.wait()
        handler.release(0)
        await task
    assert await handler.committed() == 2


async def test_stopping_leaves_what_only_waits_to_the_next_worker(handler: Recording) -> None:
    handler.errors[1] = [DrainingError("waiting")]
    stop = asyncio.Event()
    await produce(handler, 3)
    async with running(handler, stop=stop) as task, asyncio.timeout(DEADLINE_S):
        await until_committed(handler, 1)
        stop.set()
        await task
    assert await handler.committed() == 1
    async with running(handler):
        await until_committed(handler, 3)


class Deaf(MemoryLog):
    """A log whose consumers go on after a pause, as one does that has just been given new partitions."""

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> MemoryConsumer:
        consumer = await super().consumer(group, topics, on_assigned)
        consumer.pause = lambda *_: None  # type: ignore[method-assign]
        return consumer


async def test_what_arrives_while_stopping_is_not_committed_unseen() -> None:
    handler = Recording(Deaf(ManualClock(), partitions=1))
    handler.hold(0)
    stop = asyncio.Event()
    await produce(handler, 1)
    async with running(handler, stop=stop) as task, asyncio.timeout(DEADLINE_S):
        await until(lambda: handler.begun)
        stop.set()
        await handler.draining.wait()
        await produce(handler, 2)
        handler.release(0)
        await task
    assert handler.begun == [0]
    assert await handler.committed() == 1


class AwayLog(MemoryLog):
    """A log whose writes fail for a while."""

    failures = 0

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        if self.failures:
            self.failures -= 1
            raise TransientError("the log is away")
        return await super().produce(*outgoing)


async def test_a_dead_letter_is_written_even_if_the_log_is_away_for_a_while() -> None:
    log = AwayLog(ManualClock(), partitions=1)
    handler = Recording(log)
    handler.errors[0] = [PoisonError("bad")] * 10
    await produce(handler, 1)
    log.failures = 3
    async with running(handler):
        await until_committed(handler, 1)
    assert len(dead_letters(log)) == 1


async def test_poison_with_a_huge_key_is_dead_lettered_all_the_same(handler: Recording) -> None:
    handler.errors[0] = [PoisonError("bad")]
    await handler.log.produce(Outgoing(topic=T, key=b"k" * 700_000, value=b"v" * 300_000, partition=0))
    async with running(handler):
        await until_committed(handler, 1)
    (letter,) = dead_letters(handler.log)
    assert letter.truncated
    assert letter.size == 300_000


async def test_what_a_new_partition_needs_is_restored_although_the_log_went_away_meanwhile(
    handler: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = []

    async def assigned(starts: dict[TopicPartition, int]) -> None:
        restored.append(starts)
        if len(restored) == 1:
            raise TransientError("the log is away")

    monkeypatch.setattr(handler, "assigned", assigned)
    monkeypatch.setattr("combee.process.worker.loop.POLL_S", 0.001)
    await produce(handler, 1)
    async with running(handler):
        await until_committed(handler, 1)
    assert restored == [{TopicPartition(topic=T, partition=0): 0}] * 2


async def test_a_partition_that_went_and_came_back_while_the_log_was_away_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = Recording(MemoryLog(ManualClock(), partitions=2))
    handler.hold(0)
    first, second = (
        {source: handler.log._store.partition(source)}
        for source in (TopicPartition(topic=T, partition=number) for number in range(2))
    )
    members: list[MemoryConsumer] = []
    broken = asyncio.Event()
    join = handler.log.consumer

    async def consumer(group: str, topics: Sequence[str], on_assigned: OnAssigned) -> MemoryConsumer:
        members.append(await join(group, topics, on_assigned))
        members[0]._partitions = first
        return members[0]

    async def assigned(starts: dict[TopicPartition, int]) -> None:
        if second.keys() <= starts.keys() and not broken.is_set():
            broken.set()
            members[0]._partitions = first | second
            raise TransientError("the log is away")

    monkeypatch.setattr(handler.log, "consumer", consumer)
    monkeypatch.setattr(handler, "assigned", assigned)
    monkeypatch.setattr("combee.process.worker.loop.POLL_S", 0.001)
    await produce(handler, 1)
    async with running(handler):
        await until(lambda: handler.begun == [0])
        members[0]._partitions, members[0]._starts = second, {}
        await until(lambda: handler.begun == [0, 0])
        handler.release(0)
        await until_committed(handler, 1)
    assert broken.is_set()
