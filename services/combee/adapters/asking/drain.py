"""Draining: waiting questions are interrupted, calls under way are finished."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee.adapters.ports import DrainingError


class DrainScope:
    """One question to the model: it waits, or has a call under way."""

    def __init__(self, drain: "Drain", waiting: asyncio.Timeout, *, begun: bool = False) -> None:
        self._drain = drain
        self._waiting = waiting
        self._begun = begun
        """Whether the first call may start during a drain."""
        self._under_way = False

    def call(self) -> None:
        """Start a call: from here on the drain waits for it. DrainingError: it is too late."""
        if not self._begun:
            self._drain.refuse()
        self._begun = False
        self._under_way = True

    def wait(self) -> None:
        """Go back to waiting, for another attempt. DrainingError: there will be none."""
        self._under_way = False
        self._drain.refuse()

    def interrupt(self) -> None:
        """End the wait."""
        if not self._under_way:
            self._waiting.reschedule(asyncio.get_running_loop().time())


class Drain:
    """Which questions are open, and whether another call may start."""

    def __init__(self) -> None:
        self._started = False
        self._open: set[DrainScope] = set()

    def start(self) -> None:
        """Start no further call."""
        self._started = True
        for scope in self._open:
            scope.interrupt()

    def refuse(self) -> None:
        """Raise DrainingError once the drain has started."""
        if self._started:
            raise DrainingError("the worker is stopping; the next one asks again")

    @asynccontextmanager
    async def scope(self, *, begun: bool = False) -> AsyncIterator[DrainScope]:
        """Open a question; ``begun``: one call may start even now, since the work has paid for replies already."""
        if not begun:
            self.refuse()
        # A time-out without a time is an interruption that asyncio already keeps apart from the caller's.
        waiting = asyncio.timeout(None)
        try:
            async with waiting:
                scope = DrainScope(self, waiting, begun=begun)
                self._open.add(scope)
                try:
                    yield scope
                finally:
                    self._open.discard(scope)
        except TimeoutError:
            if waiting.expired():
                self.refuse()
            raise
