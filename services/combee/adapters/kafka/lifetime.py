"""Clients of aiokafka that are started and stopped so that no connection is left open, whatever is cancelled.

aiokafka closes the connections that a client knows. The first one of a start it knows only once the start has asked
over it for metadata: cancelled meanwhile, aiokafka would leave that connection open. And it forgets, without closing
it, a connection that the broker has ended when it comes to ask before its reader has heard of the end.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

from aiokafka import client, conn
from aiokafka.errors import KafkaConnectionError

from combee.adapters.kafka.errors import translated

logger = logging.getLogger("combee")  # noqa: TID251 - agents load this, too: no structlog

STOP_S = 30.0
STOP_GRACE_S = 1.0
"""What is cancelled while it stops may take so long to finish."""
TASKS = (
    *("_sender_task", "_sync_task", "_fetch_task"),
    *("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task"),
)
"""What aiokafka's clients, and the parts of them, call their tasks."""
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[asyncio.Transport]] = WeakKeyDictionary()
_starting: ContextVar["_Opened | None"] = ContextVar(
    "connections of the start that is under way", default=None
)


class _Opened:
    """The connections that a start has opened; once it is over, none is kept."""

    def __init__(self) -> None:
        self._connections: list[Any] | None = []

    def add(self, connection: Any) -> None:
        if self._connections is not None:
            self._connections.append(connection)

    def is_over(self) -> None:
        self._connections = None

    async def close(self) -> None:
        connections = self._connections or []
        self.is_over()
        await _closed(connections)


async def _closed(connections: Iterable[Any]) -> None:
    if closing := [connection.close() for connection in connections]:
        await asyncio.wait(closing, timeout=STOP_GRACE_S)


class _Protocol(conn.AIOKafkaProtocol):  # type: ignore[misc] # aiokafka has no types
    """A connection that closes as soon as the broker ends it, and is known as long as it is open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened_as = cast("asyncio.Transport", transport)
        _open.setdefault(asyncio.get_running_loop(), WeakSet()).add(self._opened_as)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _open[asyncio.get_running_loop()].discard(self._opened_as)

    def eof_received(self) -> bool:
        super().eof_received()
        return False  # asyncio closes the transport


async def _without_farewell() -> None:
    """Hang up connections that are closing: over TLS they wait for the broker's farewell, longer than loops live."""
    closing = [transport for transport in _open.get(asyncio.get_running_loop(), ()) if transport.is_closing()]
    for transport in closing:
        transport.abort()
    if closing:
        await asyncio.sleep(0)  # then asyncio closes the socket


async def _create_conn(*arguments: Any, **options: Any) -> Any:
    """Do what ``create_conn`` does, and note the connection."""
    connection = await conn.create_conn(*arguments, **options)
    if opened := _starting.get():
        opened.add(connection)
    return connection


async def started(starting: Awaitable[None]) -> None:
    """Start a client; of a start that is cancelled or fails, no connection stays open.

    Raises
    ------
    KafkaError
        Whatever keeps it from starting.
    """
    client.create_conn = _create_conn  # tasks of a client look it up there
    conn.AIOKafkaProtocol = _Protocol
    opened = _Opened()
    token = _starting.set(opened)
    try:
        await starting
    except AssertionError as error:
        await opened.close()
        # aiokafka asserts that the cluster has named a broker; one that is only starting names none.
        raise KafkaConnectionError(str(error)) from error
    except BaseException:
        await opened.close()
        raise
    finally:
        opened.is_over()
        _starting.reset(token)


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    """Start a client, and stop it at the end."""
    try:
        with translated("connecting"):
            await started(client.start())
        yield client
    finally:
        await stopped(client)


async def stopped(client: Any) -> None:
    """Stop a client; if that takes longer than 30 s, or the caller is cancelled meanwhile, hang up.

    aiokafka takes a cancellation for that of its own tasks and goes on, so it is raised here.
    """
    stopping = asyncio.ensure_future(client.stop() if hasattr(client, "stop") else client.close())
    stopping.add_done_callback(_heard)
    try:
        await asyncio.wait({stopping}, timeout=STOP_S)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({stopping}, timeout=STOP_GRACE_S)
        finally:
            await _hung_up(client, stopping)
        raise
    if await _hung_up(client, stopping):
        logger.warning("a %s has not stopped within %.0f s: hung up", type(client).__name__, STOP_S)
    else:
        stopping.result()


def _heard(stopping: asyncio.Future[None]) -> None:
    """Take note of a stop's error, which asyncio would report as one that nobody has seen."""
    if not stopping.cancelled():
        stopping.exception()


async def _hung_up(client: Any, stopping: asyncio.Future[None]) -> bool:
    """Hang up all that a stop has left open; return whether it had not come to its end.

    A stop that is cancelled on its way does not get to the client's tasks and connections.
    """
    is_under_way = stopping.cancel()
    try:
        if is_under_way:
            await asyncio.wait({stopping}, timeout=STOP_GRACE_S)
    finally:
        if is_under_way:
            for task in _tasks(client):
                task.cancel()
            await _closed(_connections(client))
        await _without_farewell()
    return is_under_way


def _tasks(client: Any) -> Iterator[asyncio.Task[Any]]:
    """Yield what a client, or a part of it, has running."""
    for part in (client, *vars(client).values()):
        for name in TASKS:
            if isinstance(task := getattr(part, name, None), asyncio.Task):
                yield task


def _connections(client: Any) -> list[Any]:
    """Return the connections of a consumer, a producer, or the client below them."""
    below = getattr(client, "_client", None) or getattr(client, "client", client)
    return list(below._conns.values())  # noqa: SLF001 - nobody else has them
