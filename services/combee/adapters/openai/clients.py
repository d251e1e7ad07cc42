"""OpenAI's client: one for each server (base URL and key) and event loop, with replies of bounded size."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from contextvars import ContextVar
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import httpx2
from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAioHttpClient

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.extras import pip_install
from combee.adapters.openai.fates import SHOWN_CHARS
from combee.adapters.openai.names import NO_KEY, Server
from combee.adapters.ports import ConfigurationError

NO_RETRIES = 0  # the client's own retries are off: a call that waits for a retry must hold no slot
SCOPE = "https://cognitiveservices.azure.com/.default"
MAX_REPLY_BYTES: ContextVar[int] = ContextVar("MAX_REPLY_BYTES")
"""Maximum decompressed bytes of a reply in the call under way."""
_LOGIN = re.compile(r"auth|key|token|secret|password|cookie", re.IGNORECASE)
"""Matches names of headers that hold credentials."""


class Client:
    """A client of a server, shared by its callers."""

    def __init__(self, server: Server, shelf: dict[Server, "Client"]) -> None:
        self._server = server
        self._shelf = shelf
        self.users = 0
        self._resources = AsyncExitStack()
        http = DefaultAioHttpClient(
            event_hooks={"request": [staying_at(httpx2.URL(server.url))], "response": [_bound]},
            # A proxy for the world cannot reach this machine.
            trust_env=not server.is_loopback,
        )
        self._resources.push_async_callback(http.aclose)
        address, login = _without_login(server.url)
        headers = {"Authorization": login} if login else None
        self.openai = (self._azure if server.azure_version else self._plain)(address, headers, http)
        self.secrets = (*server.secrets, *_logins(self.openai.default_headers))
        """Secrets, which are never shown."""

    def _plain(
        self, address: str, headers: Mapping[str, str] | None, http: httpx2.AsyncClient
    ) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=address,
            api_key=self._server.key,
            default_headers=headers,
            max_retries=NO_RETRIES,
            http_client=http,
        )

    def _azure(
        self, address: str, headers: Mapping[str, str] | None, http: httpx2.AsyncClient
    ) -> AsyncOpenAI:
        server = self._server
        key = server.key if server.key != NO_KEY else None
        return AsyncAzureOpenAI(
            azure_endpoint=address,
            api_version=server.azure_version,
            api_key=None if server.key_is_token else key,
            azure_ad_token=key if server.key_is_token else None,
            azure_ad_token_provider=None if key else self._tokens(),
            default_headers=headers,
            max_retries=NO_RETRIES,
            http_client=http,
        )

    def _tokens(self) -> Callable[[], Awaitable[str]]:
        """Return a function that gets the token of the Azure login by Azure's library."""
        try:
            from azure.identity import aio  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"Azure needs a key (set AZURE_OPENAI_API_KEY), or a login and: {pip_install('azure')}"
            ) from error
        credential = aio.DefaultAzureCredential()
        self._resources.push_async_callback(credential.close)
        return aio.get_bearer_token_provider(credential, SCOPE)

    @classmethod
    def of(cls, server: Server) -> "Client":
        """Return the running loop's client of a server, until it is released."""
        shelf = _clients.setdefault(asyncio.get_running_loop(), {})
        if server not in shelf:
            shelf[server] = cls(server, shelf)
        shelf[server].users += 1
        return shelf[server]

    async def release(self) -> None:
        """Close the connections with the last user's release."""
        self.users -= 1
        if not self.users:
            del self._shelf[self._server]
            await self._resources.aclose()


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Server, Client]] = WeakKeyDictionary()


def staying_at(home: httpx2.URL) -> Callable[[httpx2.Request], Awaitable[None]]:
    """Return a hook that refuses requests to other servers: a redirection could send the prompt anywhere."""

    async def check(request: httpx2.Request) -> None:
        url = request.url
        by_default = (home.scheme, home.port, url.scheme, url.port) == ("http", None, "https", None)
        if url.host == home.host and (url.origin == home.origin or by_default):
            return
        raise CallFailedError(
            f"{home.host} redirects to {url.scheme}://{url.netloc.decode()[:SHOWN_CHARS]}, and no prompt is"
            f" sent there: to"
            " allow it, make that the base URL (OPENAI_BASE_URL, COMBEE_EMBEDDING_BASE_URL, on Azure"
            " AZURE_OPENAI_ENDPOINT)",
            permanent=True,
        )

    return check


async def _bound(response: httpx2.Response) -> None:
    """Bound the reading of a response: the library itself reads errors and redirects whole."""
    response.stream = _Bounded(response)
    response.headers.pop("content-encoding", None)


class _Bounded(httpx2.AsyncByteStream):
    """A response's body, decompressed; it ends soon after the bound."""

    def __init__(self, response: httpx2.Response) -> None:
        self._whole = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=response.request
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_REPLY_BYTES.get()
        async with aclosing(self._whole.aiter_bytes()) as chunks:
            async for chunk in chunks:
                yield chunk[: left + 1]
                left -= len(chunk)
                if left < 0:
                    break

    async def aclose(self) -> None:
        await self._whole.aclose()


def _logins(headers: Mapping[str, object]) -> tuple[str, ...]:
    """Return the credentials in headers: the client adds OPENAI_CUSTOM_HEADERS to every request."""
    sent = (str(value).split() for name, value in headers.items() if _LOGIN.search(name))
    return tuple(words[-1] for words in sent if words)


def _without_login(url: str) -> tuple[str, str | None]:
    """Return an address without its login, and the login as a header: the library would send the key, too."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = login.partition(":")
    basic = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return parts._replace(netloc=host).geturl(), f"Basic {basic}"
