"""Outages: whether the log answers, and the log lines while it does not."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from combee.adapters.ports import Clock, ConfigurationError, TransientError

logger = structlog.get_logger()

ASK_S, ASK_AGAIN_S = 2.0, 0.5
"""Seconds between two checks of the log, while it answers and while it does not."""


class OutageMonitor:
    """Checks whether the log answers, and logs (once a minute, see ``logs``) while it does not.

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
        """Check for ever.

        Raises
        ------
        ConfigurationError
            If the log refuses this process before its first answer; a later refusal is waited out.
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
