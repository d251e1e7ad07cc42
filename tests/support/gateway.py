"""A gateway on the in-memory log: as an application asked in process, or as a server on loopback."""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, cast

import httpx
from fastapi import FastAPI

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Log, Record
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.playbook.versions import empty
from combee.gateway.app import build
from combee.gateway.context import Context, context_of
from combee.gateway.limits import GatewayLimits
from combee.gateway.server import serve
from combee.process.settings.loading import load_settings
from combee.publish.publisher import Publisher
from combee_schemas import topics
from combee_schemas.playbook import Entry, Label, Playbook, label_key
from support.observed import Accesses, ObservedLog
from support.waiting import until

DEADLINE_S = 10.0
WRITER, READER, ADMIN = "w" * 24, "r" * 24, "a" * 24
KEYS: list[dict[str, Any]] = [
    {"name": "agents", "key": WRITER, "scopes": ["reflections:write"], "namespaces": ["support/"]},
    {
        "name": "readers",
        "hash": "sha256:" + hashlib.sha256(READER.encode()).hexdigest(),
        "scopes": ["playbooks:read"],
        "namespaces": ["support/"],
    },
    {"name": "operators", "key": ADMIN, "scopes": ["playbooks:read", "playbooks:admin"]},
]
CONFIGURED: dict[str, Any] = {"gateway_keys": json.dumps(KEYS)}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def version(name: str, number: int, *contents: str, **fields: Any) -> Playbook:
    entries = [
        Entry(id=f"misc-{at:05d}", section="OTHERS", content=text)
        for at, text in enumerate(contents or (f"lesson of version {number}",), 1)
    ]
    made = {"version": number, "entries": tuple(entries), "created_at_ms": number, "origin": "batch"}
    return empty(name).model_copy(update={**made, **fields})


async def published(log: Log, *versions: Playbook) -> None:
    """Write versions as publish does: history first, its place into the snapshot, visible at once."""
    async with writer(log) as write:
        for playbook in versions:
            await write(playbook)


@asynccontextmanager
async def writer(log: Log) -> AsyncIterator[Callable[[Playbook], Awaitable[None]]]:
    """Yield what writes one version after the other."""
    transactor = await log.transactor("publish-test")

    async def write(playbook: Playbook) -> None:
        async with transactor.transaction() as transaction:
            (offset,) = await transaction.send(topics.HISTORY.record(playbook))
            placed = playbook.model_copy(update={"history_offset": offset})
            await transaction.send(topics.PLAYBOOKS.record(placed))
            if placed.origin == "delete":
                await transaction.send(topics.PLAYBOOKS.tombstone(placed.name))

    try:
        yield write
    finally:
        await transactor.close()


async def labelled(log: Log, name: str, label: str, number: int, command_id: str = "c") -> None:
    moved = Label(playbook=name, label=label, version=number, commands=(command_id,))
    await log.produce(topics.LABELS.record(moved))


@asynccontextmanager
async def publishing(log: Log, gates: GatePolicy = NO_GATE) -> AsyncIterator[None]:
    """Run the publish service meanwhile."""
    publisher = Publisher(log, SystemClock(), budget_tokens=16_000, gates=gates)
    session = asyncio.create_task(publisher.session(asyncio.Event(), lambda: None))
    try:
        yield
    finally:
        session.cancel()
        await asyncio.gather(session, return_exceptions=True)


class GuardedLog(MemoryLog):
    """A log in which some topics must not be read, from now on or no longer."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), partitions=1)
        self.denied: set[str] = set()

    def check(self, topic: str) -> None:
        if topic in self.denied:
            raise FatalError(f"TopicAuthorizationFailedError: {topic}")

    def deny(self, *topics: str) -> None:
        self.denied = set(topics)

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        self.check(topic)
        async for records in super().follow(topic, starts):
            self.check(topic)
            yield records

    async def ends(self, topic: str) -> Mapping[int, int]:
        self.check(topic)
        return await super().ends(topic)


def as_gateway(log: Log) -> Log:
    """Return the log as a gateway sees it: what topics.py does not say of it fails."""
    return ObservedLog(log, Accesses("gateway"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A gateway whose context is current, asked without a socket."""

    context: Context
    client: httpx.AsyncClient
    log: Log
    """As everybody sees it; the gateway may do with it what the map says."""

    async def knows(self, *versions: Playbook) -> None:
        """Publish versions and wait until the gateway has them."""
        await published(self.log, *versions)
        known = self.context.playbooks
        for playbook in versions:
            await until(lambda new=playbook: known.latest(new.name).version >= new.version)  # type: ignore[misc]

    async def labels(self, name: str, label: str, number: int) -> None:
        await labelled(self.log, name, label, number)
        key = label_key(name, label)
        await until(
            lambda: (pointer := self.context.labels.get(key)) is not None and pointer.version == number
        )


class SharedApplication:
    """One application for gateways with the same settings, one after the other: to build it takes longest.

    To the endpoints it is the context of the gateway that is asked now.
    """

    def __init__(self) -> None:
        self._application: FastAPI | None = None
        self._context: Context

    def __call__(self, context: Context) -> FastAPI:
        self._context = context
        self._application = self._application or build(cast("Context", self))
        return self._application

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


LIMITS = tuple(limit.name for limit in fields(GatewayLimits))


def limited_context(log: Log, given: Mapping[str, Any]) -> Context:
    """Return a context with these settings and limits."""
    limits = GatewayLimits(**{name: value for name, value in given.items() if name in LIMITS})
    settings = load_settings(**{name: value for name, value in given.items() if name not in LIMITS})
    return context_of(as_gateway(log), settings, SystemClock(), limits=limits)


@asynccontextmanager
async def asked(
    log: Log | None = None,
    *,
    key: str | None = None,
    application: Callable[[Context], FastAPI] = build,
    **settings: Any,
) -> AsyncIterator[Asked]:
    log = log or MemoryLog(SystemClock())
    context = limited_context(log, settings)
    work = [asyncio.create_task(job) for job in context.work()]
    await context.wait_current(DEADLINE_S)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(application(context), raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:
            yield Asked(context, client, log)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


@asynccontextmanager
async def served(
    log: Log, application: Callable[[Context], FastAPI] = build, /, **settings: Any
) -> AsyncIterator[tuple[str, Context]]:
    """Yield the address of a gateway on loopback, and its context."""
    context = limited_context(log, {"gateway_port": 0, **settings})
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(serve(context, stop, app=application(context), on_ready=ready.set_result))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield ready.result(), context
    finally:
        stop.set()
        await running


@contextmanager
def in_a_thread(prepare: Callable[[Log], Any], **settings: Any) -> Iterator[str]:
    """Yield the address of a gateway that runs in a thread, for clients that block."""
    loop, addresses, ending = asyncio.new_event_loop(), list[str](), asyncio.Event()
    ready = threading.Event()

    async def work() -> None:
        log = MemoryLog(SystemClock())
        await prepare(log)
        async with publishing(log), served(log, **settings) as (address, _):
            addresses.append(address)
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(DEADLINE_S)
        loop.close()


@dataclass(slots=True)
class Event:
    kind: str = "message"
    id: str = ""
    data: str = ""


@dataclass(slots=True)
class Stream:
    """One client of an event stream, as any language's would be; it remembers the last id it saw."""

    url: str
    events: list[Event] = field(default_factory=list)
    comments: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    async def read(self, client: httpx.AsyncClient, *, until: Callable[[list[Event]], bool]) -> None:
        """Read until a condition holds for all events so far, or the server ends the stream."""
        last = next((event.id for event in reversed(self.events) if event.id), "")
        headers = {**self.headers, **({"Last-Event-ID": last} if last else {})}
        event = Event()
        async with client.stream("GET", self.url, headers=headers, timeout=DEADLINE_S) as response:
            assert response.status_code == 200, (await response.aread()).decode()
            async for line in response.aiter_lines():
                if not line and event.data:
                    self.events.append(event)
                    event = Event()
                    if until(self.events):
                        return
                name, _, value = line.partition(": ")
                if not name:
                    self.comments += 1
                elif name == "event":
                    event.kind = value
                elif name in {"id", "data"}:
                    setattr(event, name, value)

    def of(self, kind: str) -> Sequence[Event]:
        return [event for event in self.events if event.kind == kind]
