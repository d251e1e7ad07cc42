"""A program that ends without closing its client still delivers what it handed over."""

import atexit
import concurrent.futures.thread  # noqa: F401 - its own hook must come first, so that ours runs before it
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

AT_EXIT_S = 5.0


class Closable(Protocol):
    """What is closed when the program ends."""

    def close(self, timeout_s: float) -> object:
        """Close, within ``timeout_s`` (s)."""


_open: Final["weakref.WeakSet[Closable]"] = weakref.WeakSet()


def close_at_exit(one: Closable) -> None:
    """Close this when the program ends, unless somebody did before."""
    if not _open:
        # Looking up a broker's name needs the standard thread pools, and those end before ``atexit`` runs.
        register: Callable[[Callable[[], None]], object] = getattr(
            threading, "_register_atexit", atexit.register
        )
        register(_close)
    _open.add(one)


def _close() -> None:
    for one in list(_open):
        one.close(AT_EXIT_S)
