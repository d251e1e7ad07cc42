"""A lesson with one trace from this agent to the version of the playbook.

Run it with "combee up --simulated" with combee[otel] and OTEL_EXPORTER_OTLP_ENDPOINT (a simulation).
"""

import sys

from opentelemetry.sdk.trace import TracerProvider

from combee import Client

ADDRESS = sys.argv[1] if sys.argv[1:] else None
tracer = TracerProvider().get_tracer("shop")  # yours, with the exporter that you have

with Client(ADDRESS) as client:
    with tracer.start_as_current_span("refund order 7") as span:  # what an instrumentation does for you
        client.publish(playbook="support/refunds", key_insight="Ask for the order number first.")
    client.flush(30)
print(f"look for trace {span.get_span_context().trace_id:032x}")
