"""Transactions with one transactional id per input partition, because aiokafka does not fence by group generation."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import translated
from combee.adapters.kafka.lifetime import stopped
from combee.adapters.ports import FencedError, Outgoing, TopicPartition
from combee_schemas.topics import partition_of, placing_key

TRANSACTION_TIMEOUT_MS = 15_000
"""Maximum milliseconds that a crash can stall read-committed readers."""


async def send(producer: Any, connection: Connection, outgoing: Sequence[Outgoing]) -> Sequence[int]:
    """Write records; return their offsets once the broker has acknowledged all of them."""
    with translated("writing", connection.need("Write", *(record.topic for record in outgoing))):
        sent = [
            await producer.send(
                connection.full(record.topic),
                value=record.value,
                key=record.key,
                partition=await _partition(producer, connection, record),
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in outgoing
        ]
        return [metadata.offset for metadata in await asyncio.gather(*sent)]


async def _partition(producer: Any, connection: Connection, record: Outgoing) -> int | None:
    """Return the partition of a record; None if the client's partitioner gives the same."""
    if record.partition is not None or record.key is None:
        return record.partition
    if placing_key(record.topic, record.key) == record.key:
        return None
    return partition_of(
        record.topic, record.key, len(await producer.partitions_for(connection.full(record.topic)))
    )


class KafkaTransaction:
    """One open transaction."""

    def __init__(self, producer: Any, connection: Connection) -> None:
        self._producer = producer
        self._connection = connection

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        return await send(self._producer, self._connection, outgoing)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        theirs = {self._connection.theirs(tp): offset for tp, offset in offsets.items()}
        topics = sorted({tp.topic for tp in offsets})
        with translated(f"committing as {group}", self._connection.need("Read", *topics, group=group)):
            await self._producer.send_offsets_to_transaction(theirs, self._connection.full(group))


class KafkaTransactor:
    """The ``Transactor`` port over a started transactional producer."""

    def __init__(self, producer: Any, connection: Connection) -> None:
        self._producer = producer
        self._connection = connection
        self._fenced = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[KafkaTransaction]:
        if self._fenced:
            raise FencedError("transaction: a newer owner took over")  # aiokafka would fail an assertion
        try:
            with translated("transaction"):
                async with self._producer.transaction():
                    yield KafkaTransaction(self._producer, self._connection)
        except FencedError:
            self._fenced = True
            raise

    async def close(self) -> None:
        with translated("closing a transactional producer"):
            await stopped(self._producer)
