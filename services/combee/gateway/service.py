"""The gateway as a worker: what it is made of, and how it says that it is ready."""

import asyncio
from collections.abc import Callable, Sequence

from fastapi import FastAPI

from combee.clock import SystemClock
from combee.gateway.app import build
from combee.gateway.context import Context, context_of
from combee.gateway.server import serve
from combee.ports import Log
from combee.settings.loading import Settings
from combee.telemetry.telemetry import Telemetry

Mount = Callable[[FastAPI, Context], None]


async def run(
    log: Log, settings: Settings, stop: asyncio.Event, telemetry: Telemetry, mounts: Sequence[Mount] = ()
) -> None:
    """Serve until ``stop``; ``mounts`` add the dashboard. The ready file holds the address.

    Raises
    ------
    FatalError
        If the settings forbid it or the address cannot be used.
    """
    context = context_of(log, settings, SystemClock(), telemetry.outage)
    telemetry.watch(context.playbooks.view, context.labels, context.feed)
    app = build(context)
    for mount in mounts:
        mount(app, context)

    def ready(address: str) -> None:
        if settings.worker.ready_file is not None:
            settings.worker.ready_file.write_text(address)

    await serve(context, stop, app=app, on_ready=ready, on_turn=telemetry.on_turn)
