"""The SDK's log: the standard one, because it runs in programs of others, and says each trouble once."""

import logging
from typing import Final

# structlog is not installed where only the SDK is, and an agent's own logging should decide.
logger: Final = logging.getLogger("combee")  # noqa: TID251 - see above


class Once:
    """Says a trouble when it begins, and again only after it was over."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, trouble: str, message: str, *details: object) -> None:
        """Log a warning unless this trouble was told already."""
        if trouble not in self._said:
            self._said.add(trouble)
            logger.warning(message, *details)

    def over(self, trouble: str, message: str, *details: object) -> None:
        """Log that a trouble is over, if it had begun."""
        if trouble in self._said:
            self._said.discard(trouble)
            logger.warning(message, *details)
