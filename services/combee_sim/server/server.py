"""The stand-in as a server on loopback: in this process, or until stopped."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn

from combee.adapters.ports import FatalError
from combee.process.server import STOP_WITHIN_S, Server, bind, write_ready_file
from combee_sim.server.standin import CallLog, SimOptions, StandIn
from combee_sim.server.web import Web


class WallClock:
    """The ``Clock`` port of the server's own process."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@contextlib.asynccontextmanager
async def running(options: SimOptions) -> AsyncIterator[str]:
    """Run a stand-in while the context is open; yields the base URL for clients (ends in ``/v1``).

    Raises
    ------
    FatalError
        If the address is taken or not on loopback.
    """
    stopping = asyncio.Event()
    with contextlib.closing(_bind(options)) as listening, CallLog(options.call_log) as log:
        stand_in = StandIn(options, WallClock(), log)
        server = Server(_config(Web(stand_in, stopping)))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        host, port = listening.getsockname()[:2]
        try:
            # The socket already listens, so a client that is faster than uvicorn only queues.
            yield f"http://{host}:{port}/v1"
        finally:
            stopping.set()
            server.should_exit = True
            await asyncio.wait_for(serving, STOP_WITHIN_S)


async def serve(
    options: SimOptions, *, on_ready: Callable[[str], None], ready_file: Path | None = None
) -> None:
    """Run a stand-in until SIGTERM, SIGINT or cancellation; ``on_ready`` and the file get the base URL."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(options) as base_url:
            on_ready(base_url)
            write_ready_file(ready_file, base_url)
            await stop.wait()
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
    return bind(options.host, options.port, "choose another port")
