"""The gateway as an ASGI application; ``build`` wires endpoints to a context without starting anything."""

from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from combee.adapters.ports import NO_TRACING
from combee.gateway import names
from combee.gateway.access.access import Access, SecurityHeaders
from combee.gateway.access.body_limits import BodyLimits
from combee.gateway.context import Context
from combee.gateway.endpoints import commands, events, publishing, reading, sessions, spans, status
from combee.gateway.endpoints import reflection_status as fates
from combee.gateway.openapi import documented
from combee.gateway.problems import add_handlers
from combee.gateway.request_log import RequestLog
from combee.gateway.request_spans import RequestSpans
from combee.process.settings.gateway import listed
from combee.process.telemetry.metrics import HttpMetrics, Metrics, new_registry
from combee.process.telemetry.telemetry import Telemetry

T = TypeVar("T")


def build(context: Context, telemetry: Telemetry | None = None) -> FastAPI:
    """Return the application; ``telemetry`` records spans of its requests and sends its metrics."""
    settings = context.settings.gateway
    origins = listed(settings.gateway_cors_origins)
    names.register()
    app = FastAPI(
        title="Combee", version=version("combee"), docs_url=None, redoc_url=None, redirect_slashes=False
    )
    registry, streams = new_registry(), events.Events(context)
    metrics = Metrics(registry, context.clock, service="gateway", slot=context.settings.worker.slot)
    counts = HttpMetrics(registry, lambda: streams.open)
    routers = (
        publishing.router(context),
        spans.router(context),
        fates.router(context),
        events.router(streams),
        reading.router(context),
        commands.router(context),
        sessions.router(context),
        status.router(context, _current(context, metrics, metrics.text)),
    )
    if telemetry is not None:
        telemetry.add(_current(context, metrics, metrics.families))
    for router in routers:
        app.include_router(router)
    app.openapi = documented(app, keys=bool(context.keys))  # type: ignore[method-assign]  # FastAPI's documented way
    add_handlers(app)
    app.add_middleware(BodyLimits, limits=context.limits)
    if telemetry is not None and telemetry.tracing is not NO_TRACING:
        # Before Access is added, so it sees admitted requests only: strangers make no spans.
        app.add_middleware(RequestSpans, tracing=telemetry.tracing)
    app.add_middleware(
        Access,
        keys=context.keys,
        sessions=context.sessions,
        throttle=context.throttle,
        clock=context.clock,
        origins=origins,
    )
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag", "Combee-Version", "Retry-After"],
        )
    app.add_middleware(RequestLog, metrics=counts, clock=context.clock)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(names.EncodedSlashes)  # added last, so it sees requests first
    return app


def _current(context: Context, metrics: Metrics, read: Callable[[], T]) -> Callable[[], T]:
    """Return a reader of the metrics that first updates the conditions."""

    def current() -> T:
        metrics.conditions(context.health.conditions())
        return read()

    return current
