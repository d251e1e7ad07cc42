"""Starting and stopping aiokafka's clients without leaving a connection open, even after a cancellation.

aiokafka closes the connections that a client knows. It learns of a start's first connection only after the first
metadata request: a cancellation before would leave that connection open. And it forgets a connection that the broker
has ended, without closing it, if a request comes before its reader notices the end.
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

logger = logging.getLogger("combee")  # noqa: TID251 - agents load this module, too: no structlog

STOP_S = 30.0
STOP_GRACE_S = 1.0
"""Seconds that cancelled tasks get to finish during a stop."""
TASKS = (
    *("_sender_task", "_sync_task", "_fetch_task"),
    *("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task"),
)
"""Names of the task attributes of aiokafka's clients and of their parts."""
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[asyncio.Transport]] = WeakKeyDictionary()
_starting: ContextVar["_Opened | None"] = ContextVar(
    "connections of the start that is under way", default=None
)


class _Opened:
    """The connections that a start has opened; empty once it is over."""

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
    """A connection that closes as soon as the broker ends it, and is tracked while it is open."""

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
    """Abort connections that are closing: over TLS they wait for the broker to close, longer than the loop lives."""
    closing = [transport for transport in _open.get(asyncio.get_running_loop(), ()) if transport.is_closing()]
    for transport in closing:
        transport.abort()
    if closing:
        await asyncio.sleep(0)  # then asyncio closes the socket


async def _create_conn(*arguments: Any, **options: Any) -> Any:
    """Call ``create_conn`` and track the connection."""
    connection = await conn.create_conn(*arguments, **options)
    if opened := _starting.get():
        opened.add(connection)
    return connection


async def started(starting: Awaitable[None]) -> None:
    """Start a client; a start that is cancelled or fails leaves no connection open.

    Raises
    ------
    KafkaError
        If it cannot start.
    """
    client.create_conn = _create_conn  # a client's tasks look it up there
    conn.AIOKafkaProtocol = _Protocol
    opened = _Opened()
    token = _starting.set(opened)
    try:
        await starting
    except AssertionError as error:
        await opened.close()
        # aiokafka asserts that the cluster has named a broker; a starting cluster names none.
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

    aiokafka mistakes a cancellation for one of its own tasks and goes on, so it is raised here.
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
        logger.warning(
            "a %s has not stopped within %.0f s: its connection is closed", type(client).__name__, STOP_S
        )
    else:
        stopping.result()


def _heard(stopping: asyncio.Future[None]) -> None:
    """Read a stop's error, which asyncio would otherwise report as never retrieved."""
    if not stopping.cancelled():
        stopping.exception()


async def _hung_up(client: Any, stopping: asyncio.Future[None]) -> bool:
    """Close everything that a stop has left open; return whether the stop was unfinished.

    A cancelled stop does not reach all of the client's tasks and connections, and one that was cancelled before it
    began, with all tasks of a loop that ends, reaches none: aiokafka would report the client as unclosed.
    """
    is_under_way = stopping.cancel() or stopping.cancelled()
    try:
        if is_under_way:
            await asyncio.wait({stopping}, timeout=STOP_GRACE_S)
    finally:
        if is_under_way:
            client._closed = True  # noqa: SLF001 - see above
            for task in _tasks(client):
                task.cancel()
            await _closed(_connections(client))
        await _without_farewell()
    return is_under_way


def _tasks(client: Any) -> Iterator[asyncio.Task[Any]]:
    """Yield the running tasks of a client or a part of it."""
    for part in (client, *vars(client).values()):
        for name in TASKS:
            if isinstance(task := getattr(part, name, None), asyncio.Task):
                yield task


def _connections(client: Any) -> list[Any]:
    """Return the connections of a consumer, a producer, or the client below them."""
    below = getattr(client, "_client", None) or getattr(client, "client", client)
    return list(below._conns.values())  # noqa: SLF001 - no public access
