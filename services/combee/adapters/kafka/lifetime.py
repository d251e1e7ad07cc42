"""Clients of aiokafka that are started and stopped so that no connection is left open, whatever is cancelled.

aiokafka closes the connections that a client knows. The first one of a start it knows only once the start has asked
over it for metadata: cancelled meanwhile, aiokafka would leave that connection open.
"""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

from aiokafka import client, conn

STOP_GRACE_S = 1.0
"""What is cancelled while it stops may take so long to finish."""
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
        closing = [connection.close() for connection in self._connections or ()]
        self.is_over()
        if closing:
            await asyncio.wait(closing, timeout=STOP_GRACE_S)


async def _create_conn(*arguments: Any, **options: Any) -> Any:
    """Do what ``create_conn`` does, and note the connection."""
    connection = await conn.create_conn(*arguments, **options)
    if opened := _starting.get():
        opened.add(connection)
    return connection


async def started(starting: Awaitable[None]) -> None:
    """Start a client; of a start that is cancelled or fails, no connection stays open."""
    client.create_conn = _create_conn  # tasks of a client look it up there
    opened = _Opened()
    token = _starting.set(opened)
    try:
        await starting
    except BaseException:
        await opened.close()
        raise
    finally:
        opened.is_over()
        _starting.reset(token)


async def stopped(stopping: Awaitable[None]) -> None:
    """Stop a client; who is cancelled meanwhile gives it a moment to finish.

    aiokafka takes such a cancellation for that of its own tasks, so it is raised here.
    """
    task = asyncio.ensure_future(stopping)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=STOP_GRACE_S)
        task.cancel()
        await asyncio.wait({task}, timeout=STOP_GRACE_S)
        raise
