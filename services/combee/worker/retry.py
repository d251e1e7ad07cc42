"""Retries: work goes on when the log is back, however long it was away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina
import structlog

from combee.ports import Clock, ConfigurationError, FencedError, Log, Outgoing, TransientError

logger = structlog.get_logger()
T = TypeVar("T")

LONGEST_WAIT_S = 3.0
"""Between two attempts: the log's return is noticed within five seconds."""
ASK_S, ASK_AGAIN_S = 2.0, 0.5
"""How often the log is asked whether it answers, and how often while it does not."""


class OutageMonitor:
    """Whether the log answers: asked all the time, and said (once a minute, see ``logs``) while it does not.

    ``ask`` returns when the log has answered; ``where`` is its address.
    """

    def __init__(self, ask: Callable[[], Awaitable[None]], clock: Clock, *, service: str, where: str) -> None:
        self._ask = ask
        self._clock = clock
        self._service = service
        self._where = where
        self._why = "it has not been asked yet"
        self._since = clock.monotonic()
        self._answering = asyncio.Event()
        self._answered = False

    def outage(self) -> str | None:
        """Return why the log cannot be used now, for people; None while it answers."""
        if self._answering.is_set():
            return None
        since_s = self._clock.monotonic() - self._since
        return f"waiting for Kafka at {self._where} for {since_s:.0f} s ({self._why})"

    async def answers(self) -> None:
        """Wait until the log answers."""
        await self._answering.wait()

    async def run(self) -> None:
        """Ask for ever.

        Raises
        ------
        ConfigurationError
            If the log refuses this process before it has ever answered; later, that is waited for, too.
        """
        while True:
            try:
                await self._ask()
            except ConfigurationError as error:
                if not self._answered:
                    raise
                self._unavailable(str(error))
            except TransientError as error:
                self._unavailable(str(error))
            else:
                self._available()
            await asyncio.sleep(ASK_S if self._answering.is_set() else ASK_AGAIN_S)

    def _unavailable(self, why: str) -> None:
        if self._answering.is_set():
            self._since = self._clock.monotonic()
            self._answering.clear()
        self._why = why
        logger.warning("log_unavailable", service=self._service, error=self.outage())

    def _available(self) -> None:
        if self._answered and not self._answering.is_set():
            away_s = round(self._clock.monotonic() - self._since, 1)
            logger.warning("log_available", service=self._service, after_s=away_s)
        self._answered = True
        self._answering.set()


RETRIABLE = (TransientError, FencedError)
"""Who owns no transactional id has nothing that a newer owner could take over."""


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Return what ``work`` returns, tried again until it raises no retriable error."""
    try:
        # By itself: what keeps count of attempts costs more than handling a record, and mostly one is enough.
        return await work()
    except RETRIABLE as error:
        failed = error
    async for attempt in stamina.retry_context(
        on=RETRIABLE, attempts=None, timeout=None, wait_initial=0.2, wait_max=LONGEST_WAIT_S
    ):
        with attempt:
            if attempt.num == 1:
                raise failed
            return await work()
    raise AssertionError("stamina ends with a result or an error")


async def write(log: Log, *outgoing: Outgoing) -> None:
    """Write records until they are acknowledged: what a model was asked for is not asked for again.

    A record whose acknowledgement was lost is there twice; its id makes the second one a repeat.
    """
    await retried(lambda: log.produce(*outgoing))
