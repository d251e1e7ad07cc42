"""One process's spans, in batches, and metrics, periodically, by OTLP/HTTP, each on a thread of its own.

If the receiver is away, one log line is written and unsent data is lost: the queue is bounded, and nothing waits.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from combee.adapters.opentelemetry.metrics import Collect, Period, metrics_data
from combee.adapters.opentelemetry.spans import OtelTracing
from combee_schemas.trace_context import SCOPE

logger = structlog.get_logger()
R = TypeVar("R", SpanExportResult, MetricExportResult)

CLOSE_S = 3.0
"""Maximum seconds to send the remaining data at the end; the rest is lost."""


class _Delivery:
    """Logs once when a receiver stops accepting data, and once when it accepts data again."""

    def __init__(self, what: str, endpoint: str) -> None:
        self._what = what
        self._endpoint = endpoint
        self._fails = False

    def ended(self, result: R) -> R:
        """Record a result, and return it."""
        fails = result.name != "SUCCESS"
        if fails and not self._fails:
            logger.warning(
                "otlp_not_sent", what=self._what, endpoint=self._endpoint, remedy="COMBEE_OTEL_ENDPOINT"
            )
        elif self._fails and not fails:
            logger.info("otlp_sent_again", what=self._what, endpoint=self._endpoint)
        self._fails = fails
        return result


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(f"{endpoint}/v1/traces")
        self._delivery = _Delivery("spans", endpoint)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._delivery.ended(super().export(spans))


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(f"{endpoint}/v1/metrics")
        self._delivery = _Delivery("metrics", endpoint)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        return self._delivery.ended(super().export(metrics_data, timeout_millis, **kwargs))


class Sending:
    """Spans and metrics of one process; the standard ``OTEL_*`` variables shape both."""

    def __init__(
        self, endpoint: str, *, service: str, instance: str, version: str, redact: Callable[[str], str]
    ) -> None:
        named = {
            "service.name": f"combee-{service}",
            "service.instance.id": instance,
            "service.version": version,
        }
        self._resource = Resource.create(named)
        self._endpoint = endpoint.rstrip("/")
        self._spans = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._spans.add_span_processor(BatchSpanProcessor(_SpanExporter(self._endpoint)))
        self.tracing = OtelTracing(self._spans.get_tracer(SCOPE, version), redact)
        self._sources: list[Collect] = []
        self._metrics: PeriodicExportingMetricReader | None = None

    def export(self, collect: Collect) -> None:
        """From now on send these metrics, too; ``collect`` is called on another thread."""
        self._sources.append(collect)
        if self._metrics is not None:
            return
        self._metrics = PeriodicExportingMetricReader(_MetricExporter(self._endpoint))
        start = time.time_ns()

        def collected(*_: object, **__: object) -> MetricsData:
            families = (family for source in self._sources for family in source())
            return metrics_data(families, self._resource, Period(start, time.time_ns()))

        # A MeterProvider would do this, but with instruments instead of a registry.
        self._metrics._set_collect_callback(collected)  # noqa: SLF001 - there is no other way to feed a reader

    def flush(self) -> None:
        """Send the waiting spans, and wait until they are sent."""
        self._spans.force_flush()

    def close(self) -> None:
        """Send the remaining data within ``CLOSE_S``."""
        metrics = [self._metrics.shutdown] if self._metrics else []
        _within(CLOSE_S, [self._spans.shutdown, *metrics])


def _within(seconds: float, work: Sequence[Callable[[], object]]) -> None:
    """Call functions in parallel threads and wait at most this long."""
    threads = [threading.Thread(target=target, daemon=True) for target in work]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
