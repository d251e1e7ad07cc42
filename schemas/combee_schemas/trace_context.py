"""W3C Trace Context in the headers of records: in which span a record was written. No service decides by it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from combee_schemas.records import Headers, Outgoing, Record, header

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
SCOPE = "combee"
"""What wrote our own spans, in OpenTelemetry's words: agents' spans are learned from, these are not."""
MOST_STATE_BYTES = 512
"""What W3C asks everybody to carry; a longer one is left out, as it allows."""
VERSION_00 = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE = re.compile(rf"[\x20-\x7e]{{0,{MOST_STATE_BYTES}}}")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span, as other processes know it."""

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The trace, in hexadecimal."""
        return self.traceparent.split("-")[1]

    @property
    def span_id(self) -> str:
        """The span in it, in hexadecimal."""
        return self.traceparent.split("-")[2]

    @property
    def flags(self) -> int:
        """The trace's flags; the lowest bit: it is recorded."""
        return int(self.traceparent.split("-")[3], 16)

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return it as headers of a record."""
        parent = (TRACEPARENT, self.traceparent.encode())
        return (parent, (TRACESTATE, self.tracestate.encode())) if self.tracestate else (parent,)


def trace_context(headers: Headers) -> TraceContext | None:
    """Return the context that headers name; None: they name none, or what is not one of version 00."""
    parent, state = (
        (header(headers, name) or b"").decode("ascii", errors="replace") for name in (TRACEPARENT, TRACESTATE)
    )
    if not VERSION_00.fullmatch(parent):
        return None
    return TraceContext(parent, state if STATE.fullmatch(state) else "")


def with_trace_context(outgoing: Outgoing, context: TraceContext | None) -> Outgoing:
    """Return a record that names this context instead of the one it names; None: as it is."""
    if context is None:
        return outgoing
    others = (header for header in outgoing.headers if header[0] not in {TRACEPARENT, TRACESTATE})
    return replace(outgoing, headers=(*others, *context.headers()))


def context_of(record: Record) -> TraceContext | None:
    """Return the context that a record was written in."""
    return trace_context(record.headers) if record.headers else None


def parent_of_all(contexts: Sequence[TraceContext]) -> TraceContext | None:
    """Return what a span that many led to is below: the first of them if all are of one trace; None: of none."""
    return contexts[0] if len({context.trace_id for context in contexts}) == 1 else None
