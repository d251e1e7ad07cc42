"""Stopping a process: in good order if it can, in any case in time."""

import asyncio
import os
import signal
import threading

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


def _end() -> None:
    logger.error("not_stopped_in_time", remedy="nothing is lost; is the broker away?")
    os._exit(TOO_LATE)
