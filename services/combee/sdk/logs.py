"""Logging of the SDK through the standard library, as part of other programs; each problem is logged once."""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# The SDK alone does not install structlog, and the agent's own logging should apply.
logger: Final = logging.getLogger("combee")  # noqa: TID251 - see above


THREAD = "combee-sdk"
"""Name of the threads on which clients work."""
OUTAGE_S = 60.0
"""Seconds from one line about an outage to the next."""


class LogOnce:
    """Logs a problem when it begins, and again only after it was over."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._away: set[str] = set()
        self._outage_told_s = -math.inf
        self._is_outage_told = False

    def outage(self, what: str, error: object) -> None:
        """Log that sending or reading (``what``) has no answer; one line a minute for both."""
        self._away.add(what)
        now_s = time.monotonic()
        if now_s - self._outage_told_s >= OUTAGE_S:
            self._outage_told_s, self._is_outage_told = now_s, True
            logger.warning(
                "no answer for now: messages are kept and sent later, the known playbooks stay: %s", error
            )

    def answered(self, what: str) -> None:
        """Log the end of an outage that was logged."""
        self._away.discard(what)
        if self._is_outage_told and not self._away:
            self._is_outage_told = False
            logger.warning("the deployment answers again")

    def warn(self, trouble: str, message: str, *details: object) -> None:
        """Log a warning unless this problem was logged already."""
        if trouble not in self._logged:
            self._logged.add(trouble)
            logger.warning(message, *details)

    def over(self, trouble: str, message: str, *details: object) -> None:
        """Log that a problem is over, if it was logged."""
        if trouble in self._logged:
            self._logged.discard(trouble)
            logger.warning(message, *details)


def _is_news(record: logging.LogRecord) -> bool:  # noqa: ARG001 - the filter's own signature
    """Drop a library's line about a client's connection: it comes for every attempt, and the client reports it."""
    return threading.current_thread().name != THREAD or logger.isEnabledFor(logging.DEBUG)


def quiet(library: str) -> None:
    """Drop the lines that a library logs on threads of clients; what the program itself does with it stays loud."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == library]:
        logging.getLogger(name).addFilter(_is_news)  # noqa: TID251 - see above


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Log exceptions of the block instead of raising them, so that the agent continues."""
    try:
        yield
    except Exception:
        logger.exception("%s; the agent continues", what)
