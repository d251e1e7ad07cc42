"""One call by OpenAI's client: no retries, a bounded body, one overall limit, its errors turned into ours."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx2
from openai import APIStatusError, AsyncOpenAI, OpenAIError, Timeout

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.asking.replies import Answer
from combee.adapters.openai.clients import MAX_REPLY_BYTES, Client
from combee.adapters.openai.fates import SHOWN_CHARS, fate, redact
from combee.adapters.openai.names import Server
from combee.adapters.openai.wire import Message, Vectors, listed_models, read_answer, read_vectors
from combee.adapters.ports import CombeeError, ConfigurationError

CONNECT_TIMEOUT_S = 10.0


class Connection:
    """A server, and the limits of one call of it."""

    def __init__(self, server: Server, *, timeout_s: float, max_reply_bytes: int) -> None:
        self.host = server.host
        self._server = server
        self._timeout_s = timeout_s
        self._timeout = Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        self._max_reply_bytes = max_reply_bytes
        self._client: Client | None = None

    async def ask(self, body: bytes, messages: Sequence[Message]) -> Answer:
        """Return the server's answer to one request with these messages.

        Raises
        ------
        CallFailedError
            If there was no answer: retry.
        CallRefusedError
            If the server refuses this request.
        PromptTooLongError
            If the prompt is too long for the model.
        ConfigurationError
            If no client can be made from the settings.
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
        CallFailedError, CallRefusedError, PromptTooLongError, ConfigurationError
            As for ``ask``.
        """
        started_s = time.monotonic()
        body = json.dumps({"model": model, "input": list(texts), "encoding_format": "float"}).encode()
        content = await self._post("/embeddings", body)
        return read_vectors(content, texts=texts, seconds=time.monotonic() - started_s, shown=self._shown)

    async def models(self) -> frozenset[str]:
        """Return the names of the models that the server lists; empty if it lists none, or cannot.

        Raises
        ------
        CallFailedError
            If there was no answer.
        """
        if self._server.azure_version:
            return frozenset()  # it lists models, but requests name deployments

        async def listing(openai: AsyncOpenAI) -> httpx2.Response:
            try:
                return await openai.get(
                    "/models", cast_to=httpx2.Response, options={"timeout": self._timeout}
                )
            except APIStatusError as refused:  # a key may be limited to chats, and many servers list nothing
                return refused.response

        return listed_models(await self._answered(listing))

    async def _post(self, path: str, body: bytes) -> bytes:
        # On Azure the client copies the model from the body into the address.
        what: dict[str, Any] = {"body": json.loads(body)} if self._server.azure_version else {"content": body}
        return await self._answered(
            lambda openai: openai.post(
                path, cast_to=httpx2.Response, options={"timeout": self._timeout}, **what
            )
        )

    async def _answered(self, call: Callable[[AsyncOpenAI], Awaitable[httpx2.Response]]) -> bytes:
        """Return the body of an answer, one byte longer than it may be if it is too long."""
        openai = self._opened().openai
        MAX_REPLY_BYTES.set(self._max_reply_bytes)
        try:
            # The client's time-outs are per read; only this one stops a server that sends byte by byte.
            async with asyncio.timeout(self._timeout_s):
                return (await call(openai)).content
        except TimeoutError:
            raise CallFailedError(f"{self.host} did not answer within {self._timeout_s:g} s") from None
        except CombeeError:
            raise
        except Exception as error:  # noqa: BLE001 - the client also lets errors of the libraries under it through
            # Without its cause, which may quote the key.
            raise fate(error, host=self.host, shown=self._shown) from None

    def _opened(self) -> Client:
        if self._client is None:
            try:
                self._client = Client.of(self._server)
            except (OpenAIError, httpx2.InvalidURL, TypeError, ValueError) as error:
                raise ConfigurationError(
                    f"no client of {self.host} can be made from the settings: {self._shown(str(error))}"
                ) from None
        return self._client

    async def close(self) -> None:
        """Close the connections, unless another user of the client remains."""
        client, self._client = self._client, None
        if client is not None:
            await client.release()

    def _shown(self, text: str) -> str:
        # JSON escapes can spell characters that UTF-8 cannot encode, and this text is written to logs and topics.
        secrets = self._client.secrets if self._client else self._server.secrets
        return redact(text, *secrets)[:SHOWN_CHARS].encode(errors="replace").decode()
