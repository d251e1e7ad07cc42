"""A scripted OpenAI-compatible server on a free loopback port; it can also misbehave below HTTP."""

import asyncio
import contextlib
import gzip
import itertools
import json
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from support.waiting import until

DEADLINE_S = 5.0
NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the server saw it, and the way to answer."""

    path: str
    content: bytes
    headers: dict[str, str]
    at_s: float
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def body(self) -> dict[str, Any]:
        """What was sent, read."""
        read: dict[str, Any] = json.loads(self.content or b"{}")
        return read

    async def send(self, payload: bytes, headers: Mapping[str, str], *, status: int = 200) -> None:
        """Answer with a whole body."""
        await self.begin(len(payload), headers, status=status)
        self.writer.write(payload)
        await self.writer.drain()

    async def begin(self, length: int, headers: Mapping[str, str] = NONE, *, status: int = 200) -> None:
        """Send only a head that promises ``length`` bytes."""
        given = {"content-type": "application/json", "connection": "close", "content-length": str(length)}
        given |= headers
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.writer.write(f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode())
        await self.writer.drain()


Script = Callable[[Exchange], Awaitable[None]]


def completion(content: object, *, finish_reason: str = "stop", usage: object = (7, 3)) -> bytes:
    """Return the body of a chat completion."""
    message = {"role": "assistant", "content": content}
    body: dict[str, Any] = {
        "id": "one",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
    }
    if isinstance(usage, tuple):
        usage = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(body if usage is None else body | {"usage": usage}).encode()


def says(content: object, *, finish_reason: str = "stop", usage: object = (7, 3)) -> Script:
    """Answer with a completion."""
    return sends(completion(content, finish_reason=finish_reason, usage=usage))


def sends(payload: bytes, headers: Mapping[str, str] = NONE) -> Script:
    """Answer 200 with these bytes."""
    return lambda exchange: exchange.send(payload, headers)


def refuses(
    status: int,
    message: str = "no",
    *,
    code: object = None,
    param: object = None,
    headers: Mapping[str, str] = NONE,
) -> Script:
    """Answer with an error."""
    payload = json.dumps({"error": {"message": message, "code": code, "param": param}}).encode()
    return lambda exchange: exchange.send(payload, headers, status=status)


def reads_at_most(characters: int, then: Script) -> Script:
    """Refuse longer prompts as a model does whose window they exceed."""

    async def script(exchange: Exchange) -> None:
        length = sum(len(message["content"]) for message in exchange.body["messages"])
        refusal = f"This model's maximum context length is {characters} tokens, your messages have {length}."
        too_long = refuses(400, refusal, code="context_length_exceeded")
        await (too_long if length > characters else then)(exchange)

    return script


def zipped(payload: bytes) -> Script:
    """Answer compressed."""
    return sends(gzip.compress(payload), {"content-encoding": "gzip"})


async def resets(exchange: Exchange) -> None:
    """Reset the connection instead of an answer."""
    sock = exchange.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.writer.transport.abort()


async def cuts_off(exchange: Exchange) -> None:
    """Close in the middle of the body."""
    payload = completion("cut")
    await exchange.begin(len(payload))
    exchange.writer.write(payload[: len(payload) // 2])
    await exchange.writer.drain()


async def hangs(exchange: Exchange) -> None:
    """Never answer; wait until the caller has had enough."""
    await exchange.reader.read()


async def drips(exchange: Exchange) -> None:
    """Send a byte now and then, for ever, so that no time-out per read is hit."""
    await exchange.begin(1 << 30)
    while True:
        exchange.writer.write(b" ")
        await exchange.writer.drain()
        await asyncio.sleep(0.02)


async def floods(exchange: Exchange) -> None:
    """Send a body without end, as fast as it is read."""
    await exchange.begin(1 << 40)
    while True:
        exchange.writer.write(b"x" * 65536)
        await exchange.writer.drain()


def waits_for(gate: asyncio.Event, then: Script) -> Script:
    """Hold the request until the gate opens."""

    async def script(exchange: Exchange) -> None:
        await gate.wait()
        await then(exchange)

    return script


class FakeOpenAI:
    """What the server was asked, and what it will do next."""

    def __init__(self) -> None:
        self.seen: list[Exchange] = []
        self.always: Script = says('{"text": "fine"}')
        self.lists: Script = refuses(404)
        """How it answers who asks for its models; many servers have no such list."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.url = ""
        self._next: deque[Script] = deque()
        self._handlers: set[asyncio.Task[Any]] = set()

    def will(self, *scripts: Script) -> None:
        """Answer the next requests so; afterwards ``always``."""
        self._next.extend(scripts)

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between the arrivals of requests."""
        times = [exchange.at_s for exchange in self.seen]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    async def has_seen(self, number: int) -> None:
        """Wait until so many requests have arrived."""
        await until(lambda: len(self.seen) >= number)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request."""
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._handlers.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def stop(self) -> None:
        """End every connection."""
        for task in self._handlers:
            task.cancel()
        await until(lambda: not self._handlers)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        exchange = Exchange(
            path=first.split()[1],
            content=content,
            headers=headers,
            at_s=time.monotonic(),
            reader=reader,
            writer=writer,
        )
        if first.startswith("GET "):
            await self.lists(exchange)
            return
        self.seen.append(exchange)
        script = self._next.popleft() if self._next else self.always
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await script(exchange)
        finally:
            self.in_flight -= 1


@contextlib.asynccontextmanager
async def fake_openai() -> AsyncIterator[FakeOpenAI]:
    """Run a server while the block runs."""
    fake = FakeOpenAI()
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()
        await fake.stop()
        await server.wait_closed()
