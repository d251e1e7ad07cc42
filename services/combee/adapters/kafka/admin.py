"""Topics as the broker has them: created, described, compared; and whether a broker is ready at all."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import translated
from combee.ports import CombeeError, ConfigurationError, FatalError, TransientError

TOPIC_ALREADY_EXISTS = 36
CREATE_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_MS = 5_000
"""A broker that takes longer for an empty question is away, as far as anybody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the broker has it."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@asynccontextmanager
async def _client(options: Mapping[str, Any]) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(**options)
    try:
        with translated("connecting"):
            await client.start()
        yield client
    finally:
        await client.close()


class KafkaAdmin:
    """Administration under one topic prefix."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it was there already (its configuration is not touched)."""
        new = NewTopic(
            name=self._connection.full(topic),
            num_partitions=partitions,
            replication_factor=replication,
            topic_configs=dict(config),
        )
        async with _client(self._connection.client) as client:
            with translated(f"creating {topic}"):
                answer = await client.create_topics([new], timeout_ms=CREATE_TIMEOUT_MS)
        code, message = answer.topic_errors[0][1], answer.topic_errors[0][2]
        if code not in (0, TOPIC_ALREADY_EXISTS):
            error = for_code(code)
            kind = TransientError if getattr(error, "retriable", False) else FatalError
            raise kind(f"creating {self._connection.full(topic)}: {message or error.__name__}")
        return bool(code == 0)

    async def describe(self) -> dict[str, TopicState]:
        """Return every topic under the prefix, by name without it."""
        prefix = f"{self._connection.prefix}."
        async with _client(self._connection.client) as client:
            with translated("describing topics"):
                found = [t for t in await client.describe_topics() if t["topic"].startswith(prefix)]
                configs = await self._configs(client, [t["topic"] for t in found])
        return {
            t["topic"].removeprefix(prefix): TopicState(
                partitions=len(t["partitions"]),
                replication_factor=len(t["partitions"][0]["replicas"]),
                config=configs.get(t["topic"], {}),
            )
            for t in found
            if t["partitions"]
        }

    async def _configs(self, client: Any, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        answers = await client.describe_configs(resources)
        return {
            resource[3]: {str(item[0]): str(item[1]) for item in resource[4]}
            for answer in answers
            for resource in answer.resources
        }

    async def wait_created(self, topics: Mapping[str, int], timeout_s: float = 30.0) -> None:
        """Wait until every broker view shows these topics with a leader each."""
        async with asyncio.timeout(timeout_s), _client(self._connection.client) as client:
            while True:
                with translated("waiting for topics"):
                    found = {t["topic"]: t["partitions"] for t in await client.describe_topics()}
                if all(self._led(found.get(self._connection.full(t)), n) for t, n in topics.items()):
                    return
                await asyncio.sleep(0.05)

    @staticmethod
    def _led(partitions: list[dict[str, Any]] | None, count: int) -> bool:
        return len(partitions or ()) == count and all(p["leader"] >= 0 for p in partitions or ())

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets by (topic without prefix, partition)."""
        prefix = f"{self._connection.prefix}."
        async with _client(self._connection.client) as client:
            with translated(f"looking up group {group}"):
                found = await client.list_consumer_group_offsets(self._connection.full(group))
        return {
            (tp.topic.removeprefix(prefix), tp.partition): meta.offset
            for tp, meta in found.items()
            if meta.offset >= 0
        }

    async def members(self, group: str) -> int:
        """Return how many members a group has now."""
        async with _client(self._connection.client) as client:
            with translated(f"looking up group {group}"):
                (answer,) = await client.describe_consumer_groups([self._connection.full(group)])
        return sum(len(described[5]) for described in answer.groups)

    async def broker(self) -> str:
        """Return the addresses of the brokers that answer."""
        async with _client(self._connection.client) as client:
            with translated("describing the cluster"):
                found = await client.describe_cluster()
        return ", ".join(sorted(f"{b['host']}:{b['port']}" for b in found["brokers"]))


class Presence:
    """Whether a broker answers, asked over one connection that is kept.

    The clients of aiokafka swallow why they cannot connect; here it is told, and told apart: what heals by
    waiting is a TransientError, what does not a ConfigurationError.
    """

    def __init__(self, connection: Connection) -> None:
        self._options = connection.client | {"request_timeout_ms": ANSWER_TIMEOUT_MS}
        self._servers = self._options.pop("bootstrap_servers")
        self._open: Any = None

    async def ask(self) -> None:
        """Return when a broker has answered a request for metadata.

        Raises
        ------
        TransientError, ConfigurationError
            If none does; the message says why.
        """
        if self._open is not None:
            try:
                await self._question(self._open)
            except CombeeError:
                await self.close()
            else:
                return
        failures: list[CombeeError] = []
        for host, port, _ in collect_hosts(self._servers):
            try:
                with translated(f"connecting to {host}:{port}"):
                    opened = await create_conn(host, port, **self._options)
                try:
                    await self._question(opened)
                except CombeeError:
                    await opened.close()
                    raise
            except TransientError as error:
                failures.append(await self._misfit(host, port) or error)
            except CombeeError as error:
                failures.append(error)
            else:
                self._open = opened
                return
        refusals = [error for error in failures if isinstance(error, ConfigurationError)]
        raise (refusals or failures)[0]

    @staticmethod
    async def _question(opened: Any) -> None:
        with translated("asking for metadata"):
            await opened.send(MetadataRequest([]))

    async def _misfit(self, host: str, port: int) -> ConfigurationError | None:
        """Return how a listener that only hangs up wants to be spoken to, if it is another way than ours.

        Brokers close the connection without a word on clients that speak TLS where there is none, or none where
        there is, or that do not log in.
        """
        protocol = self._options.get("security_protocol", "PLAINTEXT")
        wants = None
        with suppress(OSError, KafkaError, TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                if protocol.endswith("SSL"):
                    plain = await create_conn(host, port, request_timeout_ms=ANSWER_TIMEOUT_MS)
                    await plain.close()
                    wants = "no TLS"
                elif await _speaks_tls(host, port):
                    wants = "TLS"
                elif not protocol.startswith("SASL") and await self._wants_login(host, port):
                    wants = "a login (SASL)"
        if wants is None:
            return None
        return ConfigurationError(
            f"the broker at {host}:{port} wants {wants}, COMBEE_SECURITY_PROTOCOL is {protocol}: correct it"
        )

    async def _wants_login(self, host: str, port: int) -> bool:
        opened = await create_conn(host, port, **self._options)
        try:
            answer = await opened.send(SaslHandShakeRequest("PLAIN"))
        finally:
            await opened.close()
        return bool(answer.enabled_mechanisms)

    async def close(self) -> None:
        """Disconnect."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, ssl.SSLError):
        return False
    writer.transport.abort()
    return True


async def is_ready(bootstrap_servers: str, timeout_s: float = 2.0) -> bool:
    """Return whether a topic can be created: a TCP accept alone is not readiness."""
    probe = f"readiness-{uuid4().hex[:8]}"
    options = {"bootstrap_servers": bootstrap_servers, "request_timeout_ms": int(timeout_s * 1000)}
    try:
        async with asyncio.timeout(2 * timeout_s), _client(options) as client:
            new = NewTopic(name=probe, num_partitions=1, replication_factor=1)
            answer = await client.create_topics([new])
            if answer.topic_errors[0][1] != 0:
                return False
            await client.delete_topics([probe])
            return True
    except (KafkaError, TransientError, OSError, TimeoutError):
        return False
