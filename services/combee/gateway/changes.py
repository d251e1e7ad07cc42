"""One signal for many waiters: something changed, look again."""

import asyncio
from contextlib import suppress


class Changes:
    """Waiters that look first and wait then miss nothing: ``seen`` is taken before the look."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def seen(self) -> asyncio.Event:
        """The signal of the next change; take it *before* looking."""
        return self._event

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seen: asyncio.Event, timeout_s: float) -> None:
        """Wait for the next change after ``seen`` was taken, ``timeout_s`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await seen.wait()
