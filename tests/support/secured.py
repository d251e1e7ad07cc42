"""A broker with rights: its master comes in by a listener that is open, a reader by one with SASL."""

import asyncio
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.kafka import is_ready
from combee.adapters.kafka.connection import Connection

READER = "reader"
PASSWORD = "a-password-for-tests"  # noqa: S105 - of a broker that lives for one test
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

TOPIC, GROUP = 2, 3
READ, DESCRIBE = 3, 8
_LITERAL, _PREFIXED, _DENY, _ALLOW = 3, 4, 2, 3
_WHO = (f"User:{READER}", "*")


class Secured:
    """The broker, and the rights it gives to the reader."""

    def __init__(self, open_servers: str, servers: str) -> None:
        self.open_servers = open_servers
        self.servers = servers

    def as_master(self, prefix: str) -> Connection:
        """Return how the one who may do everything connects."""
        return Connection(bootstrap_servers=self.open_servers, prefix=prefix)

    def as_reader(self, prefix: str) -> Connection:
        """Return how the one connects who may do what it was allowed to."""
        security = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": READER,
            "sasl_plain_password": PASSWORD,
        }
        return Connection(bootstrap_servers=self.servers, prefix=prefix, security=security)

    async def allow(self, kind: int, prefix: str, *operations: int) -> None:
        """Give the reader rights on every resource whose name begins so."""
        await self._tell(CreateAclsRequest(kind, prefix, _PREFIXED, *_WHO, one, _ALLOW) for one in operations)

    async def deny(self, kind: int, name: str, *operations: int) -> None:
        """Except one resource."""
        await self._tell(CreateAclsRequest(kind, name, _LITERAL, *_WHO, one, _DENY) for one in operations)

    async def lift(self, kind: int, name: str, *operations: int) -> None:
        """Except it no longer."""
        await self._tell(DeleteAclsRequest(kind, name, _LITERAL, *_WHO, one, _DENY) for one in operations)

    async def _tell(self, requests: Iterable[Any]) -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=self.open_servers)
        await client.start()
        try:
            for request in requests:
                await client._client.send(client._client.get_random_node(), request)
        finally:
            await client.close()


@contextmanager
def secured(env: Mapping[str, str]) -> Iterator[Secured]:
    """Run one while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    extra = {
        "listeners+": f"SASL://127.0.0.1:{port}",
        "advertised.listeners+": f"SASL://127.0.0.1:{port}",
        "listener.security.protocol.map+": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_{READER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }
    loop = asyncio.new_event_loop()
    with TemporaryDirectory(prefix="combee-tests-") as folder:
        kafka = EmbeddedKafka(Path(folder) / "kafka", ready=is_ready, env=env, extra_properties=extra)
        try:
            loop.run_until_complete(kafka.start())
            yield Secured(kafka.bootstrap_servers, f"127.0.0.1:{port}")
        finally:
            loop.run_until_complete(kafka.stop())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
