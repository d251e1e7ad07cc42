"""Running the stand-in as a server on loopback: in this process, or until it is told to stop."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn

from combee.ports import Clock, FatalError
from combee.sim.server.standin import CallLog, SimOptions, StandIn
from combee.sim.server.web import Web

STOP_WITHIN_S = 5.0
BACKLOG = 1024


class WallClock:
    """The ``Clock`` port of the server's own process."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: who runs it decides what a signal means."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def running(options: SimOptions, *, clock: Clock | None = None) -> AsyncIterator[str]:
    """Run a stand-in while the context is open; yields the base URL for clients (ends in ``/v1``).

    Raises
    ------
    FatalError
        If the address is taken or not on loopback.
    """
    stopping = asyncio.Event()
    with contextlib.closing(_bind(options)) as listening, CallLog(options.call_log) as log:
        stand_in = StandIn(options, clock or WallClock(), log)
        server = _Server(_config(Web(stand_in, stopping)))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        host, port = listening.getsockname()[:2]
        try:
            # The socket listens already, so a client that is faster than uvicorn only queues.
            yield f"http://{host}:{port}/v1"
        finally:
            stopping.set()
            server.should_exit = True
            await asyncio.wait_for(serving, STOP_WITHIN_S)


async def serve(options: SimOptions, *, on_ready: Callable[[str], None]) -> None:
    """Run a stand-in until SIGTERM, SIGINT or cancellation; ``on_ready`` gets the base URL."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, told.set)
    try:
        async with running(options) as base_url:
            on_ready(base_url)
            await told.wait()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _config(web: Web) -> uvicorn.Config:
    return uvicorn.Config(
        web.app(),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(STOP_WITHIN_S) - 1,
    )


def _bind(options: SimOptions) -> socket.socket:
    if not ipaddress.ip_address(options.host).is_loopback:
        raise FatalError(f"the stand-in model serves on loopback only, not on {options.host}")
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off; else each reply waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise FatalError(
            f"{options.host}:{options.port} cannot be used ({error.strerror}); choose another port"
        ) from error
    return listening
