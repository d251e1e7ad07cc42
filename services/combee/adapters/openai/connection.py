"""One HTTP call: no retries, an explicit time-out, a bounded body, library errors turned into ours.

On aiohttp, not on OpenAI's client: that one, and the HTTP library under it, took a third of scan's processor time.
"""

import asyncio
import json
import os
import time
import zlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from combee.adapters.openai.errors import SHOWN_CHARS, CallFailedError, Refusal, classify, redact
from combee.adapters.openai.names import is_loopback
from combee.adapters.openai.retry import retry_after_s
from combee.adapters.openai.wire import Answer, Message, Vectors, listed_models, read_answer, read_vectors

GZIP = "gzip"
CONNECT_TIMEOUT_S = 10.0
OF_ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
"""What OpenAI's own clients read from the environment, and send, by the header's name."""


class Connection:
    """A server, the key for it, and the connections to it."""

    def __init__(
        self, *, base_url: str, api_key: str, timeout_s: float, concurrency: int, max_reply_bytes: int
    ) -> None:
        self._secret = api_key
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self._base_url = base_url.rstrip("/")
        self._concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None
        self.host = urlsplit(base_url).netloc.rpartition("@")[2]

    async def ask(self, body: bytes, messages: Sequence[Message]) -> Answer:
        """Return what the server answers to one request, which has these messages.

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
        content = await self._post("/chat/completions", body)
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
        body = json.dumps({"model": model, "input": list(texts), "encoding_format": "float"}).encode()
        content = await self._post("/embeddings", body)
        return read_vectors(content, texts=texts, seconds=time.monotonic() - started_s, shown=self._shown)

    async def _post(self, path: str, body: bytes) -> bytes:
        response, content = await self._answered("POST", path, body)
        if not response.ok:
            raise classify(self._refusal(response, content))
        return content

    async def models(self) -> frozenset[str]:
        """Return the names of the models that the server lists; empty if it lists none, or cannot.

        Raises
        ------
        CallFailedError
            If there was no answer.
        """
        response, content = await self._answered("GET", "/models")
        # A key may be for chats alone, and many servers list nothing.
        return listed_models(content) if response.ok else frozenset()

    async def _answered(
        self, method: str, path: str, body: bytes | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Return a response and its body, whatever its status."""
        try:
            # Inside, time-outs are per read; only this one bounds a server that drips.
            async with (
                asyncio.timeout(self._timeout_s),
                self._opened().request(method, self._base_url + path, data=body) as response,
            ):
                return response, await self._read(response)
        except TimeoutError as error:
            unreachable = isinstance(error, aiohttp.ConnectionTimeoutError)
            text = f"{self.host} did not answer within {self._timeout_s:g} s"
            raise CallFailedError(text, unreachable=unreachable) from None
        except (aiohttp.ClientError, OSError) as error:
            # Without its cause: the library's error may quote the key.
            text = f"no answer from {self.host}: {self._shown(f'{type(error).__name__} {error}')}"
            unreachable = isinstance(error, aiohttp.ClientConnectorError)
            raise CallFailedError(text, unreachable=unreachable) from None

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it belongs to the loop in which the first call is made."""
        if self._session is None:
            headers = {
                "accept": "application/json",
                "accept-encoding": GZIP,
                "content-type": "application/json",
            }
            headers |= {name: value for name, key in OF_ACCOUNT.items() if (value := os.environ.get(key))}  # noqa: TID251 - as OpenAI's clients do
            if not urlsplit(self._base_url).username:  # who stands in the address
                headers["authorization"] = f"Bearer {self._secret}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=min(CONNECT_TIMEOUT_S, self._timeout_s),
                    sock_read=self._timeout_s,
                ),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                # A proxy for the world cannot reach this machine.
                trust_env=not is_loopback(self._base_url),
            )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return a body; what is longer than it may be is read no further."""
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > self._max_reply_bytes:
                response.close()
                break
        zipped = response.headers.get("content-encoding") == GZIP
        return self._unzipped(content) if zipped else bytes(content)

    def _unzipped(self, content: bytearray) -> bytes:
        # The library's own decoder has no bound: 10 kB can become 10 MB.
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, self._max_reply_bytes + 1)
        except zlib.error:
            return b""

    async def close(self) -> None:
        """Drop all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _refusal(self, response: aiohttp.ClientResponse, content: bytes) -> Refusal:
        said = _said(content)
        error = said.get("error", said) if isinstance(said, dict) else said
        body = error if isinstance(error, dict) else {}
        message = body.get("message") or body.get("detail") or error or response.reason
        return Refusal(
            status=response.status,
            message=self._shown(str(message)),
            code=self._shown(str(body.get("code") or body.get("type") or "")),
            param=str(body.get("param") or ""),
            retry_after_s=retry_after_s(response.headers),
        )

    def _shown(self, text: str) -> str:
        # JSON escapes can spell what UTF-8 cannot hold, and this is written to logs and topics.
        return redact(text, self._secret)[:SHOWN_CHARS].encode(errors="replace").decode()


def _said(content: bytes) -> Any:
    """Return what a server says of an error: JSON, else its text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode(errors="replace").strip()
