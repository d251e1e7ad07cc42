"""Access control by the request's host, origin and key, before anything else is read."""

import asyncio
import base64
import binascii
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from combee.adapters.ports import Clock
from combee.gateway.access.connections import STATE, Connection
from combee.gateway.access.keys import Caller, Keyring
from combee.gateway.access.keys import Scope as KeyScope
from combee.gateway.access.sessions import Sessions
from combee.gateway.access.throttle import WrongKeyThrottle
from combee.gateway.problems import Refusal, busy
from combee_schemas.base import LineName

API = "/v1/"
JSON = "application/json"
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""Paths for load balancers and tools without a key; they reveal no playbook."""
CALLER = "combee.caller"
COMMANDS: KeyScope = "playbooks:admin"
DASHBOARD = "/dashboard"
NO_KEY = (
    f"a judge is on, so commands need a key with the scope {COMMANDS}: 'combee up' makes one and prints its path; a"
    " gateway that runs by itself needs COMBEE_GATEWAY_KEYS_FILE (docs/guide/http.md)"
)
WRONG_KEY_WAITS_S = 1.0
CHALLENGES: Mapping[bool, str] = {
    True: 'Bearer realm="combee"',
    False: 'Basic realm="combee", charset="UTF-8"',
}
"""Challenges for the API and for pages, where browsers send any user name and the key as password."""


NOTHING_ELSE = "default-src 'none'; frame-ancestors 'none'"
"""Content security policy of data: opened as a page, it may load and run nothing."""
PAGES = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of pages: scripts and connections of this server only. The dashboard's library needs inline
scripts, and ``eval`` to compile its templates in the browser."""
BROWSERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
)
"""Security headers of every answer."""


class SecurityHeaders:
    """ASGI middleware that adds the security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                is_page = headers.get("content-type", "").startswith("text/html")
                headers["Content-Security-Policy"] = PAGES if is_page else NOTHING_ELSE
                for name, value in BROWSERS:
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, guarded)


class Access:
    """ASGI middleware: without configured keys only loopback names are answered; with keys, only callers with one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keyring,
        sessions: Sessions,
        throttle: WrongKeyThrottle,
        clock: Clock,
        origins: tuple[str, ...],
    ) -> None:
        self._app = app
        self._keys = keys
        self._sessions = sessions
        self._throttle = throttle
        self._clock = clock
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in or answer it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            caller = scope[CALLER] = await self._admitted(scope)
            if caller is not None and (connection := _connection(scope)) is not None:
                connection.admit(caller)
        except Refusal as refusal:
            await refusal.answer()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Caller | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        if self._keys.anybody is not None and not _is_loopback(headers.get("host", "")):
            # A page of the Internet may have pointed its own name at this machine (DNS rebinding).
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "without API keys the gateway answers only requests to loopback names",
            )
        if scope["type"] == "websocket" or not (path.startswith(API) or path in OPEN):
            # Browsers let pages of other origins open websockets. Plain requests are checked too: without websockets
            # the dashboard's library polls, and lets every origin read its answers.
            check_origin(headers, self._origins)
        caller = await self._caller(scope, _key(headers.get("authorization", "")))
        if path in OPEN:
            return caller
        is_dashboard = path == DASHBOARD or path.startswith(f"{DASHBOARD}/")
        if is_dashboard:
            caller = self._of_session(scope) or caller
        if caller is None or (is_dashboard and not caller.has_key and COMMANDS not in caller.scopes):
            self._throttle.refused(_address(scope))
            challenge = {"WWW-Authenticate": CHALLENGES[path.startswith(API)]}
            raise Refusal(HTTPStatus.UNAUTHORIZED, "an API key is needed", headers=challenge)
        if not path.startswith(API):
            # A page of the dashboard takes memory, as much as its browser likes: it is for operators alone.
            needed: KeyScope = COMMANDS if is_dashboard else "playbooks:read"
            if not (caller.sees_all and needed in caller.scopes):
                raise Refusal(HTTPStatus.FORBIDDEN, f"the key needs {needed} for all name spaces")
        return caller

    def _of_session(self, scope: Scope) -> Caller | None:
        now_ms = self._clock.now_ms()
        caller = self._sessions.of(HTTPConnection(scope).cookies, now_ms)
        return caller if caller is not None and self._keys.holds(caller, now_ms) else None

    async def _caller(self, scope: Scope, given: str | None) -> Caller | None:
        """Return the key's caller; an address with too many wrong keys waits for the next attempt."""

        def waits() -> None:
            if (connection := _connection(scope)) is not None:
                connection.is_busy = False  # it counts as an idle connection, and is closed first

        return await caller_of(self._keys, self._throttle, self._clock, _address(scope), given, waits)


def check_origin(headers: Headers, origins: Sequence[str]) -> None:
    """Refuse pages of other origins except ``origins``; clients other than browsers send no origin.

    A page's image or frame sends none either, and says so in other headers; a link that a person follows is let in.
    """
    origin = headers.get("origin", "")
    try:
        is_own = urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # not an address
        is_own = False
    is_others = origin and not is_own and origin not in origins
    is_part = not origin and headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}
    if is_others or (is_part and headers.get("sec-fetch-dest") != "document"):
        raise Refusal(HTTPStatus.FORBIDDEN, "a page of another origin")


def check_json(headers: Headers) -> None:
    """Refuse bodies of other types than JSON, which browsers send across origins only if CORS allows it."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")


async def caller_of(
    keys: Keyring,
    throttle: WrongKeyThrottle,
    clock: Clock,
    address: str,
    given: str | None,
    waits: Callable[[], None] = lambda: None,
) -> Caller | None:
    """Return the key's caller, None for an unknown key; ``waits`` is called before an address has to wait.

    Raises
    ------
    Refusal
        If too many wrong keys came from this address.
    """
    keys.refresh(clock.now_ms())
    caller = keys.caller(given, clock.now_ms())
    if caller is not None or not given:
        return caller
    left_s = throttle.failed(address, clock.monotonic())
    if left_s > 0:
        throttle.refused(address)
        waits()
        await asyncio.sleep(WRONG_KEY_WAITS_S)
        close = {"Connection": "close"}
        raise busy("too many wrong API keys came from this address", retry_after_s=left_s, headers=close)
    return None


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _connection(scope: Scope) -> Connection | None:
    connection: Connection | None = scope.get("state", {}).get(STATE)
    return connection


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
    """Return a dependency that returns the caller and checks this scope."""

    def caller(request: Request) -> Caller:
        known_caller: Caller = request.scope[CALLER]
        check_scope(known_caller, scope)
        return known_caller

    return caller


def check_scope(caller: Caller, scope: KeyScope) -> None:
    """Refuse a caller without this scope."""
    if scope not in caller.scopes:
        raise Refusal(HTTPStatus.FORBIDDEN, f"this key lacks the scope {scope}")


def check_sees_all(caller: Caller) -> None:
    """Refuse a caller who may not see every playbook."""
    if not caller.sees_all:
        raise Refusal(HTTPStatus.FORBIDDEN, "this answer covers all playbooks, and the key does not")


def check_touch(caller: Caller, playbook: LineName) -> None:
    """Refuse a playbook outside the caller's name spaces, whether it exists or not."""
    if not caller.may_touch(playbook):
        raise Refusal(HTTPStatus.FORBIDDEN, f"this key's name spaces do not include {playbook}")


def check_has_key(caller: Caller, *, is_judged: bool) -> None:
    """Refuse a command without a key while a judge is on, as commands can overrule the judge."""
    if is_judged and not caller.has_key:
        raise Refusal(HTTPStatus.FORBIDDEN, NO_KEY)


def commander(keys: Keyring, caller: Caller | None, playbook: str, now_ms: int, *, is_judged: bool) -> Caller:
    """Return the caller if it may send commands to a playbook, by the rules of the HTTP endpoints.

    ``is_judged``: a judge is on for some playbook; otherwise, without configured keys, every caller may.

    Raises
    ------
    Refusal
        If the key is missing, removed, or lacks the right.
    """
    holder = caller or keys.caller(None, now_ms)
    if holder is None or not keys.holds(holder, now_ms):
        raise Refusal(HTTPStatus.UNAUTHORIZED, f"a key with the scope {COMMANDS} is needed")
    check_has_key(holder, is_judged=is_judged)
    check_scope(holder, COMMANDS)
    check_touch(holder, playbook)
    return holder
