"""Structured logs on standard error; other libraries are logged from warnings on.

As JSON each event is one object on a line: our events, libraries' events, warnings, and the error that ends the
process.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping, Sequence
from types import TracebackType
from typing import Any

import structlog

from combee.adapters.clock import SystemClock
from combee.adapters.ports import Clock
from combee.core.text.forms import printable
from combee.core.text.redact import redacted, redacted_deep

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
AWAY, BACK = "log_unavailable", "log_available"
REPEATED_S = 60.0
"""Minimum seconds between two log lines about one outage: every user of the log notices it again and again."""


class OutageRateLimit:
    """Drops repeats of ``log_unavailable`` within a minute, from any logger, until ``log_available``."""

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


def configure_logs(
    level: str, *, json: bool, libraries: int = logging.WARNING, service: str | None = None
) -> None:
    """Set up logging once, in the composition root; ``libraries`` is the minimum level of other libraries' events.

    Every event names the ``service``, and the playbook and batch if its task is bound to them.
    """
    shared: Sequence[Callable[..., Any]] = [
        structlog.contextvars.merge_contextvars,
        _named(service),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    logging.basicConfig(stream=sys.stderr, level=libraries)
    if json:
        formatter = _rendering_others(shared, renderer)
    else:
        shared, formatter = [*shared, _printable], _LibraryFormatter()
    for handler in logging.getLogger().handlers:  # noqa: TID251 - the root, which libraries use
        handler.setFormatter(formatter)
    # It repeats for each connection and attempt what Combee logs once, and raises its final errors.
    aiokafka = logging.getLogger("aiokafka")  # noqa: TID251 - a library's logger
    aiokafka.setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
    # The same for what it sends: the exporter logs it once (``otlp_not_sent``).
    sdk = logging.getLogger("opentelemetry")  # noqa: TID251 - a library's logger
    sdk.setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
    structlog.configure(
        processors=[OutageRateLimit(SystemClock()), *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


class _LibraryFormatter(logging.Formatter):
    """Formats a library's event as text: without secrets and control sequences, its message on one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return " ".join(record.message.splitlines())

    def format(self, record: logging.LogRecord) -> str:
        return printable(redacted(super().format(record)))


def _named(service: str | None) -> structlog.types.Processor:
    def named(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if service is not None:
            event.setdefault("service", service)
        return event

    return named


def _without_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    clean = redacted_deep(dict(event))
    assert isinstance(clean, dict)  # noqa: S101 - as it was given
    return clean


def _printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove control sequences of a terminal: ids and names of others stand in events."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _rendering_others(
    shared: Sequence[Callable[..., Any]], renderer: structlog.types.Processor
) -> logging.Formatter:
    """Return what renders libraries' events like our own, and render warnings and a final error so, too."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    logging.captureWarnings(capture=True)

    def crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        structlog.get_logger().critical("crashed", exc_info=(kind, error, trace))

    sys.excepthook = crashed
    return formatter
