"""Logging of the SDK through the standard library, as part of other programs; each problem is logged once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# The SDK alone does not install structlog, and the agent's own logging should apply.
logger: Final = logging.getLogger("combee")  # noqa: TID251 - see above


class LogOnce:
    """Logs a problem when it begins, and again only after it was over."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

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


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Log exceptions of the block instead of raising them, so that the agent continues."""
    try:
        yield
    except Exception:
        logger.exception("%s; the agent continues", what)
