"""Brokers of a test's own, to be hurt: one node with a proxy before it, or three."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.adapters.kafka import is_ready
from support.broker import FOR_TESTS
from support.proxy import Proxy, proxied


@dataclass(frozen=True, slots=True, kw_only=True)
class Fronted:
    """A broker with a second listener that is reached through a proxy only."""

    kafka: EmbeddedKafka
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
) -> AsyncIterator[EmbeddedKafka]:
    """Run a cluster of a test's own."""
    properties = FOR_TESTS | {name.replace("_", "."): value for name, value in extra.items()}
    async with EmbeddedKafka(
        folder / "kafka", ready=is_ready, env=env, nodes=nodes, extra_properties=properties
    ) as kafka:
        yield kafka


@asynccontextmanager
async def fronted_broker(folder: Path, env: Mapping[str, str]) -> AsyncIterator[Fronted]:
    """Run a broker whose second listener advertises a proxy's port."""
    (ports,) = free_ports(1)
    behind, front = ports.broker, ports.controller
    second = {
        "listeners+": f"FRONTED://{LOOPBACK}:{behind}",
        "advertised.listeners+": f"FRONTED://{LOOPBACK}:{front}",
        "listener.security.protocol.map+": "FRONTED:PLAINTEXT",
    }
    async with (
        proxied(f"{LOOPBACK}:{behind}", front) as proxy,
        EmbeddedKafka(
            folder / "kafka", ready=is_ready, env=env, extra_properties=FOR_TESTS | second
        ) as kafka,
    ):
        yield Fronted(kafka=kafka, proxy=proxy, address=f"{LOOPBACK}:{front}")
