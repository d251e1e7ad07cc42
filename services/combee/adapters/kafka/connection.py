"""The connection settings of a cluster, and the mapping of our topic names to the broker's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiokafka
from aiokafka.protocol.metadata import MetadataRequest

from combee.adapters.credentials import Credentials
from combee.adapters.kafka.errors import PASSWORDS, TOKENS, Need
from combee.adapters.kafka.membership import Membership
from combee.adapters.kafka.security import principal, security_options
from combee.adapters.ports import Record, TopicPartition

REQUEST_TIMEOUT_MS = 15_000
SESSION_S = 10.0
"""Seconds after which a silent worker is replaced: three of Kafka's heartbeats (every 3 s) may be lost."""
METADATA_AGE_MS = 5_000
"""Maximum age of metadata.

A group whose leader misses a topic for a moment assigns none of its partitions until it gets fresh metadata; the
clients' default of 5 minutes is too long."""


async def named_topics(client: Any, names: Iterable[str]) -> Sequence[Mapping[str, Any]]:
    """Return a broker's description of topics by their whole names, without creating topics."""
    request = MetadataRequest(list(names), allow_auto_topic_creation=False)
    answer = await client.send(client.get_random_node(), request)
    described: Sequence[Mapping[str, Any]] = answer.to_object()["topics"]
    return described


async def introduced(reader: Any, topics: Collection[str]) -> None:
    """Make a consumer know topics, by their whole names, all at once.

    Asked for the offsets of unknown topics, it waits 0.1 s or longer for each in turn.
    """
    client = reader._client  # noqa: SLF001 - the reader's public way needs an assignment
    if not client._topics.issuperset(topics):  # noqa: SLF001 - as above
        await client.set_topics(set(topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A cluster, a topic prefix, and this process's identity in consumer groups."""

    bootstrap_servers: str
    prefix: str
    slot: int | None = None
    """This replica's number, for static membership (KIP-345); None: a dynamic member."""
    session_timeout_ms: int = int(SESSION_S * 1000)
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """aiokafka's ``security_protocol``, ``sasl_*`` and ``ssl_context``."""
    certificate: str = ""
    """File of the client's certificate, if it has one: its subject is the principal."""
    _memberships: dict[str, Membership] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def secured(cls, credentials: Credentials, **fields: Any) -> "Connection":
        """Return a connection with these credentials.

        Raises
        ------
        ConfigurationError
            If something is missing or cannot be read; the message names the variable.
        """
        return cls(
            **fields,
            security=security_options(credentials),
            certificate=str(credentials.ssl_certfile or ""),
        )

    @property
    def client(self) -> dict[str, Any]:
        """Arguments that every aiokafka client gets."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            **self.security,
        }

    @property
    def principal(self) -> str:
        """The principal that the broker sees, in Kafka's notation."""
        return principal(self.security, self.certificate)

    def membership(self, group: str) -> Membership:
        """Return this process's membership in a group, the same every time."""
        return self._memberships.setdefault(group, Membership(self.full(group), self.slot))

    def need(self, operation: str, *topics: str, group: str = "", transactional_id: str = "") -> Need:
        """Return the rights that a request needs, for error messages."""
        return Need(
            principal=self.principal,
            operation=operation,
            topics=tuple(dict.fromkeys(map(self.full, topics))),
            group=group and self.full(group),
            transactional_id=transactional_id and self.full(transactional_id),
            settings=TOKENS if "sasl_oauth_token_provider" in self.security else PASSWORDS,
        )

    def full(self, topic: str) -> str:
        """Return the broker's name of a topic."""
        return f"{self.prefix}.{topic}"

    def theirs(self, source: TopicPartition) -> aiokafka.TopicPartition:
        """Return aiokafka's partition."""
        return aiokafka.TopicPartition(self.full(source.topic), source.partition)

    def ours(self, partition: Any) -> TopicPartition:
        """Return our partition of aiokafka's."""
        return TopicPartition(
            topic=partition.topic.removeprefix(f"{self.prefix}."), partition=partition.partition
        )

    def record(self, fetched: Any) -> Record:
        """Return our record of aiokafka's."""
        return Record(
            topic=fetched.topic.removeprefix(f"{self.prefix}."),
            partition=fetched.partition,
            offset=fetched.offset,
            timestamp_ms=fetched.timestamp,
            key=fetched.key,
            value=fetched.value,
            headers=tuple(fetched.headers),
        )
