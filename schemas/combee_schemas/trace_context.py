"""W3C Trace Context in record headers: the span in which a record was written. No decision depends on it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from combee_schemas.records import Headers, Outgoing, Record, header

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
SCOPE = "combee"
"""Instrumentation scope of Combee's own spans: agents' spans are learned from, these are not."""
MAX_STATE_BYTES = 512
"""Minimum size that W3C requires everybody to carry; a longer state is left out, as W3C allows."""
VERSION_00 = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE = re.compile(rf"[\x20-\x7e]{{0,{MAX_STATE_BYTES}}}")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span as other processes know it."""

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The trace id in hexadecimal."""
        return self.traceparent.split("-")[1]

    @property
    def span_id(self) -> str:
        """The span id in hexadecimal."""
        return self.traceparent.split("-")[2]

    @property
    def flags(self) -> int:
        """The trace's flags; the lowest bit means that it is recorded."""
        return int(self.traceparent.split("-")[3], 16)

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return the context as record headers."""
        parent = (TRACEPARENT, self.traceparent.encode())
        return (parent, (TRACESTATE, self.tracestate.encode())) if self.tracestate else (parent,)


def trace_context(headers: Headers) -> TraceContext | None:
    """Return the context in headers; None: there is none, or it is not of version 00."""
    parent, state = (
        (header(headers, name) or b"").decode("ascii", errors="replace") for name in (TRACEPARENT, TRACESTATE)
    )
    if not VERSION_00.fullmatch(parent):
        return None
    return TraceContext(parent, state if STATE.fullmatch(state) else "")


def with_trace_context(outgoing: Outgoing, context: TraceContext | None) -> Outgoing:
    """Return a record with this context instead of its own; None: unchanged."""
    if context is None:
        return outgoing
    others = (header for header in outgoing.headers if header[0] not in {TRACEPARENT, TRACESTATE})
    return replace(outgoing, headers=(*others, *context.headers()))


def context_of(record: Record) -> TraceContext | None:
    """Return the context that a record was written in."""
    return trace_context(record.headers) if record.headers else None


def parent_of_all(contexts: Sequence[TraceContext]) -> TraceContext | None:
    """Return the parent of a span with several causes: the first cause if all are of one trace; otherwise None."""
    return contexts[0] if len({context.trace_id for context in contexts}) == 1 else None
