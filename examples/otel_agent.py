"""A traced agent that learns. Needs "combee up --simulated" with combee[otel] (a simulation).

Usage: python examples/otel_agent.py [GATEWAY]    else the exporter's own variables, else what runs on this machine
"""

import json
import os
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from combee import Client

VARIABLES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
AGENT = {"gen_ai.operation.name": "invoke_agent", "combee.playbook": "support/refunds"}


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


if sys.argv[1:] or not any(map(os.environ.get, VARIABLES)):
    address = sys.argv[1] if sys.argv[1:] else Client().address
    exporter = OTLPSpanExporter(f"{address}/v1/otlp/v1/traces")
else:
    exporter = OTLPSpanExporter()  # which reads its own variables
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
within = provider.get_tracer("shop").start_as_current_span
for order in range(1, 5):
    with within("invoke_agent refunder", attributes=AGENT) as run:  # what an instrumentation does for you
        with within("chat", attributes={"gen_ai.operation.name": "chat"}) as call:
            call.set_attribute("gen_ai.input.messages", messages("user", f"Refund order {order}?"))
            call.set_attribute("gen_ai.output.messages", messages("assistant", "Refunded 120."))
        run.set_attribute("combee.success", value=False)  # what your own checks say
        run.set_attribute("combee.feedback", "This shop refunds more than 100.00 only with a manager's approval.")
provider.shutdown()
