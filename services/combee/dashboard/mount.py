"""Mounts the dashboard on the gateway.

Its library is half as large as the gateway, so it is loaded when the dashboard is first opened.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from combee.gateway.access.access import DASHBOARD
from combee.gateway.context import Context


def mount(app: FastAPI, context: Context) -> None:
    """Serve the dashboard and redirect ``/`` there; the gateway controls access."""

    def make() -> FastAPI:
        from combee.dashboard.frame import application  # noqa: PLC0415 - loads the dashboard's library

        return application(context)

    dashboard, rest = _OnDemand(make), app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with dashboard.running, rest(app) as state:
            yield state

    app.add_api_route("/", _go_there, include_in_schema=False)
    app.mount(DASHBOARD, dashboard)
    app.router.lifespan_context = lifespan


def _go_there() -> RedirectResponse:
    return RedirectResponse(f"{DASHBOARD}/")


class _OnDemand:
    """An application that is built and started at its first request; it ends with ``running``."""

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self.running = AsyncExitStack()
        self._make = make
        self._made: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        made = self._made or await self._started()
        await made(scope, receive, send)

    async def _started(self) -> ASGIApp:
        async with self._making:
            if self._made is None:
                # In a thread, so that other requests are answered meanwhile.
                made = await asyncio.to_thread(self._make)
                await self.running.enter_async_context(made.router.lifespan_context(made))
                self._made = made
            return self._made
