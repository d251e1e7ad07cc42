"""Administration: topics are created and described, groups and brokers looked up, readiness checked."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self
from uuid import uuid4

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidReplicationFactorError, KafkaError, for_code

from combee.adapters.kafka.connection import Connection, named_topics
from combee.adapters.kafka.errors import RIGHTS, is_denied, translated
from combee.adapters.kafka.lifetime import running
from combee.adapters.ports import ConfigurationError, FatalError, TransientError

TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC = 3
CREATE_TIMEOUT_MS = 10_000
DELETE_TIMEOUT_MS = 10_000
CONFIGURE_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.2
KNOWN_S = 10.0
"""Seconds in which every broker of a cluster learns of a new topic."""
READY_S = 2.0
"""Seconds in which a broker that is ready answers a request."""
SET_ON_TOPIC = 1
"""Kafka's code for a configuration value that is set on the topic itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """State of a topic on the broker."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@contextmanager
def _at_the_controller(doing: str) -> Iterator[None]:
    """Name a cluster without a controller: aiokafka does not check for one and raises AttributeError."""
    try:
        yield
    except AttributeError as error:
        raise TransientError(f"{doing}: the cluster has no controller now, try again") from error


async def _described(client: Any, names: Iterable[str]) -> Sequence[Mapping[str, Any]]:
    return await named_topics(client._client, names)  # noqa: SLF001 - the admin client's own request creates topics


class KafkaAdmin:
    """Administration under one topic prefix."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: Any = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        """Keep one connection for all requests in the block."""
        async with self._client() as client:
            self._kept = client
            try:
                yield self
            finally:
                self._kept = None

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        if self._kept is not None:
            yield self._kept
            return
        async with running(AIOKafkaAdminClient(**self._connection.client)) as client:
            yield client

    async def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it was there already (its configuration is not touched)."""
        return bool(await self.create_all({topic: (partitions, config)}, replication))

    async def create_all(
        self, topics: Mapping[str, tuple[int, Mapping[str, str]]], replication: int
    ) -> list[str]:
        """Create topics with partitions and configuration; return the names of the new ones."""
        new = [
            NewTopic(
                name=self._connection.full(topic),
                num_partitions=partitions,
                replication_factor=replication,
                topic_configs=dict(config),
            )
            for topic, (partitions, config) in topics.items()
        ]
        doing = f"creating {', '.join(topics)}"
        async with self._client() as client:
            with translated(doing), _at_the_controller(doing):
                answer = await client.create_topics(new, timeout_ms=CREATE_TIMEOUT_MS)
        answers = {name: (code, message) for name, code, message in answer.topic_errors}
        return [topic for topic in topics if self._is_created(topic, *answers[self._connection.full(topic)])]

    def _is_created(self, topic: str, code: int, message: str | None) -> bool:
        if code not in (0, TOPIC_ALREADY_EXISTS):
            error = for_code(code)
            need = self._connection.need("Create", topic)
            if issubclass(error, RIGHTS):
                raise ConfigurationError(f"creating {need.topics[0]}: {need.missing(error())}")
            if error is InvalidReplicationFactorError:
                raise ConfigurationError(
                    f"creating {need.topics[0]}: {message} Change COMBEE_REPLICATION_FACTOR."
                )
            kind = TransientError if getattr(error, "retriable", False) else FatalError
            raise kind(f"creating {self._connection.full(topic)}: {message or error.__name__}")
        return code == 0

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Return the existing topics among these, by name without prefix.

        Raises
        ------
        ConfigurationError
            If the right to describe one of them, or its configuration, is missing.
        """
        wanted = [self._connection.full(topic) for topic in topics]
        prefix = self._connection.full("")
        async with self._client() as client:
            with translated("describing topics"):
                described = await _described(client, wanted)
                self._refuse("Describe", [t["topic"] for t in described if is_denied(t["error_code"])])
                there = [t for t in described if t["partitions"]]
                configs = await self._configs(client, [t["topic"] for t in there])
        return {
            t["topic"].removeprefix(prefix): TopicState(
                partitions=len(t["partitions"]),
                replication_factor=len(t["partitions"][0]["replicas"]),
                config=configs.get(t["topic"], {}),
            )
            for t in there
        }

    async def _configs(
        self, client: Any, names: list[str], *, only_own: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return the configuration of topics by their whole names; ``only_own``: values set on the topic itself.

        A broker that lags behind the others does not know a new topic yet, and is asked again. What is read here is
        written back whole: taken for a topic without configuration, it would lose its own.
        """
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        until = monotonic() + KNOWN_S
        while True:
            answers = await client.describe_configs(resources)
            described = [resource for answer in answers for resource in answer.resources]
            self._refuse("DescribeConfigs", [name for code, _, _, name, _ in described if is_denied(code)])
            wrong = [(code, name) for code, _, _, name, _ in described if code]
            if not wrong:
                break
            code, name = wrong[0]
            if code != UNKNOWN_TOPIC or monotonic() >= until:
                raise for_code(code)(f"the configuration of {name}")
            await asyncio.sleep(LOOK_AGAIN_S)
        return {
            name: {str(item[0]): str(item[1]) for item in items if not only_own or item[3] == SET_ON_TOPIC}
            for _, _, _, name, items in described
        }

    async def configure(
        self, topics: Mapping[str, Mapping[str, str]], timeout_s: float = CONFIGURE_TIMEOUT_S
    ) -> None:
        """Set configuration of topics, and wait until a broker confirms it; other values stay."""
        if not topics:
            return
        wanted = {self._connection.full(topic): dict(config) for topic, config in topics.items()}
        need = self._connection.need("AlterConfigs", *topics)
        async with asyncio.timeout(timeout_s), self._client() as client:
            with translated("configuring topics", need):
                own = await self._configs(client, list(wanted), only_own=True)
                resources = [
                    ConfigResource(ConfigResourceType.TOPIC, name, own.get(name, {}) | config)
                    for name, config in wanted.items()
                ]
                for answer in await client.alter_configs(resources):
                    for code, *_ in answer.resources:
                        if code:
                            raise for_code(code)
                while not await self._has_configs(client, wanted):  # noqa: ASYNC110 - Kafka tells nobody
                    await asyncio.sleep(0.05)

    async def _has_configs(self, client: Any, wanted: Mapping[str, Mapping[str, str]]) -> bool:
        have = await self._configs(client, list(wanted))
        return all(config.items() <= have.get(name, {}).items() for name, config in wanted.items())

    def _refuse(self, operation: str, topics: Sequence[str]) -> None:
        if topics:
            need = self._connection.need(operation)
            raise ConfigurationError(
                f"looking at the topics: {need.denied(operation, topics[0])}"
                + (f" (and on {len(topics) - 1} more)" if len(topics) > 1 else "")
            )

    async def has(self, topic: str) -> bool:
        """Return whether a topic exists; asking creates none.

        Raises
        ------
        ConfigurationError
            If this client may not know.
        """
        async with self._client() as client:
            with translated(f"looking for {topic}"):
                (description,) = await _described(client, [self._connection.full(topic)])
        self._refuse("Describe", [description["topic"]] if is_denied(description["error_code"]) else [])
        return bool(description["error_code"] != UNKNOWN_TOPIC)

    async def names(self) -> frozenset[str]:
        """Return the topics under the prefix, as far as this client may see them; asking creates none."""
        prefix = self._connection.full("")
        known = await self.all_names()
        return frozenset(name.removeprefix(prefix) for name in known if name.startswith(prefix))

    async def all_names(self) -> frozenset[str]:
        """Return the whole names of all topics of the cluster that this client may see."""
        async with self._client() as client:
            with translated("listing topics"):
                return frozenset(await client.list_topics())

    async def delete(self, topic: str, timeout_s: float = 30.0) -> None:
        """Delete a topic, if there is one, and wait until it is gone."""
        name = self._connection.full(topic)
        need = self._connection.need("Delete", topic)
        doing = f"deleting {name}"
        async with asyncio.timeout(timeout_s), self._client() as client:
            with translated(doing, need):
                with _at_the_controller(doing):
                    answer = await client.delete_topics([name])
                code = answer.topic_error_codes[0][1]
                if code not in (0, UNKNOWN_TOPIC):
                    raise for_code(code)
                while name in await client.list_topics():  # noqa: ASYNC110 - Kafka tells nobody
                    await asyncio.sleep(0.05)

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records of partitions below these offsets, as retention would."""
        name = self._connection.full(topic)
        before = {TopicPartition(name, number): RecordsToDelete(at) for number, at in offsets.items()}
        async with self._client() as client:
            with translated(f"deleting records of {name}", self._connection.need("Delete", topic)):
                await client.delete_records(before, timeout_ms=DELETE_TIMEOUT_MS)

    async def wait_created(self, topics: Mapping[str, int]) -> None:
        """Wait until the metadata shows a leader for every partition of these topics."""
        async with asyncio.timeout(CONFIGURE_TIMEOUT_S), self._client() as client:
            while True:
                with translated("waiting for topics"):
                    counts = {t["topic"]: t["partitions"] for t in await client.describe_topics()}
                if all(self._led(counts.get(self._connection.full(t)), n) for t, n in topics.items()):
                    return
                await asyncio.sleep(0.05)

    @staticmethod
    def _led(partitions: list[dict[str, Any]] | None, count: int) -> bool:
        return len(partitions or ()) == count and all(p["leader"] >= 0 for p in partitions or ())

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets by (topic without prefix, partition)."""
        prefix = f"{self._connection.prefix}."
        async with self._client() as client:
            with translated(f"looking up group {group}"):
                offsets = await client.list_consumer_group_offsets(self._connection.full(group))
        return {
            (tp.topic.removeprefix(prefix), tp.partition): meta.offset
            for tp, meta in offsets.items()
            if meta.offset >= 0
        }

    async def members(self, group: str, within_s: float = 30.0) -> int:
        """Return how many members a group has now.

        A broker that has only started loads its groups, and a new cluster has yet to say which broker keeps this one:
        both are asked again.

        Raises
        ------
        TransientError
            If no broker answers within that time.
        ConfigurationError
            If this client may not look at the group.
        """
        end = monotonic() + within_s
        async with self._client() as client:
            with translated(f"looking up group {group}", self._connection.need("Describe", group=group)):
                while True:
                    try:
                        return await self._members(client, group)
                    except KafkaError as error:
                        if not error.retriable or monotonic() >= end:
                            raise
                    await asyncio.sleep(LOOK_AGAIN_S)

    async def _members(self, client: Any, group: str) -> int:
        (answer,) = await client.describe_consumer_groups([self._connection.full(group)])
        for code, *_ in answer.groups:
            if code:  # aiokafka raises none of these: such a group would look empty
                raise for_code(code)
        return sum(len(described[5]) for described in answer.groups)

    async def broker(self) -> str:
        """Return the addresses of the brokers that answer."""
        async with self._client() as client:
            with translated("describing the cluster"):
                cluster = await client.describe_cluster()
        return ", ".join(sorted(f"{b['host']}:{b['port']}" for b in cluster["brokers"]))


async def is_ready(bootstrap_servers: str) -> bool:
    """Return whether a topic can be created: a TCP accept alone is not readiness."""
    probe = f"readiness-{uuid4().hex[:8]}"
    options = {"bootstrap_servers": bootstrap_servers, "request_timeout_ms": int(READY_S * 1000)}
    try:
        async with asyncio.timeout(2 * READY_S), running(AIOKafkaAdminClient(**options)) as client:
            new = NewTopic(name=probe, num_partitions=1, replication_factor=1)
            with _at_the_controller(f"creating {probe}"):
                answer = await client.create_topics([new])
                if answer.topic_errors[0][1] != 0:
                    return False
                await client.delete_topics([probe])
            return True
    except (KafkaError, TransientError, OSError, TimeoutError):
        return False
