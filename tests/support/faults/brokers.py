"""Brokers of a test's own, to be hurt: one node behind a TCP proxy, or three nodes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.embedded_kafka.data_dir import ClusterState, new_cluster_id
from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.adapters.kafka import is_ready
from support.broker import FOR_TESTS
from support.faults.kafka import FragileKafka

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
        self._served: set[asyncio.Task[None]] = set()

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
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._served.add(serving)
        serving.add_done_callback(self._served.discard)
        with suppress(asyncio.CancelledError):
            await serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = {writer}
        try:
            behind_reader, behind = await asyncio.open_connection(*self._upstream)
            both.add(behind)
            if not self._refusing:
                self._writers |= both
                ways = [self._way(reader, behind), self._way(behind_reader, writer)]
                tasks = [asyncio.create_task(way) for way in ways]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
        except OSError:
            pass  # nobody is behind
        finally:
            self._writers -= both
            for stream in both:
                stream.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """End every connection, also one that is only being made."""
        self.cut()
        for serving in self._served:
            serving.cancel()
        if self._served:
            await asyncio.wait(self._served)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fronted:
    """A broker with a second listener that is reached through a proxy only."""

    kafka: FragileKafka
    proxy: Proxy
    address: str
    """Where clients reach it through the proxy."""

    @property
    def bootstrap_servers(self) -> str:
        """Where everybody else reaches it."""
        return self.kafka.bootstrap_servers


@asynccontextmanager
async def own_broker(
    folder: Path, env: Mapping[str, str], *, nodes: int = 1, **extra: str
) -> AsyncIterator[FragileKafka]:
    """Run a cluster of a test's own."""
    properties = FOR_TESTS | {name.replace("_", "."): value for name, value in extra.items()}
    async with FragileKafka(
        folder / "kafka", ready=is_ready, env=env, nodes=nodes, extra_properties=properties
    ) as kafka:
        yield kafka
        kafka.kill()  # what it holds is thrown away: it need not close well


@asynccontextmanager
async def fronted_broker(folder: Path, env: Mapping[str, str]) -> AsyncIterator[Fronted]:
    """Run a broker whose second listener advertises a proxy's port."""
    own, others = free_ports(2)
    behind, front = others.broker, others.controller
    # The broker would choose its ports later, and might choose these.
    folder.joinpath("kafka").mkdir()
    ClusterState(cluster_id=new_cluster_id(), ports=(own,)).save(folder / "kafka")
    second = {
        "listeners+": f"FRONTED://{LOOPBACK}:{behind}",
        "advertised.listeners+": f"FRONTED://{LOOPBACK}:{front}",
        "listener.security.protocol.map+": "FRONTED:PLAINTEXT",
    }
    async with (
        proxied(f"{LOOPBACK}:{behind}", front) as proxy,
        FragileKafka(folder / "kafka", ready=is_ready, env=env, extra_properties=FOR_TESTS | second) as kafka,
    ):
        yield Fronted(kafka=kafka, proxy=proxy, address=f"{LOOPBACK}:{front}")
        kafka.kill()  # the same
