"""Equal replicas need no number; of two processes with one number the later wins, and the earlier ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.consumer import KafkaConsumer
from combee.adapters.ports import FatalError, TopicPartition
from combee.assembly import backends
from combee.process.settings.loading import load_settings
from support.broker import Broker
from support.cli import start
from support.forked import Forked

DEADLINE_S = 60.0
POLL_S = 0.2
TOPIC = "reflections"


class Member:
    """A group member that polls, and knows what it was dealt last."""

    def __init__(self, connection: Connection) -> None:
        self.dealt: frozenset[TopicPartition] = frozenset()
        self.consumer = KafkaConsumer(connection, "g", self._assigned)

    async def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.dealt = partitions

    async def poll(self) -> None:
        while True:
            await self.consumer.poll(POLL_S)


@asynccontextmanager
async def member(connection: Connection) -> AsyncIterator[tuple[Member, asyncio.Task[None]]]:
    made = Member(connection)
    await made.consumer.start([TOPIC])
    polling = asyncio.create_task(made.poll())
    try:
        yield made, polling
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await made.consumer.close()


async def dealt(each: dict[Member, int]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while {member: len(member.dealt) for member in each} != each:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(POLL_S)


@pytest.fixture
async def topics(kafka: Broker, topic_prefix: str) -> None:
    made = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    await backends.create_topics(made, backends.connection(made, kafka.bootstrap_servers))


def connected(kafka: Broker, prefix: str, slot: int | None = None) -> Connection:
    return Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=prefix, slot=slot)


@pytest.mark.usefixtures("topics")
async def test_replicas_without_a_number_share_the_partitions(kafka: Broker, topic_prefix: str) -> None:
    async with member(connected(kafka, topic_prefix)) as (first, _):
        async with member(connected(kafka, topic_prefix)) as (second, _):
            await dealt({first: 2, second: 2})
        # It left by itself: nobody waits for the end of its session.
        await dealt({first: 4})


@pytest.mark.usefixtures("topics")
async def test_of_two_with_one_number_the_later_wins_and_stays(kafka: Broker, topic_prefix: str) -> None:
    async with member(connected(kafka, topic_prefix, slot=0)) as (earlier, its_polling):
        await dealt({earlier: 4})
        async with member(connected(kafka, topic_prefix, slot=0)) as (later, polling):
            with pytest.raises(FatalError, match=r"slot 0 and takes over: this one ends"):
                async with asyncio.timeout(DEADLINE_S):
                    await its_polling
            await dealt({later: 4})
            await earlier.consumer.close()
            # The broker takes commits of members alone: the earlier one must not join again while it closes.
            await later.consumer._consumer.commit(dict.fromkeys(later.consumer._consumer.assignment(), 0))
            assert not polling.done()


@pytest.mark.usefixtures("topics")
async def test_next_session_of_one_process_is_the_member_that_it_was(
    kafka: Broker, topic_prefix: str
) -> None:
    connection = connected(kafka, topic_prefix, slot=0)
    async with member(connection) as (first, _):
        await dealt({first: 4})
    async with member(connection) as (second, polling):
        await dealt({second: 4})
        assert not polling.done()


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("role", ["shuffle", "publish"])
async def test_worker_whose_number_another_takes_ends_once_and_says_so(
    kafka: Broker, topic_prefix: str, tmp_path: Path, role: str
) -> None:
    async def started(name: str) -> Forked:
        return await start(
            "worker",
            role,
            "--slot",
            "0",
            data_dir=tmp_path,
            COMBEE_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
            COMBEE_TOPIC_PREFIX=topic_prefix,
            COMBEE_READY_FILE=str(tmp_path / f"{name}.ready"),
        )

    earlier = await started("earlier")
    processes, ends = [earlier], [asyncio.create_task(earlier.communicate())]
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (tmp_path / "earlier.ready").exists():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(POLL_S)
        processes.append(later := await started("later"))
        ends.append(asyncio.create_task(later.communicate()))
        await asyncio.wait(ends, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        codes = [process.returncode for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
        said = [err.decode() for _, err in await asyncio.gather(*ends)]
    assert codes == [1, None], said
    assert "slot 0 and takes over" in said[0], said
