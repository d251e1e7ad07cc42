"""Streamed answers, passed on piece by piece and recorded as a whole at their end."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, Self

from combee.sdk.logs import guarded

MAX_TOOL_CALLS = 1_000
"""Maximum number of tool calls recorded of a streamed answer: its server chooses their numbers."""


class StreamedReply(Protocol):
    """Collects the pieces of a stream as one reply."""

    def add(self, chunk: Any) -> None:
        """Add a piece."""


@dataclass(slots=True)
class _Function:
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class _ToolCall:
    function: _Function = field(default_factory=_Function)


@dataclass(slots=True)
class _Message:
    content: str = ""
    refusal: str = ""
    tool_calls: list[_ToolCall] = field(default_factory=list)


@dataclass(slots=True)
class _Choice:
    message: _Message = field(default_factory=_Message)
    finish_reason: str | None = None


@dataclass(slots=True)
class StreamedChat:
    """A streamed completion."""

    choices: list[_Choice] = field(default_factory=lambda: [_Choice()])
    model: str = ""
    usage: Any = None

    def add(self, chunk: Any) -> None:
        """Add a piece."""
        self.model = getattr(chunk, "model", None) or self.model
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in getattr(chunk, "choices", None) or ():
            if getattr(choice, "index", 0) == 0:
                self.choices[0].finish_reason = (
                    getattr(choice, "finish_reason", None) or self.choices[0].finish_reason
                )
                self._add_delta(getattr(choice, "delta", None))

    def _add_delta(self, delta: Any) -> None:
        message = self.choices[0].message
        message.content += getattr(delta, "content", None) or ""
        message.refusal += getattr(delta, "refusal", None) or ""
        for call in getattr(delta, "tool_calls", None) or ():
            at = getattr(call, "index", 0) or 0
            if not 0 <= at < MAX_TOOL_CALLS:
                continue
            while len(message.tool_calls) <= at:
                message.tool_calls.append(_ToolCall())
            function = getattr(call, "function", None)
            message.tool_calls[at].function.name += getattr(function, "name", None) or ""
            message.tool_calls[at].function.arguments += getattr(function, "arguments", None) or ""


@dataclass(slots=True)
class StreamedResponse:
    """A streamed response, which comes whole with its last event; an interrupted one has only its text."""

    output: Any = ()
    output_text: str = ""
    model: str = ""
    status: str | None = None
    usage: Any = None

    def add(self, chunk: Any) -> None:
        """Add an event."""
        if getattr(chunk, "type", "") == "response.output_text.delta":
            self.output_text += getattr(chunk, "delta", None) or ""
        whole = getattr(chunk, "response", None)
        if whole is not None:
            self.output = getattr(whole, "output", None) or self.output
            self.output_text = getattr(whole, "output_text", None) or self.output_text
            self.model = getattr(whole, "model", None) or self.model
            self.status = getattr(whole, "status", None)
            self.usage = getattr(whole, "usage", None)


class RecordedStream:
    """A stream, plain or async, recorded once: at its end, when closed, or when its block is left."""

    def __init__(self, stream: Any, reply: StreamedReply, done: Callable[[Any], None]) -> None:
        self._stream = stream
        self._done: Callable[[Any], None] | None = done
        self._reply = reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _add(self, chunk: Any) -> None:
        """Add a piece; an answer of another shape is not recorded, and reaches the agent as it is."""
        if self._done is None:
            return
        with guarded("a streamed answer could not be recorded"):
            self._reply.add(chunk)
            return
        self._done = None

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._reply)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._stream)
        except StopIteration:
            self._finish()
            raise
        self._add(chunk)
        return chunk

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            self._finish()
            raise
        self._add(chunk)
        return chunk

    def close(self) -> Any:
        """Close the stream and record its pieces so far. The result of an async stream has to be awaited."""
        self._finish()
        return self._stream.close()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *reason: object) -> Any:
        self._finish()
        return self._stream.__exit__(*reason)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> Any:
        self._finish()
        return await self._stream.__aexit__(*reason)


def reply_of_body(body: bytes, reply: StreamedReply) -> Any:
    """Return the reply that the body of an HTTP response holds: one JSON value, or server-sent events."""
    text = body.decode(errors="replace").replace("\r\n", "\n")
    if text.lstrip().startswith("{"):
        return _object(text)
    for event in text.split("\n\n"):
        lines = event.split("\n")
        data = "\n".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
        if data.lstrip().startswith("{"):  # the last event is [DONE], and an event may be cut off
            reply.add(_object(data))
    return reply


def _object(text: str) -> Any:
    try:
        return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))
    except ValueError:
        return None


def record_body(response: Any, done: Callable[[bytes], None]) -> None:
    """Call ``done`` once with the part of an HTTP response's body that was read, now if it was read already.

    ``response`` is httpx's, plain or async: ``read``, ``iter_text`` and ``iter_lines`` use its
    ``iter_bytes`` or ``aiter_bytes``. Raw bytes (``iter_raw``) are not recorded.
    """
    if response.is_closed:
        done(response.content)
        return
    _BodyRecorder(response, done)


class _BodyRecorder:
    def __init__(self, response: Any, done: Callable[[bytes], None]) -> None:
        self._iter, self._aiter = response.iter_bytes, response.aiter_bytes
        self._close, self._aclose = response.close, response.aclose
        self._done: Callable[[bytes], None] | None = done
        self._pieces: list[bytes] = []
        self._is_reading = False
        response.iter_bytes, response.aiter_bytes = self.iter_bytes, self.aiter_bytes
        response.close, response.aclose = self.close, self.aclose

    def _finish(self) -> None:
        # The response closes itself before its decoder returns the last bytes.
        if self._is_reading:
            return
        done, self._done = self._done, None
        if done is not None and self._pieces:
            done(b"".join(self._pieces))

    def _take(self, piece: bytes) -> None:
        if self._done is not None:
            self._pieces.append(piece)

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        try:
            self._is_reading = True
            for piece in self._iter(chunk_size):
                self._take(piece)
                self._is_reading = False
                yield piece
                self._is_reading = True
        finally:
            self._is_reading = False
            self._finish()

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        try:
            self._is_reading = True
            async for piece in self._aiter(chunk_size):
                self._take(piece)
                self._is_reading = False
                yield piece
                self._is_reading = True
        finally:
            self._is_reading = False
            self._finish()

    def close(self) -> None:
        try:
            self._close()
        finally:
            self._finish()

    async def aclose(self) -> None:
        try:
            await self._aclose()
        finally:
            self._finish()
