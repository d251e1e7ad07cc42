"""Requests and answers in the log (one line each) and in metrics, by route, status and caller."""

from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from combee.adapters.ports import Clock
from combee.gateway.access.access import API, CALLER, OPEN
from combee.process.telemetry.metrics import HttpMetrics

logger = structlog.get_logger()

ELSEWHERE = "elsewhere"
"""Route label of requests that no endpoint of the API answers."""
LONGEST_PATH = 300
LIBRARY = "/_nicegui"
"""Part of the paths of the dozens of files that a page of the dashboard loads."""
STREAM = b"text/event-stream"


class RequestLog:
    """ASGI middleware: reports every answer to log and metrics, without bodies, queries or keys.

    Requests refused for a missing key share one line a second (``keys_refused``), so that strangers cannot fill the
    log; health requests and files of the dashboard are logged only at level debug.
    """

    def __init__(self, app: ASGIApp, *, metrics: HttpMetrics, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, is_stream = self._clock.monotonic(), 0, False

        async def counted(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = int(message["status"])
                is_stream = any(value.startswith(STREAM) for _, value in message.get("headers", ()))
                self._count(scope, began, status)
                if is_stream:
                    self._log("stream_opened", scope, began, status=status)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            if not status:  # an outer handler answers unforeseen errors
                status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
                self._count(scope, began, status)
            raise
        finally:
            self._log("stream_closed" if is_stream else "request", scope, began, status=status)

    def _count(self, scope: Scope, began: float, status: int) -> None:
        route = str(getattr(scope.get("route"), "path_format", ELSEWHERE))
        self._metrics.answered(route, status, self._clock.monotonic() - began)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, is_open = self._clock.monotonic(), False

        async def logged_send(message: Message) -> None:
            nonlocal is_open
            if message["type"] == "websocket.accept":
                is_open = True
                self._log("websocket_opened", scope, began)
            await send(message)

        try:
            await self._app(scope, receive, logged_send)
        finally:
            if is_open:
                self._log("websocket_closed", scope, began)

    def _log(self, event: str, scope: Scope, began: float, **fields: int) -> None:
        caller = scope.get(CALLER)
        if caller is None and scope["path"] not in OPEN:
            return
        # The raw path: a decoded one could hold terminal control sequences.
        path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "backslashreplace")
        ms = round(1000 * (self._clock.monotonic() - began), 1)
        is_file = LIBRARY in path and not path.startswith(API) and scope["type"] == "http"
        write = logger.debug if is_file or scope["path"] in OPEN else logger.info
        method, key = scope.get("method", "GET"), caller.name if caller else ""
        write(event, method=method, path=path[:LONGEST_PATH], **fields, ms=ms, key=key)
