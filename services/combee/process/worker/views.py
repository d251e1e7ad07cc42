"""Views: compacted topics kept current in memory without polling; playbooks in any version on demand."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog

from combee.adapters.ports import Log, Record, TransientError
from combee.core.playbook.pausing import order_of
from combee.core.playbook.versions import empty
from combee.log.history import History
from combee_schemas import topics
from combee_schemas.base import Message, playbook_of
from combee_schemas.codec import CodecError, begins_as
from combee_schemas.errors import OtherVersionError
from combee_schemas.playbook import PauseOrder, Playbook, deleted_key
from combee_schemas.topics import Topic, key_of

logger = structlog.get_logger()
M = TypeVar("M", bound=Message)

RETRY_S = 1.0


def own_message(topic: Topic[M], record: Record) -> M | None:
    """Return the message in a record if it stands under its own key; otherwise log it and return None."""
    try:
        return topic.read_own(record)
    except CodecError as error:
        logger.error("undecodable", topic=record.topic, offset=record.offset, error=str(error))
        return None


class Newest(Generic[M]):
    """The newest message per key. Bytes may be kept instead, which are decoded on first use."""

    def __init__(self, topic: Topic[M], newer: Callable[[M, M], bool] = lambda _new, _old: True) -> None:
        self._topic = topic
        self._newer = newer
        self._messages: dict[str, M] = {}
        self._unread: dict[str, list[Record]] = {}

    def keep(self, record: Record) -> bool:
        """Keep a record undecoded, or apply a tombstone; return False if the record must be decoded now."""
        key = key_of(record)
        if record.value is None:
            self.pop(key)
            return True
        is_ours = begins_as(record.value, self._topic.message) and key not in self._messages
        if is_ours:
            self._unread.setdefault(key, []).append(record)
        return is_ours

    def get(self, key: str) -> M | None:
        """Return the message under a key, and keep it decoded."""
        message = self.peek(key)
        if message is not None and key in self._unread:
            del self._unread[key]
            self._messages[key] = message
        return message

    def peek(self, key: str) -> M | None:
        """Return the message under a key, but keep its bytes alone: they take a tenth of the memory."""
        newest: tuple[M, Record] | None = None
        for record in self._unread.pop(key, ()):
            message = own_message(self._topic, record)
            if message is None:
                continue
            if newest is None or self._newer(message, newest[0]):
                newest = message, record
        if newest is None:
            return self._messages.get(key)
        self._unread[key] = [newest[1]]
        return newest[0]

    def take(self, key: str, message: M, record: Record | None = None) -> bool:
        """Store a message unless the known one is newer; return whether it was stored.

        If its record is given, the record's bytes are kept instead.
        """
        known = self.peek(key)
        if known is not None and not self._newer(message, known):
            return False
        self.pop(key)
        if record is None:
            self._messages[key] = message
        else:
            self._unread[key] = [record]
        return True

    def pop(self, key: str) -> None:
        """Forget a key."""
        self._unread.pop(key, None)
        self._messages.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self._unread or key in self._messages

    def keys(self) -> set[str]:
        """Return the keys, including those of records that may turn out to be unreadable."""
        return self._messages.keys() | self._unread.keys()

    def all(self) -> dict[str, M]:
        """Return all messages by key."""
        for key in list(self._unread):
            self.get(key)
        return dict(self._messages)


class View(Generic[M]):
    """The newest message per key; a tombstone removes it; undecodable records are logged and skipped.

    Messages of another release are skipped too, and logged once: the known message stays. Without
    ``announces_start``, ``on_change`` is not called for messages present at the start, which are decoded when used.
    """

    def __init__(
        self,
        log: Log,
        topic: Topic[M],
        *,
        newer: Callable[[M, M], bool] = lambda _new, _old: True,
        on_change: Callable[[str, M | None], None] | None = None,
        announces_start: bool = True,
    ) -> None:
        self._log = log
        self._topic = topic
        self._newer = newer
        self._on_change = on_change or (lambda _key, _message: None)
        self._announces_start = announces_start and on_change is not None
        self._latest = Newest(topic, newer)
        self._reading = self._latest
        self._current = asyncio.Event()
        self._connected = False
        self._outdated = False
        """Whether another release's writing to this topic was logged."""

    def get(self, key: str) -> M | None:
        """Return the newest message under a key."""
        return self._latest.get(key)

    def peek(self, key: str) -> M | None:
        """Return the newest message under a key for one use: it is not kept decoded."""
        return self._latest.peek(key)

    def keys(self) -> set[str]:
        """Return the keys; nothing is decoded for it."""
        return self._latest.keys()

    def all(self) -> dict[str, M]:
        """Return the newest messages by key."""
        return self._latest.all()

    @property
    def is_current(self) -> bool:
        """Whether everything in the topic has been read, since the last disconnect too."""
        return self._connected and self._current.is_set()

    async def wait_current(self, timeout_s: float) -> None:
        """Wait until everything that was in the topic at the start has been read."""
        async with asyncio.timeout(timeout_s):
            await self._current.wait()

    async def run(self) -> None:
        """Follow the topic for ever; after a disconnect read it anew while the known messages stay available."""
        while True:
            self._reading = Newest(self._topic, self._newer) if self._current.is_set() else self._latest
            try:
                async with aclosing(self._log.follow(self._topic.name)) as changes:
                    async for records in changes:
                        for record in records or ():
                            self._take(record)
                        if records is None:
                            self._caught_up()
            except TransientError as error:
                self._connected = False
                logger.warning("log_unavailable", topic=self._topic.name, error=str(error))
                await asyncio.sleep(RETRY_S)

    def _caught_up(self) -> None:
        """Replace the known messages by those read anew; tombstones may have been compacted away meanwhile."""
        before, self._latest = self._latest, self._reading
        self._current.set()
        self._connected = True
        if before is self._latest:
            return
        known, now = before.all(), self._latest.all()
        for key, message in now.items():
            if message != known.get(key):
                self._on_change(key, message)
        for key in sorted(known.keys() - now.keys()):
            self._on_change(key, None)

    def _keep(self, key: str, error: OtherVersionError) -> None:
        """Keep the known message of a key; a reader that needs the newest version fails when it asks for it."""
        known = self._latest.get(key)
        if known is not None and self._reading.get(key) is None:
            self._reading.take(key, known)
        if not self._outdated:
            self._outdated = True
            logger.error("upgrade_needed", topic=self._topic.name, key=key, reason=str(error))

    def _take(self, record: Record) -> None:
        if not self._announces_start and not self._current.is_set() and self._reading.keep(record):
            return
        key = key_of(record)
        is_announced = self._reading is self._latest
        if record.value is None:
            self._reading.pop(key)
            if is_announced:
                self._on_change(key, None)
            return
        try:
            message = own_message(self._topic, record)
        except OtherVersionError as error:
            self._keep(key, error)
            return
        if message is None:
            return
        # Messages present at the start are mostly used once, if at all.
        kept = None if self._current.is_set() else record
        if self._reading.take(key, message, kept) and is_announced:
            self._on_change(key, message)


class Playbooks:
    """The playbooks as services see them: the newest from memory, any other version from ``history``."""

    def __init__(
        self,
        log: Log,
        on_change: Callable[[str, Playbook | None], None] | None = None,
        *,
        announces_start: bool = True,
    ) -> None:
        self.history = History(log)

        def changed(key: str, playbook: Playbook | None) -> None:
            if playbook is not None and playbook.history_offset >= 0 and self.view.is_current:
                # It is decoded already, and overlapping batches use it as their base after a newer version came.
                self.history.remember(playbook)
            if on_change is not None:
                on_change(playbook.name if playbook else key, playbook)

        self.view: View[Playbook] = View(
            log,
            topics.PLAYBOOKS,
            newer=lambda new, old: new.version > old.version,
            on_change=changed,
            announces_start=announces_start and on_change is not None,
        )

    def latest(self, name: str) -> Playbook:
        """Return the newest known version, of a deleted playbook its remainder; version 0 if there is none."""
        return self.view.get(name) or self.view.get(deleted_key(name)) or empty(name)

    def order(self, line: str, now_ms: int) -> PauseOrder | None:
        """Return the order under which a line is paused, its own or its playbook's; None: it learns."""
        return order_of((self.latest(name).paused for name in {line, playbook_of(line)}), now_ms)

    async def exactly(self, name: str, version: int) -> Playbook:
        """Return one version, from memory or from ``history``."""
        if version == 0:
            return empty(name)
        latest = self.latest(name)
        if latest.version == version:
            return latest
        playbook = await self.history.exactly(name, version, latest)
        if playbook is None:
            raise TransientError(f"history has no version {version} of {name} yet")
        return playbook
