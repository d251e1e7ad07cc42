"""A traced agent that learns. Needs "combee up --simulated" with combee[otel] (a simulation). Argument: its URL."""

import json
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from combee import Client

AGENT = {"gen_ai.operation.name": "invoke_agent", "combee.playbook": "support/refunds"}


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


address = sys.argv[1] if sys.argv[1:] else Client().address
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/otlp/v1/traces")))
within = provider.get_tracer("shop").start_as_current_span
for order in range(1, 5):
    with within("invoke_agent refunder", attributes=AGENT) as run:  # what an instrumentation does for you
        with within("chat", attributes={"gen_ai.operation.name": "chat"}) as call:
            call.set_attribute("gen_ai.input.messages", messages("user", f"Refund order {order}?"))
            call.set_attribute("gen_ai.output.messages", messages("assistant", "Refunded 120."))
        run.set_attribute("combee.success", value=False)  # what your own checks say
        run.set_attribute("combee.feedback", "Refunds above 100.00 need a manager's approval.")
provider.shutdown()
