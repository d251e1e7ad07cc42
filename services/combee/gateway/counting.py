"""Counts requests by route and status."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from combee.ports import Clock
from combee.runtime.metrics_http import HttpMetrics

ELSEWHERE = "elsewhere"
"""The route of whatever no endpoint of the API answers."""


class Counting:
    """ASGI middleware: tells the metrics of every answer."""

    def __init__(self, app: ASGIApp, *, metrics: HttpMetrics, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = str(getattr(scope.get("route"), "path_format", ELSEWHERE))
                self._metrics.answered(route, message["status"], self._clock.monotonic() - began)
            await send(message)

        await self._app(scope, receive, counted)
