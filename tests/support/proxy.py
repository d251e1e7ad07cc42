"""A TCP proxy on loopback between clients and a broker: passes bytes, holds them back, or refuses and cuts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 64 * 1024


class Proxy:
    """One address in front of another; what it does can be changed at any time."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = host, int(port)
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Let no byte through, keep every connection: as a partition of the network looks."""
        self._open.clear()

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Pass everything again."""
        self._refusing = False
        self._open.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self._refusing:
            writer.transport.abort()
            return
        try:
            behind_reader, behind = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, behind}
        ways = [self._way(reader, behind), self._way(behind_reader, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        self._tasks |= set(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks -= set(tasks)
        self._writers -= {writer, behind}
        for one in (writer, behind):
            one.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """End every connection."""
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(upstream: str, port: int) -> AsyncIterator[Proxy]:
    """Run a proxy on a port of loopback."""
    proxy = Proxy(upstream)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", port)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
