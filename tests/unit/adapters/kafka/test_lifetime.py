"""A client of aiokafka whose start is cancelled, or fails, keeps no connection."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import conn

from combee.adapters.kafka import lifetime
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.log import KafkaLog
from combee.adapters.kafka.probe import abilities
from combee.adapters.ports import Outgoing, TransientError

DEADLINE_S = 5.0
API_VERSIONS = 18
REQUESTS = ((3, 0, 1), (18, 0, 0), (22, 0, 0))
"""What this broker understands: metadata, versions, producer ids; with their least and newest versions."""


class MuteBroker:
    """A broker that says what it understands, and answers nothing else."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                api_key, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(length))
                if api_key != API_VERSIONS:
                    self.asked.set()
                    continue
                body = struct.pack(">ihi", correlation_id, 0, len(REQUESTS))
                body += b"".join(struct.pack(">hhh", *request) for request in REQUESTS)
                writer.write(struct.pack(">i", len(body)) + body)
        except asyncio.IncompleteReadError:
            self.hung_up.set()
        finally:
            writer.close()


@asynccontextmanager
async def mute_broker() -> AsyncIterator[tuple[MuteBroker, Connection]]:
    broker = MuteBroker()
    async with await asyncio.start_server(broker.serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        yield broker, Connection(bootstrap_servers=f"127.0.0.1:{port}", prefix="t")


async def on_assigned(_partitions: Any) -> None: ...


STARTS: dict[str, Callable[[Connection], Coroutine[Any, Any, Any]]] = {
    "a look-up": lambda connection: KafkaLog(connection).partitions("batches"),
    "a producer": lambda connection: KafkaLog(connection).produce(Outgoing(topic="batches", value=b"x")),
    "a transactor": lambda connection: KafkaLog(connection).transactor("publish-0"),
    "a group member": lambda connection: KafkaLog(connection).consumer("scan", ["batches"], on_assigned),
    "a probe": abilities,
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
async def test_a_start_that_is_cancelled_hangs_up(
    start: Callable[[Connection], Coroutine[Any, Any, Any]],
) -> None:
    async with asyncio.timeout(DEADLINE_S), mute_broker() as (broker, connection):
        starting = asyncio.create_task(start(connection))
        await broker.asked.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await broker.hung_up.wait()


async def test_a_connection_that_the_broker_ends_is_closed_though_nobody_reads_it() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    await lifetime.started(asyncio.sleep(0))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S), await asyncio.start_server(hang_up, "127.0.0.1") as server:
        closed = loop.create_future()
        reader = asyncio.StreamReader()
        await loop.create_connection(
            lambda: conn.AIOKafkaProtocol(closed, reader, loop=loop),
            *server.sockets[0].getsockname(),
        )
        await closed


class Member:
    """A consumer of aiokafka that cannot start, or waits for ever to."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.reached = asyncio.Event()
        self.is_stopped = False

    async def start(self) -> None:
        self.reached.set()
        if self.fails:
            raise aiokafka.errors.KafkaConnectionError
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is cancelled"])
async def test_a_group_member_whose_start_comes_to_nothing_is_stopped(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    member = Member(fails=fails)
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", lambda **_: member)
    log = KafkaLog(Connection(bootstrap_servers="127.0.0.1:1", prefix="t"))
    starting = asyncio.create_task(log.consumer("scan", ["batches"], on_assigned))
    await member.reached.wait()
    if not fails:
        starting.cancel()
    with pytest.raises((TransientError, asyncio.CancelledError)):
        await starting
    assert member.is_stopped


class Stopping:
    """A producer of aiokafka whose stop hangs before it comes to its task and its one connection."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.sending = asyncio.create_task(asyncio.Event().wait())
        self._sender = SimpleNamespace(_sender_task=self.sending)
        self.hung_up = False
        self._client = SimpleNamespace(_conns={"node": self})

    async def stop(self) -> None:
        self.reached.set()
        await asyncio.get_running_loop().create_future()

    def close(self) -> asyncio.Future[None]:
        """Close the connection."""
        self.hung_up = True
        closed = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed


async def test_of_a_stop_that_is_cancelled_and_hangs_no_connection_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifetime, "STOP_GRACE_S", 0.01)
    client = Stopping()
    stopping = asyncio.create_task(lifetime.stopped(client))
    await client.reached.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert client.hung_up
    with pytest.raises(asyncio.CancelledError):
        await client.sending


async def test_a_stop_that_does_not_end_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "STOP_S", 0.01)
    monkeypatch.setattr(lifetime, "STOP_GRACE_S", 0.01)
    client = Stopping()
    async with asyncio.timeout(DEADLINE_S):
        await lifetime.stopped(client)
    assert client.hung_up
    with pytest.raises(asyncio.CancelledError):
        await client.sending


async def test_what_keeps_a_client_from_stopping_is_raised() -> None:
    class Broken:
        async def stop(self) -> None:
            raise aiokafka.errors.KafkaConnectionError

    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await lifetime.stopped(Broken())


async def test_a_cluster_that_names_no_broker_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Early:
        """A producer of aiokafka that asks a broker which is only starting."""

        def __init__(self, **_options: Any) -> None: ...

        async def start(self) -> None:
            raise AssertionError("Did we not perform bootstrap?")

        async def stop(self) -> None: ...

    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", Early)
    log = KafkaLog(Connection(bootstrap_servers="b:1", prefix="t"))
    with pytest.raises(TransientError, match="initialising transactional id shuffle-0"):
        await log.transactor("shuffle-0")


async def test_a_stop_that_is_cancelled_before_it_began_leaves_no_client_unclosed() -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    closing = asyncio.create_task(lifetime.stopped(producer))
    await asyncio.sleep(0)  # it has made the task that stops the client, which has not run yet
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert len(tasks) == 2
    for task in tasks:  # as a loop that ends does
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert closing.cancelled()
    del closing, tasks, task, producer
    gc.collect()  # an unclosed one would warn here, and a warning is an error
