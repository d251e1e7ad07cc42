"""Structured logs on standard error; library chatter only from warnings up."""

import logging
import sys

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(level: str, *, json: bool, libraries: int = logging.WARNING) -> None:
    """Set up logging once, in the composition root; ``libraries`` is the level from which others are heard."""
    logging.basicConfig(stream=sys.stderr, level=libraries, format="%(message)s")
    # It repeats for each connection and attempt what we say once; what it gives up it raises.
    aiokafka = logging.getLogger("aiokafka")  # noqa: TID251 - theirs, not ours
    aiokafka.setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
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
