"""The transport on a log: Kafka, or memory."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from combee.ports import FencedError, Log, Outgoing, PoisonError, Record, TopicPartition, TransientError
from combee.sdk.transport import Sent, Sink
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.playbook import Label, Playbook
from combee_schemas.topics import Topic, key_of
from combee_schemas.trace import Trace

Followed = Topic[Playbook] | Topic[Label]

FIRST_LOOK = 64
"""Records of ``history`` read at first when a version is looked for from the end; then twice as many, and so on."""


def outgoing(message: Sent) -> Outgoing:
    """Return the record of a message."""
    if isinstance(message, Trace):
        return topics.TRACES.record(message)
    return topics.REFLECTIONS.record(message)


class LogTransport:
    """See ``Transport``; follows the compacted topics, so every playbook is known without asking."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def send(self, messages: Sequence[Sent]) -> None:
        try:
            await self._log.produce(*map(outgoing, messages))
        except CodecError as error:
            raise PoisonError(str(error)) from error
        except FencedError as error:
            await self._log.close()  # the next write begins with a producer of its own
            raise TransientError(str(error)) from error

    async def follow(self, sink: Sink) -> None:
        behind = {topics.PLAYBOOKS.name, topics.LABELS.name}
        followed: tuple[Followed, ...] = (topics.PLAYBOOKS, topics.LABELS)
        tasks = [asyncio.create_task(self._one(topic, sink, behind)) for topic in followed]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, topic: Followed, sink: Sink, behind: set[str]) -> None:
        async with aclosing(self._log.follow(topic.name)) as changes:
            async for records in changes:
                for record in records or ():
                    self._take(record, topic, sink)
                if records is None:
                    behind.discard(topic.name)
                    if not behind:
                        sink.current(None)

    def _take(self, record: Record, topic: Followed, sink: Sink) -> None:
        key = key_of(record)
        if record.value is None:
            sink.take(key, None)
            return
        message = topic.read_or_none(record)
        if message is not None:  # else written by something newer than this client; what is known stays
            sink.take(key, message)

    async def watch(self, name: str, label: str) -> None:
        """All are followed anyway."""

    async def fetch(self, name: str, version: int) -> Playbook | None:
        """Read backwards, because what is asked for is mostly recent."""
        key = name.encode()
        partition = await self._log.partition_for(topics.HISTORY.name, key)
        source = TopicPartition(topic=topics.HISTORY.name, partition=partition)
        end = (await self._log.ends(topics.HISTORY.name))[partition]
        first = (await self._log.beginnings(topics.HISTORY.name))[partition]
        look = FIRST_LOOK
        while end > first:
            start = max(first, end - look)
            oldest: int | None = None
            async with aclosing(self._log.read(source, start, end)) as records:
                async for record in records:
                    if record.key != key:
                        continue
                    found = topics.HISTORY.read(record)
                    oldest = found.version if oldest is None else oldest
                    if found.version == version:
                        return found
            if oldest is not None and oldest < version:
                return None
            end, look = start, look * 2
        return None

    async def close(self) -> None:
        await self._log.close()
