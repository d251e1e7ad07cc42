"""A span around each request of the API, below the caller's if it names one.

Streams, pages and requests that deliver spans have none: an agent that sends its spans here would otherwise add a
span with each delivery.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from combee.adapters.ports import Notes, Tracing
from combee.gateway.access.access import API
from combee_schemas.records import Headers

STREAM = b"text/event-stream"
OTLP = f"{API}otlp/"
FAULT = 500


class RequestSpans:
    """ASGI middleware: records that an endpoint writes name the span of its request."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        headers = _headers(scope)
        is_api = scope["type"] == "http" and scope["path"].startswith(API)
        if not is_api or scope["path"].startswith(OTLP) or _wants_stream(headers):
            await self._app(scope, receive, send)
            return
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        method = str(scope["method"])
        with self._tracing.serving(method, headers):
            try:
                await self._app(scope, receive, noted)
            finally:
                self._tracing.note(_notes(scope, method, status))
                if status >= FAULT:
                    self._tracing.failed(str(status))


def _wants_stream(headers: Headers) -> bool:
    return any(name == "accept" and STREAM in (value or b"") for name, value in headers)


def _headers(scope: Scope) -> Headers:
    return [(name.decode("latin-1").lower(), value) for name, value in scope.get("headers", ())]


def _notes(scope: Scope, method: str, status: int) -> Notes:
    """Return a request's attributes: its route instead of its path, which may contain confidential names."""
    route = str(getattr(scope.get("route"), "path_format", ""))
    return {
        "http.request.method": method,
        **({"http.route": route} if route else {}),
        **({"http.response.status_code": status} if status else {}),
    }
