"""Sessions of transactional services: trouble ends one, the next restores itself from the log."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from combee.ports import Clock, FatalError, FencedError, TransientError
from combee.worker.stopping import unless

logger = structlog.get_logger()

RETRY_S = 0.5
FENCED_WINDOW_S = 60.0
FENCED_LIMIT = 10


async def at_once() -> None:
    """Wait for nothing."""


async def run_sessions(
    name: str,
    session: Callable[[asyncio.Event], Awaitable[None]],
    stop: asyncio.Event,
    clock: Clock,
    on_restart: Callable[[str], None] = lambda _reason: None,
    back: Callable[[], Awaitable[None]] = at_once,
) -> None:
    """Run ``session`` until ``stop``, each after ``back``; ``on_restart`` hears why one ended.

    Raises
    ------
    FatalError
        If it is fenced again and again: two processes claim the same work.
    """
    fenced: list[float] = []
    while not stop.is_set() and await unless(stop, back()):
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
