"""A deployment in memory for tests of SDK users, with the same code paths but no broker and no services."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.core.formats.render import parse_ace
from combee.sdk.transport import Contexts, LogTransport, Sink
from combee_schemas import topics
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import Entry, Label, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import Published
from combee_schemas.trace import Trace


class MemoryTransport(LogTransport):
    """A transport for one client: tests read what it sent, and put what it should read.

    >>> memory = MemoryTransport()
    >>> client = Client(transport=lambda: memory)             # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._memory = MemoryLog(SystemClock(), partitions=1, scan_partitions=1)
        super().__init__(self._memory)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: list[Callable[[], None]] = []
        self._begun = (
            threading.Lock()
        )  # so that records written while following begins are passed on exactly once
        self._newest: dict[str, int] = {}
        self._sent: list[Published] = []

    # ---- messages sent by the client

    async def send(self, messages: Sequence[Published], contexts: Contexts = ()) -> None:
        await super().send(messages, contexts)
        self._sent += messages

    @property
    def traces(self) -> list[Trace]:
        """The traces that were delivered so far."""
        return [message for message in self._sent if isinstance(message, Trace)]

    @property
    def outcomes(self) -> list[Outcome]:
        """The separate outcomes that were delivered so far."""
        return [message for message in self._sent if isinstance(message, Outcome)]

    @property
    def reflections(self) -> list[Reflection]:
        """The reflections that were delivered so far."""
        return [message for message in self._sent if isinstance(message, Reflection)]

    # ---- playbooks for the client

    def put_playbook(self, name: str, text: str, *, created_at_ms: int | None = None) -> Playbook:
        """Publish the next version of a playbook: ACE text, or plain lines, one entry each; return it."""
        version = self._newest[name] = self._newest.get(name, 0) + 1
        sections, entries = _read(text)
        now_ms = SystemClock().now_ms()
        made = Playbook(
            name=name,
            version=version,
            sections=sections,
            entries=entries,
            created_at_ms=now_ms if created_at_ms is None else created_at_ms,
        )
        for topic in (topics.HISTORY, topics.PLAYBOOKS):
            self._write(topic.record(made))
        return made

    def put_label(self, name: str, label: str, version: int) -> None:
        """Point a label at a version."""
        made = Label(playbook=name, label=label, version=version)
        self._write(topics.LABELS.record(made))

    def delete_playbook(self, name: str) -> None:
        """Delete a playbook."""
        self._write(topics.PLAYBOOKS.tombstone(name))

    def _write(self, outgoing: Outgoing) -> None:
        def write() -> None:
            task = asyncio.ensure_future(self._memory.produce(outgoing))
            task.add_done_callback(lambda done: done.result())

        with self._begun:
            if self._loop is None:
                self._before.append(write)
            else:
                self._loop.call_soon_threadsafe(write)

    async def follow(self, sink: Sink) -> None:
        with self._begun:
            self._loop = asyncio.get_running_loop()
            while self._before:
                self._before.pop(0)()
        await asyncio.sleep(0)  # the event loop writes them in its next iteration
        await asyncio.sleep(0)
        await super().follow(sink)


def _read(text: str) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    try:
        sections, entries, _ = parse_ace(text)
    except ValueError:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ("OTHERS",), tuple(
            Entry(id=f"misc-{number:05d}", section="OTHERS", content=line)
            for number, line in enumerate(lines, 1)
        )
    return sections, entries
