"""One HTTP call: no retries, an explicit time-out, a bounded body, library errors turned into ours."""

import asyncio
import ssl
import time
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import openai

from combee.adapters.openai.errors import SHOWN_CHARS, CallFailedError, Refusal, classify, redact
from combee.adapters.openai.names import is_loopback
from combee.adapters.openai.retry import retry_after_s
from combee.adapters.openai.wire import Answer, Message, Vectors, listed_models, read_answer, read_vectors
from combee.ports import CombeeError

GZIP = "gzip"
CONNECT_TIMEOUT_S = 10.0
RESPONSE: Any = import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0]).Response
"""Whose class it is, is the client library's business."""
UNREACHABLE = frozenset({"ConnectError", "ConnectTimeout"})
"""What the client's HTTP library calls an address where nobody listens."""
DECODED = ("content-encoding", "content-length", "transfer-encoding")


class CappedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that stops to read a body soon after ``max_bytes``, whatever the server sends."""

    def __init__(self, *, max_bytes: int, **settings: Any) -> None:
        super().__init__(headers={"accept-encoding": GZIP}, **settings)
        self._max_bytes = max_bytes

    async def send(self, *args: Any, **settings: Any) -> Any:
        """Send a request and return its response, read."""
        response = await super().send(*args, **(settings | {"stream": True}))
        try:
            content = await self._read(response)
        finally:
            await response.aclose()
        headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in DECODED]
        # The response's own class: which HTTP library it is from is the client library's business.
        return type(response)(
            response.status_code, headers=headers, content=content, request=response.request
        )

    async def _read(self, response: Any) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > self._max_bytes:
                break
        zipped = response.headers.get("content-encoding") == GZIP
        return self._unzipped(content) if zipped else bytes(content)

    def _unzipped(self, content: bytearray) -> bytes:
        # The library's own decoder has no bound: 10 kB can become 10 MB.
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, self._max_bytes + 1)
        except zlib.error:
            return b""


class Connection:
    """A server, the key for it, and the connections to it."""

    def __init__(
        self, *, base_url: str, api_key: str, timeout_s: float, concurrency: int, max_reply_bytes: int
    ) -> None:
        self._secret = api_key
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self.host = urlsplit(base_url).netloc.rpartition("@")[2]
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=concurrency, max_keepalive_connections=concurrency
        )
        timeout = openai.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            timeout=timeout,
            http_client=CappedClient(
                max_bytes=max_reply_bytes,
                limits=limits,
                timeout=timeout,
                # A proxy for the world cannot reach this machine.
                trust_env=not is_loopback(base_url),
                verify=_certificates(base_url),
            ),
        )

    async def ask(self, parameters: Mapping[str, Any], messages: Sequence[Message]) -> Answer:
        """Return what the server answers to one request.

        Raises
        ------
        CallFailedError
            If there was no answer: try again.
        RefusedError
            If the server refuses this request.
        PromptTooLongError
            If the prompt is too long for the model.
        """
        started_s = time.monotonic()
        content = await self._post("/chat/completions", {"messages": list(messages), **parameters})
        return read_answer(
            content,
            max_bytes=self._max_reply_bytes,
            messages=messages,
            seconds=time.monotonic() - started_s,
            shown=self._shown,
        )

    async def embed(self, model: str, texts: Sequence[str]) -> Vectors:
        """Return the embeddings of some texts.

        Raises
        ------
        CallFailedError, RefusedError, PromptTooLongError
            As for ``ask``.
        """
        started_s = time.monotonic()
        body = {"model": model, "input": list(texts), "encoding_format": "float"}
        content = await self._post("/embeddings", body)
        return read_vectors(content, texts=texts, seconds=time.monotonic() - started_s, shown=self._shown)

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        try:
            # Inside, time-outs are per read; only this one bounds a server that drips.
            async with asyncio.timeout(self._timeout_s):
                # Not chat.completions.create: its walk through a typed body takes a quarter of our time per call.
                response = await self._client.post(path, cast_to=RESPONSE, body=body)
        except openai.APIError as error:
            # Without its cause: the library's error may quote the key.
            raise self._translated(error) from None
        except TimeoutError:
            raise CallFailedError(f"{self.host} did not answer within {self._timeout_s:g} s") from None
        content: bytes = response.content
        return content

    async def models(self) -> frozenset[str]:
        """Return the names of the models that the server lists; empty if it lists none, or cannot.

        Raises
        ------
        CallFailedError
            If there was no answer.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.get("/models", cast_to=RESPONSE)
        except openai.APIStatusError:
            return frozenset()  # a key may be for chats alone, and many servers list nothing
        except openai.APIError as error:
            raise self._translated(error) from None
        except TimeoutError:
            raise CallFailedError(f"{self.host} did not answer within {self._timeout_s:g} s") from None
        return listed_models(response.content)

    async def close(self) -> None:
        """Drop all connections."""
        await self._client.close()

    def _translated(self, error: openai.APIError) -> CombeeError:
        if isinstance(error, openai.APIStatusError):
            return classify(self._refusal(error))
        cause = error.__cause__
        unreachable = type(cause).__name__ in UNREACHABLE
        if isinstance(error, openai.APITimeoutError):
            text = f"{self.host} did not answer within {self._timeout_s:g} s"
        else:
            reason = f"{type(cause).__name__} {cause}" if cause else error.message
            text = f"no answer from {self.host}: {self._shown(reason)}"
        return CallFailedError(text, unreachable=unreachable)

    def _refusal(self, error: openai.APIStatusError) -> Refusal:
        body = error.body if isinstance(error.body, dict) else {}
        message = body.get("message") or body.get("detail") or error.body or error.message
        return Refusal(
            status=error.status_code,
            message=self._shown(str(message)),
            code=self._shown(str(body.get("code") or body.get("type") or "")),
            param=str(body.get("param") or ""),
            retry_after_s=retry_after_s(error.response.headers),
        )

    def _shown(self, text: str) -> str:
        # JSON escapes can spell what UTF-8 cannot hold, and this is written to logs and topics.
        return redact(text, self._secret)[:SHOWN_CHARS].encode(errors="replace").decode()


def _certificates(base_url: str) -> ssl.SSLContext | bool:
    # To load the world's certificates takes 50 ms; plain HTTP to this machine needs none (and trusts none).
    plain = base_url.lower().startswith("http:") and is_loopback(base_url)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
