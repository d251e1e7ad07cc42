"""The ``Log`` port on aiokafka: one idempotent producer, readers as they are needed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiokafka
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError

from combee.adapters.kafka.admin import KafkaAdmin
from combee.adapters.kafka.connection import REQUEST_TIMEOUT_MS, Connection, introduced, named_topics
from combee.adapters.kafka.consumer import FETCH_BYTES, MAX_POLL_RECORDS, KafkaConsumer
from combee.adapters.kafka.errors import Need, is_denied, translated
from combee.adapters.kafka.fetch_waits import look_seldom
from combee.adapters.kafka.inflation import bound_inflation
from combee.adapters.kafka.lifetime import started, stopped
from combee.adapters.kafka.transactor import TRANSACTION_TIMEOUT_MS, KafkaTransactor, send
from combee.adapters.ports import (
    CombeeError,
    FatalError,
    FencedError,
    OnAssigned,
    Outgoing,
    Record,
    TopicPartition,
    TransientError,
)
from combee_schemas.topics import FOR_EVER, partition_of

READ_COMMITTED = "read_committed"
FOLLOW_WAIT_MS = 1_000
"""How long a broker may hold the fetch of a reader that follows a topic.

Such a reader consumes records at once, so each fetch covers all partitions (see ``fetch_waits``). The broker answers
as soon as it has a record; a reader without new records asks once per such time. A longer time would delay the end of
TLS connections."""
READ_WAIT_MS = 50
"""How long a broker may hold the fetch after the last wanted record, which delays the end of a TLS connection."""
FOLLOW_IDLE_MS = 60_000
READ_STALL_S = 30.0
"""Seconds without a record after which a bounded read fails as transient."""
LOOKS, LOOK_AGAIN_S = 10, 0.2
"""Attempts, and seconds between them, before a topic counts as missing: brokers learn of a new topic with a delay."""
SETTLE_AGAIN_S = 0.05


async def _begun(client: Any) -> None:
    """Start a client; stop it if it cannot start."""
    try:
        await started(client.start())
    except BaseException:
        await stopped(client)
        raise


class KafkaLog:
    """A cluster seen through one topic prefix. Connects on first use; ``close`` disconnects."""

    def __init__(self, connection: Connection) -> None:
        bound_inflation()
        self._connection = connection
        self._producer: Any = None
        self._starting = asyncio.Lock()
        self._readers: dict[tuple[str | None, str], Any] = {}
        self._opening = asyncio.Lock()
        self._counts: dict[str, int] = {}

    async def _started_producer(self) -> Any:
        async with self._starting:
            if self._producer is None:
                producer = aiokafka.AIOKafkaProducer(
                    **self._connection.client, acks="all", enable_idempotence=True
                )
                await _begun(producer)
                self._producer = producer
        return self._producer

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        need = self._connection.need("Write", *(record.topic for record in outgoing))
        with translated("writing", need):
            producer = await self._started_producer()
        try:
            return await send(producer, self._connection, outgoing)
        except FencedError as error:
            # Without a transactional id nobody can be a newer owner: the broker has lost this producer's state.
            if self._producer is producer:
                self._producer = None
                with suppress(CombeeError), translated("closing the producer"):
                    await stopped(producer)
            raise TransientError(f"writing: the producer is restarted ({error})") from error

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> KafkaConsumer:
        consumer = KafkaConsumer(self._connection, group, on_assigned)
        try:
            await consumer.start(topics)
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def transactor(self, name: str) -> KafkaTransactor:
        producer = aiokafka.AIOKafkaProducer(
            **self._connection.client,
            transactional_id=self._connection.full(name),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        need = self._connection.need("Write", transactional_id=name)
        with translated(f"initialising transactional id {name}", need):
            async with asyncio.timeout(2 * REQUEST_TIMEOUT_MS / 1000):
                await _begun(producer)
        return KafkaTransactor(producer, self._connection)

    def _reader_of(
        self, group: str | None = None, isolation: str = READ_COMMITTED, *, wait_ms: int = READ_WAIT_MS
    ) -> Any:
        return aiokafka.AIOKafkaConsumer(
            **self._connection.client,
            group_id=self._connection.full(group) if group else None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            fetch_max_wait_ms=wait_ms,
            # Reading a fetch takes several times its size in memory.
            max_partition_fetch_bytes=FETCH_BYTES,
        )

    @asynccontextmanager
    async def _reader(self, theirs: Sequence[Any], *, wait_ms: int = READ_WAIT_MS) -> AsyncIterator[Any]:
        """Yield a paused reader of these partitions, because it would begin to fetch from the first record of each.

        Later requests would wait for that fetch, too: a broker answers one request after the other.
        """
        reader = self._reader_of(wait_ms=wait_ms)
        try:
            with translated("reading"):
                await started(reader.start())
            reader.assign(theirs)
            reader.pause(*theirs)
            yield reader
        finally:
            await stopped(reader)

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        await self.partitions(
            source.topic
        )  # a reader would wait for a topic that is missing or invisible to it
        tp = self._connection.theirs(source)
        need = self._connection.need("Read", source.topic)
        async with self._looking(source.topic) as (looking, _):  # most partitions need no reader of their own
            with translated(f"reading {source.topic}[{source.partition}]", need):
                stable = (await looking.end_offsets([tp]))[tp]
                first = (await looking.beginning_offsets([tp]))[tp]
        stop = stable if end is None else min(end, stable)
        if max(start, first) >= stop:
            return
        async with self._reader([tp]) as reader:
            reader.seek(tp, max(start, first))
            reader.resume(tp)
            async for records in self._until(reader, tp, stop):
                for record in records:
                    if record.offset < stop:
                        yield self._connection.record(record)

    async def _until(self, reader: Any, tp: Any, stop: int) -> AsyncIterator[Sequence[Any]]:
        position, need = -1, self._connection.need("Read", self._connection.ours(tp).topic)
        while True:
            with translated(f"reading {tp.topic}[{tp.partition}]", need):
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the answer.
                async with asyncio.timeout(READ_STALL_S):
                    fetched = await reader.getmany(tp, timeout_ms=500, max_records=MAX_POLL_RECORDS)
                async with asyncio.timeout(READ_STALL_S):
                    reached = await reader.position(tp)
            yield fetched.get(tp, ())
            if reached >= stop:
                return
            if reached == position and not fetched:
                await self._check_readable(reader, tp, reached, need)
            position = reached

    async def _check_readable(self, reader: Any, tp: Any, position: int, need: Need) -> None:
        """Raise TransientError if a transaction that is still open hides the next record."""
        with translated(f"reading {tp.topic}[{tp.partition}]", need):
            stable = (await reader.end_offsets([tp]))[tp]
        if stable <= position:
            raise TransientError(f"{tp.topic}[{tp.partition}] is not readable beyond {position} yet")

    async def read_at(self, source: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
        records: dict[int, Record] = {}
        if not offsets:
            return records
        wanted = frozenset(offsets)
        async for record in self.read(source, min(wanted), max(wanted) + 1):
            if record.offset in wanted:
                records[record.offset] = record
        return records

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        need = self._connection.need("Read", topic)
        theirs = await self._partitions_of(topic)
        async with self._reader(theirs, wait_ms=FOLLOW_WAIT_MS) as reader:
            with translated(f"following {topic}", need):
                ends = await reader.end_offsets(theirs)
            for tp in theirs if starts else ():
                reader.seek(tp, (starts or {}).get(tp.partition, 0))
            reader.resume(*theirs)
            look_seldom(reader, FOLLOW_WAIT_MS)
            behind = {tp for tp in theirs if ends[tp] > (starts or {}).get(tp.partition, 0)}
            if not behind:
                yield None
            while True:
                # Once current, only records and errors end the wait: nothing else has to be done.
                wait_ms = 250 if behind else FOLLOW_IDLE_MS
                with translated(f"following {topic}", need):
                    fetched = await reader.getmany(timeout_ms=wait_ms, max_records=MAX_POLL_RECORDS)
                    reached = {tp for tp in behind if await reader.position(tp) >= ends[tp]}
                if fetched:
                    yield [self._connection.record(record) for batch in fetched.values() for record in batch]
                if behind and not behind - reached:
                    yield None
                behind -= reached

    async def partitions(self, topic: str) -> int:
        for look in range(LOOKS):
            if topic in self._counts:
                break
            if look:
                await asyncio.sleep(LOOK_AGAIN_S)
            self._counts |= await self._counted(topic)
        if topic not in self._counts:
            raise FatalError(
                f"topic {self._connection.full(topic)} does not exist: run 'combee topics create'"
            )
        return self._counts[topic]

    async def _counted(self, topic: str) -> Mapping[str, int]:
        """Return the partitions of every visible topic; this needs only the right to describe them.

        Raises
        ------
        ConfigurationError
            If this client may not describe ``topic``, existing or not.
        """
        client = AIOKafkaClient(**self._connection.client)
        try:
            with translated(f"looking up {topic}", self._connection.need("Describe", topic)):
                await started(client.bootstrap())
                metadata = await client.fetch_all_metadata()
                full = self._connection.full(topic)
                if full not in metadata.topics():
                    (named,) = await named_topics(client, [full])
                    if is_denied(named["error_code"]):
                        raise TopicAuthorizationFailedError
        finally:
            await stopped(client)
        start = self._connection.full("")
        return {
            name.removeprefix(start): len(known)
            for name in metadata.topics()
            if name.startswith(start) and (known := metadata.partitions_for_topic(name))
        }

    async def partition_for(self, topic: str, key: bytes) -> int:
        return partition_of(topic, key, await self.partitions(topic))

    async def beginnings(self, topic: str) -> Mapping[int, int]:
        async with self._looking(topic) as (reader, theirs):
            return {tp.partition: at for tp, at in (await reader.beginning_offsets(theirs)).items()}

    async def ends(self, topic: str) -> Mapping[int, int]:
        async with self._looking(topic) as (reader, theirs):
            return {tp.partition: at for tp, at in (await reader.end_offsets(theirs)).items()}

    async def settled(self, topic: str) -> Mapping[int, int]:
        async with self._looking(topic, isolation="read_uncommitted") as (reader, theirs):
            ends = {tp.partition: at for tp, at in (await reader.end_offsets(theirs)).items()}
        async with self._looking(topic) as (reader, theirs):
            try:
                async with asyncio.timeout(READ_STALL_S):
                    while await self._is_below(reader, theirs, ends):  # noqa: ASYNC110 - Kafka tells nobody
                        await asyncio.sleep(SETTLE_AGAIN_S)
            except TimeoutError as error:
                raise TransientError(f"a transaction on {topic} stays open") from error
        return ends

    @staticmethod
    async def _is_below(reader: Any, theirs: list[Any], ends: Mapping[int, int]) -> bool:
        """Return whether a partition cannot be read up to an end yet."""
        return any(at < ends[tp.partition] for tp, at in (await reader.end_offsets(theirs)).items())

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        async with self._looking(topic) as (reader, theirs):
            offsets = await reader.offsets_for_times(dict.fromkeys(theirs, timestamp_ms))
            ends = await reader.end_offsets(theirs)
            return {tp.partition: offsets[tp].offset if offsets.get(tp) else ends[tp] for tp in theirs}

    async def retention_ms(self, topic: str) -> int:
        described = await KafkaAdmin(self._connection).describe([topic])
        return int(described[topic].config["retention.ms"]) if topic in described else FOR_EVER

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        async with self._looking(topic, group) as (reader, theirs):
            offsets = await asyncio.gather(*(reader.committed(tp) for tp in theirs))
        return {tp.partition: at for tp, at in zip(theirs, offsets, strict=True) if at is not None}

    @asynccontextmanager
    async def _looking(
        self, topic: str, group: str | None = None, isolation: str = READ_COMMITTED
    ) -> AsyncIterator[tuple[Any, list[Any]]]:
        """Yield a reader for offsets, and a topic's partitions; one reader per group and isolation level stays open.

        It has no assignment, so it fetches nothing. After an error the next look-up opens another one.
        """
        theirs = await self._partitions_of(topic)
        async with self._opening:
            reader = self._readers.get((group, isolation))
            if reader is None:
                reader = self._reader_of(group, isolation)
                with translated("looking up offsets"):
                    await _begun(reader)
                self._readers[group, isolation] = reader
        await self._introduce(reader)
        need = self._connection.need("Describe", topic, group=group or "")
        try:
            with translated(f"looking up offsets of {topic}", need):
                yield reader, theirs
        except TransientError:
            if reader in self._readers.values():
                del self._readers[group, isolation]
                await stopped(reader)
            raise

    async def _introduce(self, reader: Any) -> None:
        with translated("looking up topics", self._connection.need("Describe", *self._counts)):
            await introduced(reader, [self._connection.full(topic) for topic in self._counts])

    async def _partitions_of(self, topic: str) -> list[Any]:
        numbers = range(await self.partitions(topic))
        return [self._connection.theirs(TopicPartition(topic=topic, partition=number)) for number in numbers]

    async def close(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await stopped(reader)
        if self._producer is not None:
            with translated("closing the producer"):
                await stopped(self._producer)
            self._producer = None
