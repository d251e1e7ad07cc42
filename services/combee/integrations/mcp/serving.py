"""The server on stdio for one local assistant, or on HTTP, where each caller sends a key of the gateway."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack, closing
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from combee.adapters.http.queries import GatewayQueries
from combee.adapters.ports import CombeeError, FatalError, TransientError
from combee.integrations.mcp.deployment import Deployment, GatewayDeployment, key_of
from combee.integrations.mcp.server import PlaybookServer
from combee.process.server import STOP_WITHIN_S, FramedProtocol, Server, bind, is_loopback

PATH = "/mcp"
MAX_IDLE_CALLERS = 256
"""Maximum number of idle keys whose connections to the gateway are kept; keys with listeners are always kept."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def serve_stdio(deployment: Deployment) -> None:
    """Serve one client on standard input and output until it closes them; nothing else may be written there."""
    server = PlaybookServer(lambda _: deployment).server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(
    gateway: str,
    *,
    host: str,
    port: int,
    names: Sequence[str],
    stop: asyncio.Event,
    on_ready: Callable[[str], None],
) -> None:
    """Serve on HTTP until ``stop``; ``names`` are further accepted host names.

    Raises
    ------
    FatalError
        If the address cannot be used, or would open a gateway without keys to other machines.
    TransientError
        If the gateway does not answer.
    """
    callers, queries = Callers(gateway), GatewayQueries(gateway)
    playbooks = PlaybookServer(callers.deployment)
    app = playbooks.server().streamable_http_app(
        streamable_http_path=PATH, host=host, transport_security=security((host, *names))
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queries.close)
        check_open(host, gateway, await queries.status(None))
        bound = stack.enter_context(closing(bind(host, port, "choose another --host or --port")))
        stack.push_async_callback(callers.close)
        server = Server(
            uvicorn.Config(
                Keys(app, queries),
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                http=FramedProtocol,
                timeout_graceful_shutdown=int(STOP_WITHIN_S) - 1,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        stopped = asyncio.create_task(stop.wait())
        try:
            on_ready(f"http://{_in_url(host)}:{bound.getsockname()[1]}{PATH}")
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            playbooks.close_streams()
            server.should_exit = True
            await serving


def check_open(host: str, gateway: str, status: HTTPStatus) -> None:
    """Refuse other machines unless the gateway refuses callers without a key, whom it serves on loopback only.

    ``status``: its answer to such a caller.

    Raises
    ------
    FatalError
        If the address is not on loopback, and the gateway admits such callers or is not ready to answer.
    """
    try:
        is_open = not is_loopback(host)
    except ValueError as error:
        raise FatalError(f"--host is {host!r}: give an address, or localhost") from error
    if not is_open or status == HTTPStatus.UNAUTHORIZED:
        return
    if status in {HTTPStatus.OK, HTTPStatus.FORBIDDEN}:
        raise FatalError(
            f"the gateway {gateway} needs no keys, and every client that reaches {host} would have access: listen on"
            " 127.0.0.1, or give the gateway keys (docs/guide/http.md)"
        )
    raise TransientError(
        f"the gateway {gateway} does not say yet whether it needs keys (status {status.value})"
    )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def security(names: Sequence[str]) -> TransportSecuritySettings:
    """Return the accepted ``Host`` and ``Origin``, as another site's name may resolve to this machine."""
    hosts = dict.fromkeys((*LOOPBACK, *map(_in_url, names)))
    with_ports = [form for host in hosts for form in (host, f"{host}:*")]
    origins = [f"{scheme}://{form}" for scheme in ("http", "https") for form in with_ports]
    return TransportSecuritySettings(allowed_hosts=with_ports, allowed_origins=origins)


class Keys:
    """ASGI middleware: the gateway checks a request's key, and sessions belong to their keys."""

    def __init__(self, app: App, queries: GatewayQueries) -> None:
        self._app, self._queries = app, queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or refuse it."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            key = key_of(given)
            refusal = await self._refusal(key)
            if refusal is not None:
                await _answer(send, *refusal)
                return
            if key is not None:
                token = AccessToken(token="", client_id=digest(key), scopes=[])
                scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)

    async def _refusal(self, key: str | None) -> tuple[HTTPStatus, str] | None:
        try:
            # The gateway is asked with a header, and headers are ASCII.
            can_be_sent = key is None or key.isascii()
            status = await self._queries.status(key) if can_be_sent else HTTPStatus.UNAUTHORIZED
        except CombeeError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        match status:
            case HTTPStatus.UNAUTHORIZED:
                return status, "send a key of the gateway: Authorization: Bearer KEY"
            case HTTPStatus.TOO_MANY_REQUESTS:
                return status, "the gateway is busy, or received too many wrong keys: try again later"
        return None


async def _answer(send: Send, status: HTTPStatus, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="combee"'))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})


def digest(key: str | None) -> str:
    """Return a key's digest, which is stored instead of the key."""
    return sha256((key or "").encode()).hexdigest()


class Callers:
    """The deployments by key; connections of the longest unused keys are dropped."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._deployments: OrderedDict[str, GatewayDeployment] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def deployment(self, authorization: str | None) -> GatewayDeployment:
        """Return the deployment for this header's key."""
        key = key_of(authorization)
        own = digest(key)
        if own not in self._deployments:
            self._deployments[own] = GatewayDeployment(self._gateway, key)
        self._deployments.move_to_end(own)
        chosen = self._deployments[own]
        idle = [name for name, deployment in self._deployments.items() if deployment.is_idle and name != own]
        for name in idle[: max(0, len(self._deployments) - MAX_IDLE_CALLERS)]:
            task = asyncio.create_task(self._deployments.pop(name).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return chosen

    async def close(self) -> None:
        """Disconnect all."""
        await asyncio.gather(
            *(deployment.close() for deployment in self._deployments.values()), *self._closing
        )
