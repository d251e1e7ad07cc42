"""Stopping a process: in good order if it can, in any case in time."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable

import structlog

logger = structlog.get_logger()

TOO_LATE = 1
"""Exit code of a process that had to be ended."""


def stop_on_signals(stop: asyncio.Event, *, within_s: float) -> None:
    """Set ``stop`` on SIGTERM or SIGINT; a process that has not ended ``within_s`` later is ended.

    A client library may wait for ever for a broker that is gone, whatever is cancelled. Ending hard is what every
    crash test does: nothing is lost by it.
    """
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        timer = threading.Timer(within_s, _end)
        timer.daemon = True
        timer.start()

    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, told)


async def unless(stop: asyncio.Event, work: Awaitable[None]) -> bool:
    """Wait for ``work``; give it up when told to stop. Return whether it was done."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        return working.done()
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def _end() -> None:
    logger.error("not_stopped_in_time", remedy="nothing is lost; is the broker away?")
    os._exit(TOO_LATE)
