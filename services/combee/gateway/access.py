"""Who comes in: before anything else is looked at, the request's host, origin and key."""

import base64
import binascii
import ipaddress
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from combee.gateway.keys import Caller, Keyring
from combee.gateway.keys import Scope as KeyScope
from combee.gateway.problems import Refusal
from combee_schemas.base import PlaybookName

API = "/v1/"
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""What load balancers and tools ask for without a key; it tells of no playbook."""
CALLER = "combee.caller"
CHALLENGES: Mapping[bool, str] = {
    True: 'Bearer realm="combee"',
    False: 'Basic realm="combee", charset="UTF-8"',
}
"""For the API, and for everything else, which people open in a browser: any user name, the key as password."""


class Access:
    """ASGI middleware: without keys only loopback names are answered; with keys nobody without one."""

    def __init__(self, app: ASGIApp, *, keys: Keyring, origins: tuple[str, ...]) -> None:
        self._app = app
        self._keys = keys
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in or answer it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            scope[CALLER] = self._admitted(scope)
        except Refusal as refusal:
            await refusal.answer()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admitted(self, scope: Scope) -> Caller | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        if not self._keys and not _is_loopback(headers.get("host", "")):
            # A page of the Internet may have pointed its own name at this machine (DNS rebinding).
            raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, "without API keys only loopback names are answered")
        if scope["type"] == "websocket" or not (path.startswith(API) or path in OPEN):
            self._check_origin(headers)
        caller = self._keys.caller(_key(headers.get("authorization", "")))
        if path in OPEN:
            return caller
        if caller is None:
            challenge = {"WWW-Authenticate": CHALLENGES[path.startswith(API)]}
            raise Refusal(HTTPStatus.UNAUTHORIZED, "an API key is needed", headers=challenge)
        if not path.startswith(API) and not (caller.sees_all and "playbooks:read" in caller.scopes):
            raise Refusal(HTTPStatus.FORBIDDEN, "it needs playbooks:read for all name spaces")
        return caller

    def _check_origin(self, headers: Headers) -> None:
        """Refuse a page of somewhere else that opens a websocket: browsers ask nobody whether it may.

        Outside the API plain requests too: the dashboard's library polls where there are no websockets, and lets
        every origin read its answers.
        """
        origin = headers.get("origin", "")
        if origin and urlsplit(origin).netloc != headers.get("host") and origin not in self._origins:
            raise Refusal(HTTPStatus.FORBIDDEN, "a page of another origin")


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _key(authorization: str) -> str | None:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


def allowed(scope: KeyScope) -> Callable[[Request], Caller]:
    """Return a dependency: the caller, who has this scope."""

    def caller(request: Request) -> Caller:
        found: Caller = request.scope[CALLER]
        if scope not in found.scopes:
            raise Refusal(HTTPStatus.FORBIDDEN, f"this key has not the scope {scope}")
        return found

    return caller


def check_sees_all(caller: Caller) -> None:
    """Refuse a caller who may not see every playbook."""
    if not caller.sees_all:
        raise Refusal(HTTPStatus.FORBIDDEN, "this is about all playbooks, and the key is for some")


def check_touch(caller: Caller, playbook: PlaybookName) -> None:
    """Refuse a playbook outside the caller's name spaces, whether it exists or not."""
    if not caller.may_touch(playbook):
        raise Refusal(HTTPStatus.FORBIDDEN, f"this key's name spaces do not hold {playbook}")
