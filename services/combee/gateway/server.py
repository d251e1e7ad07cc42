"""The gateway's server: bind, run, and stop in a way that ends open streams properly."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, Log
from combee.core.names.sources import NOBODY, KnownSources
from combee.gateway.access.connections import Connections, guarded
from combee.gateway.access.keys import Keyring
from combee.gateway.access.throttle import MAX_LOGGED
from combee.gateway.app import build
from combee.gateway.context import Context, context_of
from combee.process.server import STOP_WITHIN_S, Server, bind, is_loopback, write_ready_file
from combee.process.settings.gateway import GatewaySettings, listed
from combee.process.settings.loading import Settings
from combee.process.telemetry.telemetry import Telemetry
from combee.process.worker.session import unless

logger = structlog.get_logger()

REMEDY = "set COMBEE_GATEWAY_HOST and COMBEE_GATEWAY_PORT"
CURRENT_S = 60.0
TURN_S = 1.0


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, context: Context) -> AsyncIterator[str]:
    """Serve an application while the context is open; yields its base address.

    Raises
    ------
    FatalError
        If the address cannot be used, or is open to other machines without keys.
    """
    settings, limits = context.settings.gateway, context.limits
    check_bind(settings, context.keys)
    proxies = listed(settings.gateway_proxies)
    connections = Connections(limits, proxies)
    _raise_open_files()
    with contextlib.closing(bind(settings.gateway_host, settings.gateway_port, REMEDY)) as bound:
        server = Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="error",  # strangers' errors are counted, and logged once a second
                access_log=False,
                server_header=False,
                # Always h11: httptools, if installed, limits neither headers nor trailers.
                http=guarded(connections, limits),
                h11_max_incomplete_event_size=limits.max_head_bytes,
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                timeout_graceful_shutdown=int(STOP_WITHIN_S) - 1,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        watching = asyncio.create_task(_watch(context, connections))
        try:
            # The socket listens already, so a client that connects before uvicorn is ready only queues.
            yield address(bound)
        finally:
            context.stopping.set()
            context.feed.changed.notify()
            context.changed.notify()
            server.should_exit = True
            watching.cancel()
            await _ended([serving, watching])


async def _watch(context: Context, connections: Connections) -> None:
    """Every second, close the connections of removed keys and log refused requests in one line."""
    while True:
        now_ms = context.clock.now_ms()
        context.keys.refresh(now_ms)
        connections.turn(lambda caller: context.keys.holds(caller, context.clock.now_ms()))
        if refused := context.throttle.take_refused():
            worst = dict(refused.most_common(MAX_LOGGED))
            logger.warning("keys_refused", refused=refused.total(), addresses=len(refused), worst=worst)
        await asyncio.sleep(TURN_S)


def _raise_open_files() -> None:
    """Raise the limit of open files to the machine's: a connection is one, and many systems begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(
    context: Context,
    stop: asyncio.Event,
    *,
    app: ASGIApp | None = None,
    on_ready: Callable[[str], None] = lambda _address: None,
    on_turn: Callable[[], None] = lambda: None,
) -> None:
    """Keep the context current and serve until ``stop``.

    ``on_ready`` gets the address once reads are answered; ``on_turn`` is called every second afterwards.

    Raises
    ------
    FatalError
        As ``listening``, or if the log's topics are wrong.
    """
    work = [
        asyncio.create_task(coroutine)
        for coroutine in (*context.work(), _serving(context, stop, app, on_ready, on_turn))
    ]
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await _ended(work)
    for task in done:
        task.result()


async def _ended(work: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for tasks to end, with a limit, as a library may swallow its cancellation."""
    _, late = await asyncio.wait(work, timeout=STOP_WITHIN_S)
    for task in late:
        logger.warning("ends_late", task=str(task.get_coro()))
        task.cancel()


async def _serving(
    context: Context,
    stop: asyncio.Event,
    app: ASGIApp | None,
    on_ready: Callable[[str], None],
    on_turn: Callable[[], None],
) -> None:
    async with listening(app or build(context), context) as where:
        await _current(context, stop)
        if not stop.is_set():
            on_ready(where)
            logger.info("serving", service="gateway", address=where)
        while not stop.is_set():
            on_turn()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await stop.wait()


async def _current(context: Context, stop: asyncio.Event) -> None:
    """Wait without limit until everything is read or the server stops; requests get 503 meanwhile."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await unless(stop, context.wait_current(CURRENT_S))
            return
        logger.warning("not_current_yet", service="gateway", seconds=CURRENT_S)


def check_bind(settings: GatewaySettings, keys: Keyring) -> None:
    """Refuse to open the gateway to others without keys.

    Raises
    ------
    FatalError
        If the address is not on loopback and no keys are configured.
    """
    host = settings.gateway_host
    try:
        is_open = not is_loopback(host)
    except ValueError as error:
        raise FatalError(f"COMBEE_GATEWAY_HOST is {host!r}: give an address, or localhost") from error
    if is_open and keys.anybody is not None:
        raise FatalError(
            f"the gateway would be open to every client that reaches {host}: set COMBEE_GATEWAY_KEYS or"
            " COMBEE_GATEWAY_KEYS_FILE (docs/guide/http.md), or listen on 127.0.0.1"
        )


def address(bound: socket.socket) -> str:
    """Return the base address of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


Mount = Callable[[FastAPI, Context], None]


async def run(
    log: Log,
    settings: Settings,
    stop: asyncio.Event,
    telemetry: Telemetry,
    mounts: Sequence[Mount] = (),
    sources: Callable[[], KnownSources] = lambda: NOBODY,
) -> None:
    """Serve until ``stop``; ``mounts`` add the dashboard. The ready file holds the address.

    Raises
    ------
    FatalError
        If the settings forbid serving or the address cannot be used.
    """
    context = context_of(log, settings, SystemClock(), telemetry.outage, sources=sources)
    telemetry.watch(context.playbooks.view, context.labels, context.feed)
    app = build(context, telemetry)
    for mount in mounts:
        mount(app, context)

    def ready(address: str) -> None:
        write_ready_file(settings.worker.ready_file, address)

    await serve(context, stop, app=app, on_ready=ready, on_turn=telemetry.on_turn)
