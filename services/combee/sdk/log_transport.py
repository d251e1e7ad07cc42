"""The transport on a log: Kafka, or memory."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from combee.history import History
from combee.ports import FencedError, Log, Outgoing, PoisonError, Record, TransientError
from combee.sdk.transport import Sent, Sink
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.playbook import Label, Playbook
from combee_schemas.topics import Topic, key_of
from combee_schemas.trace import Trace

Followed = Topic[Playbook] | Topic[Label]


def outgoing(message: Sent) -> Outgoing:
    """Return the record of a message."""
    if isinstance(message, Trace):
        return topics.TRACES.record(message)
    return topics.REFLECTIONS.record(message)


class LogTransport:
    """See ``Transport``; follows the compacted topics, so every playbook is known without asking."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._history = History(log)

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
        return await self._history.exactly(name, version)

    async def close(self) -> None:
        await self._log.close()
