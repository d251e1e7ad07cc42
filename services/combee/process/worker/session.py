"""The life of a process: sessions that restart after errors, and an orderly stop within a time limit."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from combee.adapters.ports import Clock, FatalError, FencedError, TransientError

logger = structlog.get_logger()

RETRY_S = 0.5
FENCED_WINDOW_S = 60.0
FENCED_LIMIT = 10
TOO_LATE = 1
"""Exit code of a process that exceeded the time limit of its stop."""


async def at_once() -> None:
    """Wait for nothing."""


async def run_sessions(
    name: str,
    session: Callable[[asyncio.Event], Awaitable[None]],
    stop: asyncio.Event,
    clock: Clock,
    on_restart: Callable[[str], None] = lambda _reason: None,
    log_answers: Callable[[], Awaitable[None]] = at_once,
) -> None:
    """Run sessions until ``stop``, each after ``log_answers``; ``on_restart`` gets the reason why one ended.

    An error ends a session; the next one restores itself from the log.

    Raises
    ------
    FatalError
        If it is fenced again and again: two processes claim the same work.
    """
    fenced: list[float] = []
    while not stop.is_set() and await unless(stop, log_answers()):
        try:
            await session(stop)
        except FencedError as error:
            fenced = [at for at in fenced if at > clock.monotonic() - FENCED_WINDOW_S] + [clock.monotonic()]
            logger.warning("fenced", service=name, error=str(error), times=len(fenced))
            on_restart("fenced")
            if len(fenced) >= FENCED_LIMIT:
                raise FatalError(
                    f"{name} was fenced {len(fenced)} times in {FENCED_WINDOW_S:.0f} s: two deployments use the"
                    " same topic prefix and group; give one of them another COMBEE_TOPIC_PREFIX"
                ) from error
        except (TransientError, TimeoutError) as error:
            reason = str(error) or "something took too long"
            logger.warning("log_unavailable", service=name, error=reason)
            on_restart("transient")
        if not stop.is_set():
            await asyncio.sleep(RETRY_S)


# ---- stopping


def stop_on_signals(stop: asyncio.Event, *, within_s: float) -> None:
    """Set ``stop`` on SIGTERM or SIGINT; a process that has not ended ``within_s`` later is ended.

    A client library may wait for ever for a broker that is gone, even when cancelled. A hard end loses nothing: every
    crash test does the same.
    """
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        timer = threading.Timer(within_s, _end)
        timer.daemon = True
        timer.start()

    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, on_signal)


async def unless(stop: asyncio.Event, work: Awaitable[None]) -> bool:
    """Wait for ``work`` or ``stop``; return whether the work was done."""
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


async def first_of(*events: asyncio.Event, within_s: float) -> None:
    """Wait until one of the events is set, or the time is over."""
    if any(event.is_set() for event in events):
        return
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _end() -> None:
    logger.error("not_stopped_in_time", remedy="nothing is lost; is the broker away?")
    os._exit(TOO_LATE)


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one ends; the others are cancelled, its error is raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
