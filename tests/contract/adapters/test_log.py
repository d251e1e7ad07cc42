"""What every Log does, in memory and on Kafka: the fake cannot lie."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from combee.adapters.ports import (
    Consumer,
    FatalError,
    FencedError,
    Log,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
    Transactor,
    TransientError,
)
from combee_schemas.topics import FOR_EVER

R, U, ONE = "reflections", "updates", "labels"
"""Two topics of three partitions, one of one."""
DEADLINE_S = 20.0
R0 = TopicPartition(topic=R, partition=0)
ALONE = TopicPartition(topic=ONE, partition=0)


class Boom(Exception):  # noqa: N818 - no error of ours
    pass


def numbered(topic: str, numbers: Sequence[int], partition: int = 0) -> list[Outgoing]:
    return [Outgoing(topic=topic, partition=partition, value=b"%d" % number) for number in numbers]


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def whole(log: Log, source: TopicPartition, start: int = 0, end: int | None = None) -> list[Record]:
    return [record async for record in log.read(source, start, end)]


async def finished(log: Log, transactor: Transactor, name: str = "t") -> None:
    # A commit returns before Kafka has written its markers; initialising the id again waits for them.
    await transactor.close()
    await (await log.transactor(name)).close()


@asynccontextmanager
async def member(
    log: Log,
    group: str = "g",
    topics: Sequence[str] = (R,),
    assigned: list[frozenset[TopicPartition]] | None = None,
) -> AsyncIterator[Consumer]:
    async def on_assigned(sources: frozenset[TopicPartition]) -> None:
        (assigned if assigned is not None else []).append(sources)

    consumer = await log.consumer(group, topics, on_assigned)
    try:
        yield consumer
    finally:
        await consumer.close()


async def polled(consumer: Consumer, done: Callable[[list[Record]], bool]) -> list[Record]:
    found: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        while not done(found):
            found += await consumer.poll(0.1)
    return found


async def joined(consumer: Consumer) -> None:
    """Poll until the member has its partitions; there must be nothing to read yet."""
    async with asyncio.timeout(DEADLINE_S):
        while not await consumer.positions():
            assert not await consumer.poll(0.1)


# ---- writing and reading


async def test_a_record_is_read_as_it_was_written(log: Log) -> None:
    headers = (("attempt", b"1"), ("attempt", b"2"))
    sent = Outgoing(topic=R, key=b"k\x00", value=b"\xff\x00v", partition=2, headers=headers)
    assert await log.produce(sent) == [0]
    (found,) = await whole(log, TopicPartition(topic=R, partition=2))
    assert (found.topic, found.partition, found.offset) == (R, 2, 0)
    assert (found.key, found.value, found.headers) == (sent.key, sent.value, headers)
    assert found.timestamp_ms > 0


async def test_records_keep_their_order_and_offsets_count_up(log: Log) -> None:
    assert await log.produce(*numbered(R, range(50))) == list(range(50))
    assert await log.produce(*numbered(R, [50])) == [50]
    found = await whole(log, R0)
    assert values(found) == [b"%d" % number for number in range(51)]
    assert [record.offset for record in found] == list(range(51))


async def test_a_tombstone_and_an_empty_value_are_two_things(log: Log) -> None:
    await log.produce(Outgoing(topic=ONE, key=b"k", value=None), Outgoing(topic=ONE, key=b"k", value=b""))
    assert values(await whole(log, ALONE)) == [None, b""]


@pytest.mark.parametrize(
    ("key", "partition"), [(b"support/refunds", 0), (b"a", 1), (b"", 0), (b"some/other", 2)]
)
async def test_a_key_has_the_partition_that_kafka_s_clients_choose(
    log: Log, key: bytes, partition: int
) -> None:
    await log.produce(Outgoing(topic=R, key=key, value=b"v"))
    assert await log.partition_for(R, key) == partition
    assert values(await whole(log, TopicPartition(topic=R, partition=partition))) == [b"v"]


@pytest.mark.parametrize("key", [b"a@short", b"a#deleted", b"a@short#deleted"])
async def test_a_branch_and_what_remains_of_it_stand_with_their_playbook(log: Log, key: bytes) -> None:
    await log.produce(Outgoing(topic=R, key=key, value=b"v"))
    transactor = await log.transactor("t")
    async with transactor.transaction() as transaction:
        await transaction.send(Outgoing(topic=R, key=key, value=b"w"))
    await finished(log, transactor)
    home = await log.partition_for(R, b"a")
    assert await log.partition_for(R, key) == home
    assert values(await whole(log, TopicPartition(topic=R, partition=home))) == [b"v", b"w"]


async def test_a_record_without_key_goes_somewhere(log: Log) -> None:
    await log.produce(Outgoing(topic=R, value=b"v"))
    assert sum((await log.ends(R)).values()) == 1


async def test_a_record_that_is_too_large_is_poison_and_not_half_written(log: Log) -> None:
    with pytest.raises(PoisonError):
        await log.produce(Outgoing(topic=ONE, value=b"x" * 1_100_000))
    for name, content in (("h", b"x" * 100_000), ("h" * 100_000, b"x")):
        with pytest.raises(PoisonError):
            await log.produce(Outgoing(topic=ONE, value=b"x" * 990_000, headers=((name, content),)))
    await log.produce(Outgoing(topic=ONE, value=b"x" * 900_000))
    assert await log.ends(ONE) == {0: 1}


async def test_a_topic_that_does_not_exist_is_fatal(log: Log) -> None:
    with pytest.raises(FatalError, match="no-such-topic"):
        await log.partitions("no-such-topic")
    with pytest.raises(FatalError, match="no-such-topic"):
        await whole(log, TopicPartition(topic="no-such-topic", partition=0))


async def test_every_topic_has_its_partitions(log: Log) -> None:
    assert [await log.partitions(topic) for topic in (R, U, ONE)] == [3, 3, 1]


# ---- bounded reading


async def test_reading_starts_and_ends_where_it_is_told(log: Log) -> None:
    await log.produce(*numbered(R, range(10)))
    assert values(await whole(log, R0, 7)) == [b"7", b"8", b"9"]
    assert values(await whole(log, R0, 2, 4)) == [b"2", b"3"]
    assert await whole(log, R0, 10) == []
    assert await whole(log, R0, 4, 4) == []
    assert len(await whole(log, R0, 0, 99)) == 10


async def test_reading_ends_at_the_end_seen_when_it_began(log: Log) -> None:
    await log.produce(*numbered(R, [0, 1]))
    found: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        async for record in log.read(R0, 0):
            found.append(record)
            await log.produce(*numbered(R, [99]))
    assert values(found) == [b"0", b"1"]


async def test_single_records_are_found_by_offset(log: Log) -> None:
    await log.produce(*numbered(R, range(10)))
    found = await log.read_at(R0, [8, 3, 77])
    assert {offset: record.value for offset, record in found.items()} == {3: b"3", 8: b"8"}
    assert await log.read_at(R0, []) == {}


async def test_beginnings_and_ends_are_known_for_every_partition(log: Log) -> None:
    await log.produce(*numbered(R, range(3), partition=1))
    assert await log.beginnings(R) == {0: 0, 1: 0, 2: 0}
    assert await log.ends(R) == {0: 0, 1: 3, 2: 0}


async def test_an_offset_is_found_by_time_and_is_the_end_where_nothing_is_so_new(log: Log) -> None:
    await log.produce(*numbered(R, range(3)))
    (first, *_, last) = await whole(log, R0)
    assert (await log.offsets_at(R, first.timestamp_ms))[0] == 0
    assert (await log.offsets_at(R, last.timestamp_ms + 1)) == {0: 3, 1: 0, 2: 0}


# ---- following


async def test_following_gives_what_is_there_then_none_once_then_what_comes(log: Log) -> None:
    await log.produce(*numbered(R, [0, 1]), *numbered(R, [2], partition=2))
    seen: list[bytes | str | None] = []
    async with asyncio.timeout(DEADLINE_S), aclosing(log.follow(R)) as changes:
        async for records in changes:
            seen += ["current"] if records is None else values(records)
            if records is None:
                await log.produce(*numbered(R, [3], partition=1))
            if b"3" in seen:
                break
    assert sorted(map(str, seen[:3])) == ["b'0'", "b'1'", "b'2'"]
    assert seen[3:] == ["current", b"3"]


async def test_following_an_empty_topic_is_current_at_once(log: Log) -> None:
    async with asyncio.timeout(DEADLINE_S), aclosing(log.follow(U)) as changes:
        assert await anext(changes) is None


async def test_following_can_start_anywhere(log: Log) -> None:
    await log.produce(*numbered(R, [0, 1, 2]), *numbered(R, [10], partition=1))
    seen: list[bytes | None] = []
    async with asyncio.timeout(DEADLINE_S), aclosing(log.follow(R, {0: 2, 1: 1})) as changes:
        async for records in changes:
            if records is None:
                break
            seen += values(records)
    assert seen == [b"2"]


# ---- transactions


async def test_a_transaction_is_seen_whole_and_only_after_its_commit(log: Log) -> None:
    transactor = await log.transactor("t")
    async with transactor.transaction() as transaction:
        assert await transaction.send(*numbered(R, [0, 1])) == [0, 1]
        await transaction.send(*numbered(U, [2], partition=1))
        assert await whole(log, R0) == []
        assert await log.ends(R) == {0: 0, 1: 0, 2: 0}
    await finished(log, transactor)
    assert values(await whole(log, R0)) == [b"0", b"1"]
    assert values(await whole(log, TopicPartition(topic=U, partition=1))) == [b"2"]


async def test_the_end_lies_after_a_transaction_s_marker(log: Log) -> None:
    transactor = await log.transactor("t")
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(R, [0]))
    async with transactor.transaction() as transaction:
        assert await transaction.send(*numbered(R, [1])) == [2]
    await finished(log, transactor)
    assert (await log.ends(R))[0] == 4
    assert [record.offset for record in await whole(log, R0)] == [0, 2]
    assert set(await log.read_at(R0, [0, 1, 2, 3])) == {0, 2}


async def test_an_aborted_transaction_leaves_no_trace_but_offsets(log: Log) -> None:
    transactor = await log.transactor("t")
    with pytest.raises(Boom):  # noqa: PT012 - the error ends the transaction
        async with transactor.transaction() as transaction:
            await transaction.send(*numbered(R, [0]))
            await transaction.commit_offsets("g", {R0: 7})
            raise Boom
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(R, [1]))
    await finished(log, transactor)
    await log.produce(*numbered(R, [2]))
    assert values(await whole(log, R0)) == [b"1", b"2"]
    assert await log.committed("g", R) == {}


async def test_readers_wait_behind_an_open_transaction(log: Log) -> None:
    transactor = await log.transactor("t")
    await log.produce(*numbered(R, [0]))
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(R, [1]))
        await log.produce(*numbered(R, [2]))
        assert values(await whole(log, R0)) == [b"0"]
        assert (await log.ends(R))[0] == 1
    await finished(log, transactor)
    assert values(await whole(log, R0)) == [b"0", b"1", b"2"]


async def test_offsets_are_committed_with_a_transaction(log: Log) -> None:
    transactor = await log.transactor("t")
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(U, [0]))
        await transaction.commit_offsets("g", {R0: 5, TopicPartition(topic=U, partition=2): 1})
    await finished(log, transactor)
    assert await log.committed("g", R) == {0: 5}
    assert await log.committed("g", U) == {2: 1}
    assert await log.committed("other", R) == {}


async def test_offsets_alone_can_be_committed_in_a_transaction(log: Log) -> None:
    transactor = await log.transactor("t")
    for offset in (3, 4):
        async with transactor.transaction() as transaction:
            await transaction.commit_offsets("g", {R0: offset})
    await finished(log, transactor)
    assert await log.committed("g", R) == {0: 4}


async def test_a_newer_owner_fences_the_older_and_ends_its_open_transaction(log: Log) -> None:
    older = await log.transactor("t")
    with pytest.raises(FencedError):  # noqa: PT012 - the error ends the transaction
        async with older.transaction() as transaction:
            await transaction.send(*numbered(R, [0]))
            newer = await log.transactor("t")
            assert await whole(log, R0) == []
            async with newer.transaction() as second:
                await second.send(*numbered(R, [1]))
            await transaction.send(*numbered(R, [2]))
    with pytest.raises(FencedError):
        async with older.transaction() as transaction:
            await transaction.send(*numbered(R, [3]))
    async with newer.transaction() as second:
        await second.send(*numbered(R, [4]))
    await older.close()
    await finished(log, newer)
    assert values(await whole(log, R0)) == [b"1", b"4"]


async def test_a_commit_of_the_older_owner_has_no_effect(log: Log) -> None:
    older = await log.transactor("t")
    with pytest.raises(FencedError):  # noqa: PT012 - the error ends the transaction
        async with older.transaction() as transaction:
            await transaction.send(*numbered(R, [0]))
            await transaction.commit_offsets("g", {R0: 1})
            newer = await log.transactor("t")
    for one in (older, newer):
        await one.close()
    assert await whole(log, R0) == []
    assert await log.committed("g", R) == {}


async def test_owners_of_different_names_do_not_disturb_each_other(log: Log) -> None:
    first, second = await log.transactor("first"), await log.transactor("second")
    async with first.transaction() as one, second.transaction() as other:
        await one.send(*numbered(R, [0]))
        await other.send(*numbered(R, [1]))
    await finished(log, first, "first")
    await finished(log, second, "second")
    assert values(await whole(log, R0)) == [b"0", b"1"]


# ---- consumer groups


async def test_a_lone_member_gets_every_partition_and_learns_so_before_any_record(log: Log) -> None:
    await log.produce(*numbered(R, [0]))
    assigned: list[frozenset[TopicPartition]] = []
    async with member(log, topics=(R, U), assigned=assigned) as consumer:
        assert not assigned
        await polled(consumer, bool)
        assert assigned == [
            frozenset(TopicPartition(topic=topic, partition=n) for topic in (R, U) for n in range(3))
        ]
        assert await consumer.start_offset(R0) == 0


async def test_a_member_gets_records_in_order_and_what_comes_later(log: Log) -> None:
    await log.produce(*numbered(R, range(20)))
    async with member(log) as consumer:
        assert values(await polled(consumer, lambda found: len(found) >= 20)) == [
            b"%d" % n for n in range(20)
        ]
        await log.produce(*numbered(R, [20]))
        assert values(await polled(consumer, bool)) == [b"20"]


async def test_a_poll_ends_empty_when_nothing_comes(log: Log) -> None:
    async with member(log) as consumer:
        await joined(consumer)
        assert list(await consumer.poll(0.05)) == []


async def test_what_is_not_committed_comes_again_and_what_is_does_not(log: Log) -> None:
    await log.produce(*numbered(R, range(4)))
    async with member(log) as consumer:
        await polled(consumer, lambda found: len(found) == 4)
        await consumer.commit({R0: 2})
    assert await log.committed("g", R) == {0: 2}
    async with member(log) as consumer:
        assert values(await polled(consumer, lambda found: len(found) == 2)) == [b"2", b"3"]
        assert await consumer.start_offset(R0) == 2
    async with member(log, group="another") as consumer:
        assert len(await polled(consumer, lambda found: len(found) == 4)) == 4


async def test_a_note_comes_back_with_its_offset_and_goes_with_the_next_commit(log: Log) -> None:
    await log.produce(*numbered(R, range(4)))
    async with member(log) as consumer:
        await polled(consumer, bool)
        assert await consumer.note(R0) == ""
        await consumer.commit({R0: 2}, {R0: "further: 4"})
    async with member(log) as consumer:
        await polled(consumer, bool)
        assert (await consumer.start_offset(R0), await consumer.note(R0)) == (2, "further: 4")
        await consumer.commit({R0: 3})
    async with member(log) as consumer:
        await polled(consumer, bool)
        assert (await consumer.start_offset(R0), await consumer.note(R0)) == (3, "")


async def test_a_member_that_seeks_goes_on_from_there(log: Log) -> None:
    await log.produce(*numbered(R, range(4)))
    async with member(log) as consumer:
        await polled(consumer, lambda found: len(found) == 4)
        consumer.seek(R0, 3)
        assert values(await polled(consumer, bool)) == [b"3"]


async def test_the_log_says_how_long_a_topic_keeps_its_records(log: Log) -> None:
    assert await log.retention_ms(U) == FOR_EVER


async def test_a_commit_of_partitions_not_owned_is_ignored(log: Log) -> None:
    async with member(log) as consumer:
        await joined(consumer)
        await consumer.commit({TopicPartition(topic=U, partition=0): 1})
    assert await log.committed("g", U) == {}


async def test_offsets_can_be_set_back(log: Log) -> None:
    await log.produce(*numbered(R, range(3)))
    for offset in (3, 0):
        async with member(log) as consumer:
            await joined_or_read(consumer)
            await consumer.commit({R0: offset})
    async with member(log) as consumer:
        assert len(await polled(consumer, lambda found: len(found) == 3)) == 3


async def joined_or_read(consumer: Consumer) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await consumer.positions():
            await consumer.poll(0.1)


async def test_a_paused_partition_is_silent_until_it_is_resumed(log: Log) -> None:
    other = TopicPartition(topic=R, partition=1)
    async with member(log) as consumer:
        await joined(consumer)
        consumer.pause(R0)
        await log.produce(*numbered(R, [0, 1]), *numbered(R, [10], partition=1))
        assert [record.source for record in await polled(consumer, bool)] == [other]
        assert list(await consumer.poll(0.3)) == []
        consumer.resume(R0)
        assert values(await polled(consumer, lambda found: len(found) == 2)) == [b"0", b"1"]


async def test_a_member_sees_committed_transactions_only_and_its_position_passes_their_markers(
    log: Log,
) -> None:
    transactor = await log.transactor("t")
    with pytest.raises(Boom):  # noqa: PT012 - the error ends the transaction
        async with transactor.transaction() as transaction:
            await transaction.send(*numbered(R, [0]))
            raise Boom
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(R, [1]))
    await finished(log, transactor)
    async with member(log) as consumer:
        assert values(await polled(consumer, bool)) == [b"1"]
        async with asyncio.timeout(DEADLINE_S):
            while (await consumer.positions())[R0] < 4:
                assert list(await consumer.poll(0.1)) == []
        await consumer.commit(await consumer.positions())
    assert (await log.committed("g", R))[0] == (await log.ends(R))[0] == 4


async def test_a_member_waits_behind_an_open_transaction(log: Log) -> None:
    transactor = await log.transactor("t")
    async with member(log) as consumer:
        await joined(consumer)
        async with transactor.transaction() as transaction:
            await transaction.send(*numbered(R, [0]))
            await log.produce(*numbered(R, [1]))
            assert list(await consumer.poll(0.3)) == []
        assert values(await polled(consumer, lambda found: len(found) == 2)) == [b"0", b"1"]
    await finished(log, transactor)


async def test_an_assignment_that_could_not_be_taken_over_is_told_again_before_any_record(log: Log) -> None:
    told: list[frozenset[TopicPartition]] = []

    async def on_assigned(sources: frozenset[TopicPartition]) -> None:
        told.append(sources)
        if len(told) == 1:
            raise TransientError("the log is away")

    await log.produce(Outgoing(topic=R, value=b"one", partition=0))
    consumer = await log.consumer("group", (R,), on_assigned)
    try:
        found: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            while not found:
                with suppress(TransientError):
                    found = list(await consumer.poll(0.1))
                assert not found or len(told) > 1
    finally:
        await consumer.close()
    assert told[0]
    assert told[1] == told[0]


# ---- copies


async def test_a_copied_record_keeps_its_time(log: Log) -> None:
    await log.produce(Outgoing(topic=R, partition=0, value=b"v", timestamp_ms=1_700_000_000_000))
    assert [record.timestamp_ms for record in await whole(log, R0)] == [1_700_000_000_000]


async def test_ends_are_settled_once_what_was_open_before_them_is_decided(log: Log) -> None:
    await log.produce(*numbered(R, [1]))
    transactor = await log.transactor("t")
    async with transactor.transaction() as transaction:
        await transaction.send(*numbered(R, [2]))
        assert (await log.ends(R))[0] == 1
        settling = asyncio.create_task(log.settled(R))
        await asyncio.wait({settling}, timeout=0.5)
        assert not settling.done()
    async with asyncio.timeout(DEADLINE_S):
        ends = await settling
    assert ends == {0: 2, 1: 0, 2: 0}, "the marker came after the call"
    assert values(await whole(log, R0, 0, ends[0])) == [b"1", b"2"]
    await transactor.close()


async def test_what_another_client_has_just_committed_is_read_up_to_settled_ends(log: Log) -> None:
    transactor = await log.transactor("t")
    for number in range(10):
        async with transactor.transaction() as transaction:
            await transaction.send(*numbered(R, [number]))
        ends = await log.settled(R)
        assert values(await whole(log, R0, 0, ends[0])) == [b"%d" % each for each in range(number + 1)]
    await transactor.close()
