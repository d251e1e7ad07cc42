"""Spans by OpenTelemetry's SDK and its conventions for messaging and HTTP."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from combee.adapters.opentelemetry.current import current_context
from combee.adapters.ports import NOTHING_NOTED, DrainingError, Notes, Origin, Outgoing, Record, Tracing
from combee_schemas.records import Headers
from combee_schemas.trace_context import (
    TraceContext,
    context_of,
    parent_of_all,
    trace_context,
    with_trace_context,
)

ROOT = Context()
NS_PER_S = 1_000_000_000
LONGEST_REASON = 500
KAFKA = {
    "messaging.system": "kafka",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}


class OtelTracing(Tracing):
    """The spans of one process; ``redact`` takes secrets out of the reasons of errors."""

    def __init__(self, tracer: Tracer, redact: Callable[[str], str]) -> None:
        self._tracer = tracer
        self._redact = redact

    def context_of(self, record: Record) -> TraceContext | None:
        return context_of(record)

    def stamped(self, outgoing: Outgoing) -> Outgoing:
        return with_trace_context(outgoing, current_context())

    def processing(self, service: str, record: Record) -> AbstractContextManager[object]:
        notes: Notes = {
            **KAFKA,
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "messaging.consumer.group.name": service,
        }
        return self._open(f"process {record.topic}", SpanKind.CONSUMER, notes, _below(context_of(record)))

    @contextmanager
    def gathered(self, name: str, origins: Sequence[Origin], notes: Notes = NOTHING_NOTED) -> Iterator[None]:
        contexts = [origin.context for origin in origins]
        links = [Link(_remote(context)) for context in contexts]
        with self._open(name, SpanKind.CONSUMER, notes, _below(parent_of_all(contexts)), links) as span:
            yield
        # After an error the record is worked on again. Each link leads from its own trace to this one.
        own, now = [Link(span.get_span_context(), notes)], time.time_ns()
        for origin in origins:
            if origin.waited_s is not None:
                since = now - int(origin.waited_s * NS_PER_S)
                below = _below(origin.context)
                self._tracer.start_span(f"wait {name}", below, SpanKind.CONSUMER, notes, own, since).end(now)

    def span(self, name: str, notes: Notes = NOTHING_NOTED) -> AbstractContextManager[object]:
        return self._open(name, SpanKind.INTERNAL, notes)

    def calling(self, name: str, notes: Notes) -> AbstractContextManager[object]:
        return self._open(name, SpanKind.CLIENT, notes)

    def serving(self, name: str, headers: Headers) -> AbstractContextManager[object]:
        return self._open(name, SpanKind.SERVER, NOTHING_NOTED, _below(trace_context(headers)))

    def note(self, notes: Notes) -> None:
        trace.get_current_span().set_attributes(notes)

    def failed(self, reason: str) -> None:
        redacted = self._redact(reason)[:LONGEST_REASON]
        trace.get_current_span().set_status(Status(StatusCode.ERROR, redacted))

    @contextmanager
    def _open(
        self,
        name: str,
        kind: SpanKind,
        notes: Notes,
        context: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[trace.Span]:
        """Open a span in a context, by default the current one; of an error it holds the reason, and no stack."""
        span = self._tracer.start_span(name, context, kind, notes, links)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except DrainingError:
                raise  # the next worker continues
            except Exception as error:
                self.failed(f"{type(error).__name__}: {error}")
                raise


def _remote(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(context.flags),
        trace_state=TraceState.from_header([context.tracestate]),
    )


def _below(parent: TraceContext | None) -> Context:
    """Return the context that makes a span a child of ``parent``; None: the first of a trace."""
    if parent is None:
        return ROOT
    return trace.set_span_in_context(trace.NonRecordingSpan(_remote(parent)), ROOT)
