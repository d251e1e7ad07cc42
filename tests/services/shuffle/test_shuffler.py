import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import (
    FatalError,
    FencedError,
    Outgoing,
    Record,
    TopicPartition,
    Transaction,
    Transactor,
    TransientError,
)
from combee.core.batching.window import Window
from combee.core.batching.window import due as window_due
from combee.core.names.sources import KnownSources, secret_proof, with_secret
from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee.process.worker.provenance import Provenance
from combee.shuffle import shuffler
from combee.shuffle.partition import LETTER_BYTES, LETTERS_AT_ONCE
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.control import BatchSize
from combee_schemas.playbook import PauseOrder
from combee_schemas.records import OBJECT_BYTES
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Update
from support import ledger
from support.clock import ManualClock
from support.failpoints.points import CrashError, CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, batches, dead_letters, outgoing, reflection
from support.shuffling import Shuffling, shuffling

REFLECTIONS, COMMANDS = topics.REFLECTIONS.name, topics.COMMANDS.name
HOME = 1
"""The partition of NAME when there are two."""
SOURCE = TopicPartition(topic=REFLECTIONS, partition=HOME)
"""A reflection that shows that the model answers."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    return MemoryLog(clock, partitions=2, scan_partitions=3)


async def publish(log: MemoryLog, *messages: Reflection | Command) -> None:
    await log.produce(*map(outgoing, messages))


def flush(through: int, command_id: str = "f", playbook: str = NAME) -> Command:
    return Command(command_id=command_id, playbook=playbook, kind="flush", through_offset=through)


async def apply(log: MemoryLog, rig: Shuffling, sequence: int, **fields: object) -> None:
    """Publish a version as the publish service does, and let the shuffler see it."""
    version = empty(NAME).model_copy(update={"version": sequence, "batch_sequence": sequence, **fields})
    await log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(version)))
    async with asyncio.timeout(5):
        while rig.shuffler.playbooks.latest(NAME).version < sequence:
            rig.shuffler.wake.clear()
            await rig.shuffler.wake.wait()


def members(log: MemoryLog) -> list[list[int]]:
    return [[member.offset for member in batch.members] for batch in batches(log)]


async def committed(log: MemoryLog, topic: str = REFLECTIONS) -> int | None:
    return (await log.committed("shuffle", topic)).get(HOME)


# ---- closing


async def test_a_full_window_becomes_a_batch_and_the_rest_waits(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(7)))
        await rig.step()
    assert members(log) == [[0, 1, 2, 3, 4]]
    assert batches(log)[0].plan.reason == "size"
    assert await committed(log) == 5, "the two that wait must come again"


async def test_a_window_closes_when_its_oldest_has_waited_long_enough(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock, max_wait_s=30) as rig:
        await publish(log, reflection(0))
        await rig.step()
        clock.advance(20)
        await publish(log, reflection(1))
        await rig.step()
        clock.advance(9.9)
        await rig.step()
        assert members(log) == []
        clock.advance(0.1)
        await rig.step()
    assert members(log) == [[0, 1]]
    assert batches(log)[0].plan.reason == "wait"


async def test_the_published_batch_size_is_used(log: MemoryLog, clock: ManualClock) -> None:
    size = BatchSize(playbook=NAME, batch_size=3)
    await log.produce(Outgoing(topic="batch-sizes", key=NAME.encode(), value=encode(size)))
    async with shuffling(log, clock, max_inflight_batches=9) as rig:
        await publish(log, *(reflection(n) for n in range(7)))
        await rig.step()
    assert members(log) == [[0, 1, 2], [3, 4, 5]]


async def test_a_smaller_batch_keeps_the_shares_of_those_who_waited_for_a_larger_one(
    log: MemoryLog, clock: ManualClock
) -> None:
    known = KnownSources(checks={"shop": ("secret", with_secret(b"its secret"))})

    def by_shop(number: int) -> Outgoing:
        record = outgoing(reflection(number, source=Source(name="shop")))
        proof = secret_proof(b"its secret", record.topic, "shop", record.value or b"")
        return replace(record, headers=(proof,))

    async with shuffling(log, clock, batch_size=8, provenance=Provenance(known)) as rig:
        await publish(log, *(reflection(n) for n in range(8)))
        await rig.step()
        await publish(log, *(reflection(n) for n in range(8, 12)))
        await log.produce(*map(by_shop, range(12, 16)))
        await rig.step()
        size = BatchSize(playbook=NAME, batch_size=4)
        await log.produce(Outgoing(topic="batch-sizes", key=NAME.encode(), value=encode(size)))
        async with asyncio.timeout(5):
            while rig.shuffler.sizes.get(NAME) is None:
                rig.shuffler.wake.clear()
                await rig.shuffler.wake.wait()
        await apply(log, rig, 1)
        await rig.step()
    assert members(log)[1] == [8, 9, 12, 13]


async def test_a_burst_that_comes_when_a_pause_ends_keeps_its_share(
    log: MemoryLog, clock: ManualClock
) -> None:
    """The batch that was due then is cut while the burst is read, before what waits beyond a share is read again."""
    secret = with_secret(b"their secret")
    known = KnownSources(checks=dict.fromkeys(("shop", "desk"), ("secret", secret)))

    def by(name: str, number: int) -> Outgoing:
        record = outgoing(reflection(number, source=Source(name=name)))
        proof = secret_proof(b"their secret", record.topic, name, record.value or b"")
        return replace(record, headers=(proof,))

    pause = PauseOrder(since_ms=clock.now_ms(), until_ms=clock.now_ms() + 60_000)
    async with shuffling(log, clock, batch_size=4, max_wait_s=1e9, provenance=Provenance(known)) as rig:
        await publish(log, *(reflection(n) for n in range(4)))
        await rig.step()
        await apply(log, rig, 1, paused=pause)
        await log.produce(*(by("desk", n) for n in range(4, 12)))
        await publish(log, reflection(12), reflection(13))
        await rig.step()
        clock.advance(59.5)
        await rig.step()
        clock.advance(0.6)
        await log.produce(*(by("shop", n) for n in range(14, 22)))
        await rig.step()
        await apply(log, rig, 2)
        await rig.step()
    assert members(log)[1:] == [[4, 5, 12, 14], [6, 7, 13, 15]]


async def test_a_batch_in_flight_holds_the_next_until_its_version_appears(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(10)))
        await rig.step()
        await rig.step()
        assert len(batches(log)) == 1
        await apply(log, rig, 1)
        await rig.step()
    assert [(batch.plan.sequence, batch.plan.base_version) for batch in batches(log)] == [(1, 0), (2, 1)]


async def test_bodies_beyond_the_memory_limit_are_read_back(log: MemoryLog, clock: ManualClock) -> None:
    published = [reflection(n) for n in range(5)]
    async with shuffling(log, clock, window_memory_bytes=0) as rig:
        await publish(log, *published)
        await rig.step()
    groups = ledger.messages(log, topics.SCAN[0], Group)
    found = {member.reflection.reflection_id: member.reflection for g in groups for member in g.members}
    assert found == {one.reflection_id: one for one in published}


async def test_the_groups_of_a_batch_land_on_different_partitions(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock, batch_size=9) as rig:
        await publish(log, *(reflection(n) for n in range(9)))
        await rig.step()
    assert sorted(record.partition for record in ledger.records(log, topics.SCAN[0])) == [0, 1, 2]


# ---- flush


async def test_a_flush_closes_what_it_names_and_is_committed_only_then(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock, max_inflight_batches=1) as rig:
        await publish(log, *(reflection(n) for n in range(7)))
        await rig.step()
        await publish(log, flush(6))
        await rig.step()
        assert await committed(log, COMMANDS) in {None, 0}
        await apply(log, rig, 1)
        await rig.step()
    assert members(log) == [[0, 1, 2, 3, 4], [5, 6]]
    assert batches(log)[1].plan.reason == "flush"
    assert await committed(log, COMMANDS) == 1


async def test_a_flush_cuts_whole_batches_though_nothing_of_it_has_been_delivered_yet(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await rig.step()
        await publish(log, *(reflection(n) for n in range(7)), flush(6))
        await rig.step(COMMANDS)
        await apply(log, rig, 1)
        await rig.step()
    assert members(log) == [[0, 1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("delivered", [(), (COMMANDS,)], ids=["all", "the command"])
@pytest.mark.parametrize("when", ["at the start", "at a turn"])
async def test_a_flush_cuts_whole_batches_though_what_it_names_is_read_over_several_turns(
    log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, when: str, delivered: tuple[str, ...]
) -> None:
    monkeypatch.setattr(shuffler, "READ_AT_ONCE", 3, raising=False)
    monkeypatch.setattr(shuffler, "DELIVERED_BYTES", 0)
    async with shuffling(log, clock, max_inflight_batches=9) as rig:
        if when == "at a turn":
            await rig.shuffler.turn()
        await publish(log, *(reflection(n) for n in range(7)), flush(6))
        await rig.step(*delivered)
        await turned_until_idle(rig)
    assert members(log) == [[0, 1, 2, 3, 4], [5, 6]]
    assert await committed(log, COMMANDS) == 1


async def test_a_flush_of_names_that_nobody_has_leaves_nothing_behind(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(flush(0, f"f{n}", f"nobody/{n}") for n in range(9)))
        await rig.step()
        assert all(not state.windows for state in rig.shuffler._states.values())


async def test_a_flush_survives_a_restart(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await rig.step()
        await publish(log, *(reflection(n) for n in range(3)), flush(2))
        await rig.step(COMMANDS)
    async with shuffling(log, clock) as rig:
        await rig.step()
    assert members(log) == [[0, 1, 2]]


async def test_a_flush_reaches_no_further_than_the_log_did(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, reflection(0), flush(2**62))
        await rig.step()
        await apply(log, rig, 1)
        await publish(log, reflection(1))
        await rig.step()
    assert members(log) == [[0]]


async def test_a_flush_of_nothing_is_simply_done(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, flush(-1), flush(10, "g"), flush(10, "h", "nobody"))
        await rig.step()
    assert batches(log) == []
    assert not [at for at in ledger.behind(log) if at[0] == "shuffle"]


# ---- what the stream processor does to us


def plans(log: MemoryLog) -> list[bytes]:
    return [encode(batch) for batch in batches(log)]


@pytest.mark.parametrize("seed", range(5))
async def test_lost_repeated_and_reordered_deliveries_change_nothing(seed: int) -> None:
    async def run(rng: Random | None) -> list[bytes]:
        clock = ManualClock()
        log = MemoryLog(clock, partitions=2)
        async with shuffling(log, clock, max_inflight_batches=9) as rig:
            await rig.step()
            for start in (0, 10, 20):
                await publish(log, *(reflection(n) for n in range(start, start + 10)))
                records = await rig.undelivered()
                if rng is not None:
                    last = records[-1]
                    records = [*rng.choices(records, k=15), last]
                    rng.shuffle(records)
                for record in records:
                    rig.shuffler.deliver([record])
                await rig.shuffler.turn()
        return plans(log)

    assert await run(Random(seed)) == await run(None)


@pytest.mark.parametrize("kept", [0, 1000])
async def test_what_is_delivered_beyond_the_memory_for_it_is_read_from_the_log(
    log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(shuffler, "DELIVERED_BYTES", kept)
    async with shuffling(log, clock, max_inflight_batches=9) as rig:
        await rig.step()
        await publish(log, *(reflection(n) for n in range(15)))
        await rig.step()
    assert members(log) == [list(range(5)), list(range(5, 10)), list(range(10, 15))]


@pytest.mark.parametrize("packed", [{}, {"key": b"k" * 5_000}, {"headers": (("x", b"h" * 5_000),)}])
async def test_what_waits_to_be_worked_in_takes_no_more_memory_than_it_may(
    log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, packed: dict[str, Any]
) -> None:
    async with shuffling(log, clock, max_inflight_batches=9) as rig:
        await rig.step()
        await publish(log, *(reflection(n) for n in range(20)))
        records = [record for record in await rig.undelivered() if record.partition == HOME]
        records = [replace(record, **packed) for record in records]
        value_bytes = sum(OBJECT_BYTES + len(record.value or b"") for record in records[:7])
        monkeypatch.setattr(shuffler, "DELIVERED_BYTES", value_bytes + (7 * 5_000 if packed else 0))
        for record in records:
            rig.shuffler.deliver([record])
        delivered = rig.shuffler._delivered[HOME]
        assert list(delivered.records) == records[:7]
        await rig.shuffler.turn()
        assert (len(delivered.records), delivered.size) == (0, 0)
    assert sum(map(len, members(log))) == 20


class Reads(MemoryLog):
    """Counts what is read."""

    count = 0

    async def read(self, *place: Any) -> AsyncGenerator[Record, None]:
        async for record in super().read(*place):
            self.count += 1
            yield record


async def test_what_is_delivered_in_order_is_read_no_second_time(clock: ManualClock) -> None:
    log = Reads(clock, partitions=2)
    async with shuffling(log, clock, max_inflight_batches=16) as rig:
        await rig.shuffler.turn()
        await publish(log, *(reflection(n) for n in range(75)))
        records = await rig.undelivered()
        log.count = 0
        rig.shuffler.deliver([record for record in records if record.partition == HOME])
        await rig.shuffler.turn()
    assert (len(batches(log)), log.count) == (15, 0)


async def test_a_turn_looks_only_at_windows_that_changed_or_have_waited(
    log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Window] = []

    def due(window: Window, *given: Any, **named: Any) -> Any:
        looked.append(window)
        return window_due(window, *given, **named)

    monkeypatch.setattr(shuffler, "due", due)
    async with shuffling(log, clock, max_wait_s=30) as rig:
        await publish(log, *(reflection(0, f"p/{n}") for n in range(100)))
        await rig.step()
        clock.advance(10)
        await publish(log, reflection(0, "late"))
        await rig.step()
        looked.clear()
        await publish(log, reflection(1, "p/7"))
        await rig.step()
        assert len(looked) == 1
        looked.clear()
        assert rig.shuffler.due_in() == 20
        clock.advance(20)
        await rig.step()
        assert len(looked) == 100
        assert rig.shuffler.due_in() == 10
    assert len(ledger.records(log, topics.BATCHES)) == 100


async def test_a_new_assignment_rebuilds_windows_from_the_committed_offset(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(8)))
        await rig.step()
        for _ in range(3):
            await rig.shuffler.assign([0, 1])
            await rig.shuffler.turn()
        await apply(log, rig, 1)
        await publish(log, *(reflection(n) for n in range(8, 10)))
        await rig.step()
    assert members(log) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


async def test_a_partition_that_was_given_up_is_left_alone(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await rig.shuffler.assign([0])
        await publish(log, *(reflection(n) for n in range(5)))
        await rig.step()
        assert rig.shuffler.owned == {0}
    assert batches(log) == []


async def test_a_former_owner_is_fenced_and_writes_nothing(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as older, shuffling(log, clock) as newer:
        await older.step()
        await newer.step()
        await publish(log, *(reflection(n) for n in range(5)))
        with pytest.raises(FencedError):
            await older.step()
        assert members(log) == []
        await newer.step()
        await older.step()
        await publish(log, flush(-1))
        with pytest.raises(FencedError):
            await newer.step()
    assert members(log) == [[0, 1, 2, 3, 4]]


class Flaky(MemoryLog):
    """Fails its next write."""

    broken = False

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        if self.broken:
            self.broken = False
            raise TransientError("the log is away")
        return await super().produce(*outgoing)


async def test_a_hiccup_of_the_log_does_not_reach_the_stream_processor(clock: ManualClock) -> None:
    log = Flaky(clock, partitions=2)
    async with shuffling(log, clock, batch_size=1) as rig:
        await rig.step()
        await log.produce(Outgoing(topic=REFLECTIONS, value=encode(reflection(0)), partition=0))
        (record,) = await rig.undelivered()
        log.broken = True
        rig.shuffler.deliver([record])
        with pytest.raises(TransientError):
            await rig.shuffler.turn()
        await rig.shuffler.turn()
        await rig.step()
    assert len(batches(log)) == 1


class Counting(MemoryLog):
    """Counts transactions."""

    opened_count = 0

    async def transactor(self, name: str) -> Any:
        transactor = await super().transactor(name)
        return Mock(wraps=transactor, transaction=lambda: self.opened(transactor))

    def opened(self, transactor: Transactor) -> AbstractAsyncContextManager[Transaction]:
        self.opened_count += 1
        return transactor.transaction()


class Reassigning(MemoryLog):
    """Leaves the first partition alone to the shuffler that begins to restore it; lists what was fenced."""

    shuffler: Shuffler

    def __init__(self, clock: ManualClock, **sizes: int) -> None:
        super().__init__(clock, **sizes)
        self.taken: list[str] = []

    async def transactor(self, name: str) -> Any:
        if not self.taken:
            await self.shuffler.assign([0])
        self.taken.append(name)
        return await super().transactor(name)


async def test_a_batch_and_the_offsets_behind_it_are_one_transaction(clock: ManualClock) -> None:
    log = Counting(clock, partitions=2)
    async with shuffling(log, clock, max_inflight_batches=3) as rig:
        await publish(log, *(reflection(n) for n in range(15)))
        await rig.step()
    assert log.opened_count == 3
    assert await committed(log) == 15


async def test_a_partition_that_goes_while_another_is_restored_is_not_taken_back(clock: ManualClock) -> None:
    log = Reassigning(clock, partitions=2)
    async with shuffling(log, clock) as rig:
        log.shuffler = rig.shuffler
        await rig.shuffler.turn()
        await rig.shuffler.turn()
    assert log.taken == ["shuffle-0", "shuffle-0"]


# ---- duplicates


async def test_a_repeat_is_recognised_in_the_window_and_in_earlier_batches(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock, max_inflight_batches=9) as rig:
        await publish(log, *(reflection(n) for n in (0, 1, 0, 2, 3, 4)))
        await rig.step()
        await publish(log, *(reflection(n) for n in (4, 5, 1, 6, 7, 8, 9)))
        await rig.step()
    assert members(log) == [[0, 1, 3, 4, 5], [7, 9, 10, 11, 12]]
    assert [[one.offset for one in batch.dropped] for batch in batches(log)] == [[2], [6, 8]]


async def test_a_repeat_is_recognised_after_a_restart(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(5)))
        await rig.step()
        await apply(log, rig, 1)
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in (0, 1, 5, 6, 7, 8, 9)))
        await rig.step()
    assert members(log)[1] == [7, 8, 9, 10, 11]


async def test_the_same_id_in_two_playbooks_is_two_reflections(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        for playbook in (NAME, "a"):
            await publish(log, *(reflection(n, playbook) for n in range(5)))
        await rig.step()
    assert len(batches(log, NAME)[0].members) == len(batches(log, "a")[0].members) == 5


async def test_a_storm_of_repeats_does_not_make_the_manifest_too_large(
    log: MemoryLog, clock: ManualClock
) -> None:
    again = reflection(0, reflection_id="r" * 200)
    async with shuffling(log, clock) as rig:
        await publish(log, *[again] * 5_000, *(reflection(n) for n in range(1, 5)))
        await rig.step()
    (batch,) = batches(log)
    assert len(batch.members) == 5
    assert 100 <= len(batch.dropped) < 4_999


# ---- bad records


def letters_by_transaction(log: MemoryLog) -> list[list[Record]]:
    """Return the dead letters of each transaction, in their order."""
    (partition,) = log._store.partitions(topics.DEAD_LETTERS.name)
    transactions: dict[int, list[Record]] = {}
    for slot in partition.slots:
        if slot.record is not None:
            transactions.setdefault(id(slot.pending), []).append(slot.record)
    return list(transactions.values())


@pytest.mark.parametrize("when", ["at the start", "at a turn"])
@pytest.mark.parametrize(("count", "value"), [(1203, b""), (30, b"x" * 700_000)], ids=["many", "large"])
async def test_the_dead_letters_of_a_backlog_are_written_in_transactions_of_bounded_size(
    log: MemoryLog, clock: ManualClock, when: str, count: int, value: bytes
) -> None:
    bad = [Outgoing(topic=REFLECTIONS, key=None, value=value, partition=HOME) for _ in range(count)]
    async with shuffling(log, clock) as rig:
        if when == "at a turn":
            await rig.shuffler.turn()
        await log.produce(*bad)
        await rig.step()
    written = letters_by_transaction(log)
    assert sum(map(len, written)) == count
    assert max(map(len, written)) <= LETTERS_AT_ONCE
    assert max(sum(len(letter.value or b"") for letter in letters) for letters in written) <= 2 * LETTER_BYTES
    assert await committed(log) == count


@pytest.mark.parametrize("when", ["at the start", "at a turn"])
async def test_a_long_backlog_is_read_over_several_turns_and_other_partitions_have_theirs(
    log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(shuffler, "READ_AT_ONCE", 20, raising=False)
    monkeypatch.setattr(shuffler, "DELIVERED_BYTES", 0)
    bad = [Outgoing(topic=REFLECTIONS, key=None, value=b"", partition=1 - HOME) for _ in range(95)]
    async with shuffling(log, clock) as rig:
        if when == "at a turn":
            await rig.shuffler.turn()
        await log.produce(*bad)
        await publish(log, *(reflection(n) for n in range(5)))
        await rig.step()
        assert members(log) == [list(range(5))]
        assert 0 < len(dead_letters(log)) <= 40
        await turned_until_idle(rig)
    assert [letter.origin_offset for letter in dead_letters(log)] == list(range(95))


async def turned_until_idle(rig: Shuffling) -> None:
    """Take turns for as long as the shuffler asks for another one."""
    async with asyncio.timeout(5):
        while rig.shuffler.wake.is_set():
            rig.shuffler.wake.clear()
            await rig.shuffler.turn()


async def test_a_start_that_breaks_off_in_a_backlog_of_bad_records_has_got_further(
    log: MemoryLog, clock: ManualClock
) -> None:
    bad = [Outgoing(topic=REFLECTIONS, key=None, value=b"", partition=HOME) for _ in range(1203)]
    await log.produce(*bad)
    failpoint = CrashFailpoint(9)
    with pytest.raises(CrashError):
        async with shuffling(FaultInjectingLog(log, failpoint), clock) as rig:
            await rig.step()
    assert failpoint.points.count("after commit") == 1
    assert failpoint.points[-1] == "before commit"
    assert await committed(log) == LETTERS_AT_ONCE
    async with shuffling(log, clock) as rig:
        await rig.step()
    assert [letter.origin_offset for letter in dead_letters(log)] == list(range(1203))


@pytest.mark.parametrize(("key", "value"), [(1 << 19, 1 << 18), (1 << 10, 1_000_000), (1_000_000, 1 << 10)])
async def test_poison_too_large_to_wrap_is_dead_lettered_all_the_same(
    log: MemoryLog, clock: ManualClock, key: int, value: int
) -> None:
    async with shuffling(log, clock) as rig:
        await log.produce(Outgoing(topic=REFLECTIONS, key=b"k" * key, value=b"\xc1" * value, partition=HOME))
        await rig.step()
    (letter,) = dead_letters(log)
    assert letter.size == value


async def test_an_empty_lesson_is_dead_lettered_and_its_neighbours_go_on(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await publish(
            log, reflection(0), reflection(1, key_insight=" "), *(reflection(n) for n in range(2, 6))
        )
        await rig.step()
    assert members(log) == [[0, 2, 3, 4, 5]]
    (letter,) = dead_letters(log)
    assert (letter.origin_offset, letter.service) == (1, "shuffle")
    assert letter.reason.startswith("the lesson is empty: fill in at least one of key_insight, ")
    report = await audit(log)
    assert (report.dead_lettered, report.violations) == (1, ())


async def test_a_reflection_on_a_foreign_partition_is_published_again_on_its_own(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        published = [reflection(n) for n in range(5)]
        await log.produce(*(Outgoing(topic=REFLECTIONS, value=encode(one), partition=0) for one in published))
        await rig.step()
        await rig.step()
    (batch,) = batches(log)
    assert {member.reflection_id for member in batch.members} == {one.reflection_id for one in published}
    assert [record.partition for record in ledger.records(log, topics.BATCHES)] == [HOME]


async def test_records_that_expired_unread_are_fatal_not_skipped(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(7)))
        await rig.step()
    log.expire(SOURCE, 6)
    async with shuffling(log, clock) as rig:
        with pytest.raises(FatalError):
            await rig.step()


# ---- batches without a version


def emitted(log: MemoryLog) -> Mapping[str, int]:
    groups = [group.node_id for group in ledger.messages(log, topics.SCAN[0], Group)]
    return {node: groups.count(node) for node in groups}


async def wait_out(
    log: MemoryLog,
    clock: ManualClock,
    rig: Shuffling,
    seconds: float,
    sign: Callable[[int, str], Reflection] = ledger.answered,
) -> None:
    """Let time pass, with a reflection every half minute: a sign that the model answers, or none."""
    for tick in range(int(seconds // 30)):
        clock.advance(30)
        await publish(log, sign(tick, "a"))
        await rig.step()


async def test_a_batch_without_a_version_is_emitted_again_under_the_same_ids_then_closed_degraded(
    log: MemoryLog, clock: ManualClock
) -> None:
    settings = {"batch_timeout_s": 300, "retries": 2, "batch_size": 1000, "max_wait_s": 1e9}
    async with shuffling(log, clock, **settings) as rig:
        await publish(log, *(reflection(n) for n in range(5)), flush(4))
        await rig.step()
        first = emitted(log)
        assert set(first.values()) == {1}
        await wait_out(log, clock, rig, 690)
        assert emitted(log) == dict.fromkeys(first, 3)
        assert ledger.messages(log, topics.UPDATES, Update) == []
        await wait_out(log, clock, rig, 300)
    (update,) = ledger.messages(log, topics.UPDATES, Update)
    assert update.result.status == "failed"
    assert {seen.reflection_id for seen in update.result.seen if not seen.ok} == {f"r-{n}" for n in range(5)}


async def test_a_batch_whose_reflections_have_expired_is_closed_degraded(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock, batch_timeout_s=60, retries=3) as rig:
        await publish(log, *(reflection(n) for n in range(5)))
        await rig.step()
        log.expire(SOURCE, 5)
        await wait_out(log, clock, rig, 61)
    (update,) = ledger.messages(log, topics.UPDATES, Update)
    assert update.node_id == f"degraded-{update.plan.batch_id}"
    assert update.result.reason == "its reflections have expired"


def by_itself(number: int, playbook: str) -> Reflection:
    """Return a reflection of an agent that asked another model, or says so."""
    return reflection(number, playbook, trace_id=f"t-{number}", usage={"calls": 1})


VOUCHING = Provenance(KnownSources(services=with_secret(b"services")), services_secret=b"services")


@pytest.mark.parametrize(
    ("sign", "provenance"), [(reflection, None), (by_itself, None), (ledger.answered, VOUCHING)]
)
async def test_a_batch_is_not_given_up_while_the_model_answers_nobody(
    log: MemoryLog,
    clock: ManualClock,
    sign: Callable[[int, str], Reflection],
    provenance: Provenance | None,
) -> None:
    """Where *reflect* vouches, who takes an id of *reflect* does not say that the model answers."""
    settings = {"batch_timeout_s": 300, "retries": 1, "batch_size": 1000, "max_wait_s": 1e9}
    async with shuffling(log, clock, provenance=provenance, **settings) as rig:
        await publish(log, *(reflection(n) for n in range(5)), flush(4))
        await rig.step()
        await wait_out(log, clock, rig, 3600, sign)
    assert ledger.messages(log, topics.UPDATES, Update) == []


class Interrupted(MemoryLog):
    """Lets something happen while a shuffler restores itself."""

    meanwhile: Any = None

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().committed(group, topic)


async def test_a_version_that_appears_while_a_partition_is_restored_is_not_missed(clock: ManualClock) -> None:
    log = Interrupted(clock, partitions=2)
    async with shuffling(log, clock) as rig:
        await publish(log, *(reflection(n) for n in range(10)))
        await rig.step()
    async with shuffling(log, clock) as rig:
        await rig.shuffler.assign([HOME])
        log.meanwhile = lambda: apply(log, rig, 1)
        await rig.step()
        await rig.step()
    assert len(batches(log)) == 2


@pytest.mark.parametrize(("horizon", "aborted"), [(4, 0), (1, 0), (4, 20)])
async def test_a_batch_in_flight_is_remembered_however_far_back_its_manifest_is(
    log: MemoryLog, clock: ManualClock, horizon: int, aborted: int
) -> None:
    neighbour = "q"
    assert await log.partition_for(REFLECTIONS, neighbour.encode()) == HOME
    async with shuffling(log, clock, duplicate_horizon=horizon) as rig:
        await publish(log, *(reflection(n, neighbour) for n in range(5)))
        for sequence in range(1, 11):
            await publish(log, *(reflection(5 * sequence + n) for n in range(5)))
            await rig.step()
            await apply(log, rig, sequence)
    await abort_batches(log, aborted)
    async with shuffling(log, clock, duplicate_horizon=horizon) as rig:
        await publish(log, *(reflection(n, neighbour) for n in range(5, 10)))
        await publish(log, *(reflection(n) for n in range(100, 105)))
        await rig.step()
    assert [batch.plan.sequence for batch in batches(log, neighbour)] == [1], (
        "the second must wait for the first"
    )
    assert [batch.plan.sequence for batch in batches(log)] == list(range(1, 12))


async def abort_batches(log: MemoryLog, count: int) -> None:
    """Leave so many manifests, and markers behind them, that nobody is to see."""
    transactor = await log.transactor("another")
    for _ in range(count):
        with suppress(TransientError):
            async with transactor.transaction() as transaction:
                await transaction.send(Outgoing(topic="batches", partition=HOME, value=b"-"))
                raise TransientError("given up")
    await transactor.close()


# ---- offsets without a record: markers, and what was aborted


async def end_with_an_aborted_transaction(log: MemoryLog, *messages: Reflection) -> int:
    """Abort what writes these; return the end of the partition, which readers of committed records reach."""
    transactor = await log.transactor("an agent")
    with suppress(KeyError):
        async with transactor.transaction() as transaction:
            await transaction.send(*map(outgoing, messages))
            raise KeyError
    return (await log.ends(REFLECTIONS))[HOME]


async def test_a_flush_is_fulfilled_though_the_partition_ends_with_what_was_aborted(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock) as rig:
        await publish(log, reflection(0))
        end = await end_with_an_aborted_transaction(log, reflection(1), reflection(2))
        await publish(log, flush(end - 1))
        await rig.step()
        await rig.step()
    assert members(log) == [[0]]
    assert await committed(log, COMMANDS) == 1, "it waits for nothing any more"
    assert batches(log)[0].plan.through_offset == end - 1


async def test_offsets_that_bring_no_record_are_committed_before_they_can_expire(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with shuffling(log, clock, batch_size=1) as rig:
        await publish(log, reflection(0))
        await rig.step()
        assert await committed(log) == 1
        end = await end_with_an_aborted_transaction(log, reflection(1))
        clock.advance(shuffler.LOOK_UP_EVERY_S)
        await rig.step()
        assert await committed(log) == end > 2


async def test_what_follows_an_aborted_transaction_is_read_once(log: MemoryLog, clock: ManualClock) -> None:
    async with shuffling(log, clock, batch_size=4) as rig:
        await publish(log, reflection(0))
        await end_with_an_aborted_transaction(log, reflection(1), reflection(2))
        await publish(log, reflection(3), reflection(4), reflection(5))
        for record in await rig.undelivered():
            rig.shuffler.deliver([record])
            await rig.shuffler.turn()
            await rig.shuffler.turn()
    taken = [member.reflection_id for batch in batches(log) for member in batch.members]
    assert taken == [reflection(n).reflection_id for n in (0, 3, 4, 5)]
