"""Requests are spans below their callers', and what they write names them in its headers."""

import pytest
from fastapi import FastAPI
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Tracer

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.opentelemetry.spans import OtelTracing
from combee.core.text.redact import redacted
from combee.gateway.app import build
from combee.gateway.context import Context
from combee.process.telemetry.counted import CountedLog
from combee.process.telemetry.telemetry import Telemetry
from combee.sdk import AsyncClient
from combee_schemas import topics
from combee_schemas.trace_context import context_of
from support.gateway import CONFIGURED, READER, asked, bearer, served
from support.ledger import read_all

NAME = "support/refunds"


class Traced:
    """A gateway's telemetry with spans, and an agent's tracer."""

    def __init__(self) -> None:
        self._ended = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self.agent: Tracer = provider.get_tracer("agent")
        self.telemetry = Telemetry(
            "gateway", None, tracing=OtelTracing(provider.get_tracer("combee"), redacted)
        )

    def application(self, context: Context) -> FastAPI:
        return build(context, self.telemetry)

    def requests(self) -> list[ReadableSpan]:
        return [span for span in self._ended.get_finished_spans() if span.kind is SpanKind.SERVER]


@pytest.fixture
def traced() -> Traced:
    return Traced()


async def test_one_trace_leads_from_the_agent_through_the_gateway_into_the_log(traced: Traced) -> None:
    log = MemoryLog(SystemClock())
    seen = CountedLog(log, lambda _: None, traced.telemetry.tracing)
    async with served(seen, traced.application) as (address, _), AsyncClient(address) as client:
        with traced.agent.start_as_current_span("run") as run:
            client.publish(playbook=NAME, key_insight="x")
        assert (await client.flush()).is_complete
    (request,) = [span for span in traced.requests() if span.name == "POST"]
    assert request.parent is not None
    assert request.parent.span_id == run.get_span_context().span_id
    (record,) = await read_all(log, topics.REFLECTIONS)
    context = context_of(record)
    assert context is not None
    assert (int(context.trace_id, 16), int(context.span_id, 16)) == (
        run.get_span_context().trace_id,
        request.context.span_id,
    )
    assert request.attributes is not None
    assert (request.attributes["http.route"], request.attributes["http.response.status_code"]) == (
        *("/v1/reflections",),
        202,
    )


async def test_a_foreign_header_begins_no_trace_of_ours_and_refuses_nothing(traced: Traced) -> None:
    async with asked(application=traced.application) as gateway:
        for value in ("", "hello", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 4_000):
            answer = await gateway.client.get("/v1/playbooks", headers={"traceparent": value})
            assert answer.status_code == 200
    assert [request.parent for request in traced.requests()] == [None] * 4


async def test_streams_pages_and_spans_that_come_in_are_no_requests_to_be_traced(traced: Traced) -> None:
    async with asked(application=traced.application) as gateway:
        await gateway.client.get("/healthz")
        await gateway.client.get("/nowhere")
        await gateway.client.post("/v1/otlp/v1/traces", json={})
        # Answered at once, but asked for as a stream is: that would be one span for hours.
        await gateway.client.get("/v1/playbooks", headers={"accept": "text/event-stream"})
    assert traced.requests() == []


async def test_a_request_names_its_route_and_nothing_that_it_asked_for(traced: Traced) -> None:
    async with asked(application=traced.application) as gateway:
        await gateway.client.get("/v1/playbooks/secret%2Fname?q=secret")
    (request,) = traced.requests()
    assert "secret" not in request.to_json()


async def test_strangers_make_no_spans(traced: Traced) -> None:
    trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    async with asked(application=traced.application, **CONFIGURED) as gateway:
        for key in ({}, bearer("wrong"), bearer(READER)):
            await gateway.client.get("/v1/playbooks", headers=trace | key)
    assert len(traced.requests()) == 1
