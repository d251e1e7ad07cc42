"""A separate thread with an event loop for everything that takes time; closed when the program ends."""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its exit hook must be registered first, so that ours runs before it
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from combee.sdk.logs import THREAD

T = TypeVar("T")

STOP_S = 5.0
MAX_CANCEL_ROUNDS = 3
"""Maximum number of cancellations: a client that is cancelled while connecting starts further tasks to clean up."""


class Background:
    """A daemon thread that runs one event loop for all work of a client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            for _ in range(MAX_CANCEL_ROUNDS):
                self._end_tasks()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _end_tasks(self) -> None:
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the thread; its future may be awaited or wrapped by another loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the thread soon; do nothing after the end."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the thread, where waiting would never end."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Cancel running tasks and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)


AT_EXIT_S = 5.0


class Closable(Protocol):
    """A client that is closed when the program ends."""

    def shut_down(self, timeout_s: float) -> object:
        """Close, within ``timeout_s`` (s)."""


_open: Final["weakref.WeakSet[Closable]"] = weakref.WeakSet()


def close_at_exit(client: Closable) -> None:
    """Close a client when the program ends, unless it was closed before."""
    if not _open:
        # Looking up a broker's name needs the standard thread pools, and those end before ``atexit`` runs.
        register: Callable[[Callable[[], None]], object] = getattr(
            threading, "_register_atexit", atexit.register
        )
        register(_close)
    _open.add(client)


def _close() -> None:
    for client in list(_open):
        client.shut_down(AT_EXIT_S)
