"""Draining: what waits is interrupted, what has a reply under way is not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee.ports import DrainingError


class Errand:
    """One question, as the drain sees it: waiting, or with a call under way."""

    def __init__(self, drain: "Drain", scope: asyncio.Timeout) -> None:
        self._drain = drain
        self._scope = scope
        self._under_way = False

    def call(self) -> None:
        """Start a call: from here on the drain waits for it. DrainingError: it is too late."""
        self._drain.refuse()
        self._under_way = True

    def wait(self) -> None:
        """Go back to waiting, for another attempt. DrainingError: there will be none."""
        self._under_way = False
        self._drain.refuse()

    def interrupt(self) -> None:
        """End the wait."""
        if not self._under_way:
            self._scope.reschedule(asyncio.get_running_loop().time())


class Drain:
    """Which questions are open, and whether another call may start."""

    def __init__(self) -> None:
        self._started = False
        self._open: set[Errand] = set()

    def start(self) -> None:
        """Start no further call."""
        self._started = True
        for errand in self._open:
            errand.interrupt()

    def refuse(self) -> None:
        """Raise DrainingError once the drain has started."""
        if self._started:
            raise DrainingError("the worker is stopping; the next one asks again")

    @asynccontextmanager
    async def errand(self) -> AsyncIterator[Errand]:
        """Open a question."""
        self.refuse()
        # A time-out without a time is an interruption that asyncio already keeps apart from the caller's.
        scope = asyncio.timeout(None)
        try:
            async with scope:
                errand = Errand(self, scope)
                self._open.add(errand)
                try:
                    yield errand
                finally:
                    self._open.discard(errand)
        except TimeoutError:
            if scope.expired():
                self.refuse()
            raise
