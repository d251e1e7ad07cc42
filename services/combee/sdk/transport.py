"""Transports send messages and receive playbooks; this module has the one on a log (Kafka or memory)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from combee.adapters.ports import FencedError, Log, PoisonError, Record, TransientError
from combee.core.names.sources import Signer, declared
from combee.log.history import History
from combee.sdk.logs import logger
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.errors import OtherVersionError
from combee_schemas.playbook import Label, Playbook
from combee_schemas.topics import Published, Topic, key_of
from combee_schemas.trace_context import TraceContext, with_trace_context

Contexts = Sequence[TraceContext | None]
"""Spans of messages in the same order, empty for messages without spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Callbacks for the records that a transport reads."""

    take: Callable[[str, Playbook | Label | None], None]
    """Receives a record of ``playbooks`` or ``labels`` with its key, None for a deletion."""
    current: Callable[[str | None], None]
    """Called when all existing records of this playbook, or of every playbook for None, were passed to ``take``."""


class Transport(Protocol):
    """One way to a deployment. Every method runs on the background loop.

    TransientError: try again; PoisonError: this message can never be sent; FatalError: an operator has to act.
    """

    async def send(self, messages: Sequence[Published], contexts: Contexts = ()) -> None:
        """Send messages and return after the log's acknowledgement. Repeats are harmless: ids are kept."""

    async def follow(self, sink: Sink) -> None:
        """Pass every change to ``sink`` until an error."""

    async def watch(self, name: str, label: str) -> None:
        """Start to follow a requested playbook; a transport that follows all does nothing."""

    async def fetch(self, name: str, version: int) -> Playbook | None:
        """Return one version from the history, None if there is no such version."""

    async def close(self) -> None:
        """Disconnect."""


class UnconfiguredTransport:
    """A transport without an address, which refuses all messages with a logged reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def send(self, messages: Sequence[Published], contexts: Contexts = ()) -> None:  # noqa: ARG002 - it sends nothing
        raise PoisonError(self._reason)

    async def follow(self, sink: Sink) -> None:
        sink.current(None)
        await asyncio.Event().wait()

    async def watch(self, name: str, label: str) -> None:
        """Do nothing, because no playbook ever arrives."""

    async def fetch(self, name: str, version: int) -> Playbook | None:  # noqa: ARG002 - it finds nothing
        return None

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


Followed = Topic[Playbook] | Topic[Label]


class LogTransport:
    """A ``Transport`` that follows the compacted topics, so that every playbook is known without a request."""

    def __init__(self, log: Log, signer: Signer | None = None) -> None:
        self._log = log
        self._signer = signer
        self._history = History(log)
        self._outdated: set[str] = set()
        """Topics reported to be written by another release."""

    async def send(self, messages: Sequence[Published], contexts: Contexts = ()) -> None:
        pairs = zip_longest(messages, contexts)
        try:
            records = (with_trace_context(declared(m, self._signer), context) for m, context in pairs)
            await self._log.produce(*records)
        except CodecError as error:
            raise PoisonError(str(error)) from error
        except FencedError as error:
            await self._log.close()  # the next write creates a new producer
            raise TransientError(str(error)) from error

    async def follow(self, sink: Sink) -> None:
        behind = {topics.PLAYBOOKS.name, topics.LABELS.name}
        followed: tuple[Followed, ...] = (topics.PLAYBOOKS, topics.LABELS)
        tasks = [asyncio.create_task(self._follow_topic(topic, sink, behind)) for topic in followed]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_topic(self, topic: Followed, sink: Sink, behind: set[str]) -> None:
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
        try:
            message = topic.read_or_none(record)
        except OtherVersionError as error:
            if topic.name not in self._outdated:
                self._outdated.add(topic.name)
                logger.error("playbooks are not updated, the known versions stay: %s", error)
            return
        if message is not None:
            sink.take(key, message)

    async def watch(self, name: str, label: str) -> None:
        """Do nothing, because all playbooks are followed."""

    async def fetch(self, name: str, version: int) -> Playbook | None:
        return await self._history.exactly(name, version)

    async def close(self) -> None:
        await self._log.close()
