"""The span in which an agent's own code runs; this module imports nothing of OpenTelemetry.

It stands alone because the SDK loads it, in processes that may have no OpenTelemetry.
"""

import sys
from contextlib import suppress

from combee_schemas.trace_context import TraceContext

API = "opentelemetry.trace"


def current_context() -> TraceContext | None:
    """Return the current span's context if this process has loaded OpenTelemetry, and there is a span."""
    api = sys.modules.get(API)
    if api is None:
        return None
    with suppress(AttributeError):  # another thread may be importing it
        span = api.get_current_span().get_span_context()
        if span.is_valid:
            parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 1:02x}"
            return TraceContext(parent, span.trace_state.to_header())
    return None
