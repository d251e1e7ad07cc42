"""Spans and metrics of real processes on real Kafka, as a receiver of OTLP/HTTP gets them."""

import asyncio
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from combee.sdk.transport import LogTransport
from combee_schemas import topics
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TraceContext
from support.broker import Broker
from support.otlp import OtlpReceiver, otlp_receiver
from support.running import PLAYBOOK, Running, running_stack

AGENT_TRACE, AGENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
AGENT = TraceContext(f"00-{AGENT_TRACE}-{AGENT_SPAN}-01")
DEADLINE_S = 60.0
SERVICES = ("combee-control", "combee-publish", "combee-reflect", "combee-scan", "combee-shuffle")


async def until_version(running: Running) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if await running.messages(topics.HISTORY):
                return
            await asyncio.sleep(0.2)


def chain(receiver: OtlpReceiver, service: str, name: str) -> list[tuple[str, str]]:
    """Return the service and name of a span, and of all that it is below, up to the agent's."""
    by_id: dict[bytes, tuple[str, Span]] = {span.span_id: (sender, span) for sender, span in receiver.spans()}
    ((_, span),) = [(sender, span) for sender, span in receiver.spans(name) if sender == service]
    names = [(service, name)]
    while span.parent_span_id in by_id:
        sender, span = by_id[span.parent_span_id]
        names.append((sender, span.name))
    return [*names, ("agent", span.parent_span_id.hex())]


@pytest.mark.timeout(300)
async def test_one_trace_leads_through_all_services_and_each_sends_its_metrics(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    with otlp_receiver() as receiver:
        where = (kafka.bootstrap_servers, topic_prefix)
        endpoint = receiver.address
        async with running_stack(
            *where, tmp_path, latency="0", batch_size=1, otel_endpoint=endpoint
        ) as running:
            trace = Trace(trace_id="t", playbook=PLAYBOOK, task="a task", answer="forty-two")
            await LogTransport(running.log).send([trace], [AGENT])
            await until_version(running)
        # The services have ended, and each has sent what it had left.
        assert chain(receiver, "combee-publish", "write version") == [
            ("combee-publish", "write version"),
            ("combee-publish", "process updates"),
            ("combee-scan", "process scan.0"),
            ("combee-shuffle", "batch"),
            ("combee-reflect", "process traces"),
            ("agent", AGENT_SPAN),
        ]
        assert {span.trace_id.hex() for _, span in receiver.spans("write version")} == {AGENT_TRACE}
        assert {service for service, _ in receiver.spans() if service.startswith("combee-")} >= set(
            SERVICES[1:]
        )
        for service in SERVICES:
            assert {"combee_build_info", "combee_lag_records"} <= receiver.metrics(service), service
