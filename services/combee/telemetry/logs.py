"""Structured logs on standard error; library chatter only from warnings up."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from combee.clock import SystemClock
from combee.ports import Clock

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
AWAY, BACK = "log_unavailable", "log_available"
REPEATED_S = 60.0
"""Everybody who uses the log notices an outage again and again; it is logged so often."""


class OutageRateLimit:
    """Drops the repeats of ``log_unavailable`` within a minute, whoever logs it, until ``log_available``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_at = float("-inf")

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Pass an event on, or raise DropEvent."""
        name, now = event.get("event"), self._clock.monotonic()
        if name == BACK:
            self._next_at = float("-inf")
        elif name == AWAY:
            if now < self._next_at:
                raise structlog.DropEvent
            self._next_at = now + REPEATED_S
        return event


def configure_logs(level: str, *, json: bool, libraries: int = logging.WARNING) -> None:
    """Set up logging once, in the composition root; ``libraries`` is the level from which others are heard."""
    logging.basicConfig(stream=sys.stderr, level=libraries, format="%(message)s")
    # It repeats for each connection and attempt what we say once; what it gives up it raises.
    aiokafka = logging.getLogger("aiokafka")  # noqa: TID251 - theirs, not ours
    aiokafka.setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            OutageRateLimit(SystemClock()),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
