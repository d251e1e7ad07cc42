"""Spans by OTLP: from the SDK's own exporter to a trace in Kafka, with the keys and limits of the gateway."""

import asyncio
import gzip
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import Tracer
from pydantic_core import to_json
from structlog.testing import capture_logs

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.core.spans import gathering
from combee.core.spans.gathering import SpanRun
from combee.core.spans.reading import trace_from
from combee.gateway import otlp
from combee.gateway.access.keys import ANYBODY
from combee.gateway.endpoints import spans
from combee.gateway.endpoints.spans import Receiver
from combee.gateway.limits import GatewayLimits
from combee.gateway.otlp import decoded
from combee_schemas import topics
from combee_schemas.trace import Trace
from combee_schemas.trace_context import SCOPE, TraceContext, context_of
from support.gateway import CONFIGURED, READER, WRITER, Asked, asked, bearer, served
from support.ledger import read_all
from support.waiting import until

PATH = "/v1/otlp/v1/traces"
PLAYBOOK = "support/refunds"
QUESTION = [{"role": "user", "parts": [{"type": "text", "content": "Refund order 7?"}]}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "Refunded 120."}]}]
TRACE_ID, AGENT_ID, CALL_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


async def traces(log: MemoryLog) -> list[Trace]:
    return [topics.TRACES.read(record) for record in await read_all(log, topics.TRACES)]


@contextmanager
def tracer(
    address: str,
    *,
    key: str = "",
    batched: bool = False,
    compression: Compression = Compression.NoCompression,
) -> Iterator[Tracer]:
    """Yield a tracer as an application has it; every span has been sent in the end."""
    exporter = OTLPSpanExporter(
        f"{address}{PATH}", headers=bearer(key) if key else {}, timeout=5, compression=compression
    )
    provider = TracerProvider(resource=Resource.create({"combee.playbook": PLAYBOOK}))
    provider.add_span_processor((BatchSpanProcessor if batched else SimpleSpanProcessor)(exporter))
    try:
        yield provider.get_tracer("agent")
    finally:
        provider.shutdown()


def agent_runs(traced: Tracer) -> None:
    """Do what an instrumented agent does: two calls, between them a tool that fails."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "refunder"}
    asks, answers = (
        {"gen_ai.operation.name": "chat", **said}
        for said in (
            {"gen_ai.input.messages": json.dumps(QUESTION)},
            {"gen_ai.output.messages": json.dumps(ANSWER)},
        )
    )
    within = traced.start_as_current_span
    with within("GET /refund"), within("invoke_agent refunder", attributes=agent):
        with within("chat m", attributes=asks):
            pass
        with pytest.raises(LookupError):
            tool_fails(traced)
        with within("chat m", attributes=answers):
            pass


def tool_fails(traced: Tracer) -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "paid"}
    with traced.start_as_current_span("execute_tool paid", attributes=tool):
        raise LookupError("no order 7")


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_what_the_sdk_exports_is_one_trace(batched: bool, compression: Compression) -> None:  # noqa: FBT001
    log = MemoryLog(SystemClock())

    def run(address: str) -> None:
        with tracer(address, key=WRITER, batched=batched, compression=compression) as traced:
            agent_runs(traced)

    async with served(log, **CONFIGURED) as (address, _):
        await asyncio.to_thread(run, address)
        (trace,) = await traces(log)

    assert (trace.playbook, trace.agent) == (PLAYBOOK, "refunder")
    assert (trace.task, trace.answer) == ("Refund order 7?", "Refunded 120.")
    assert "failed: LookupError: no order 7" in trace.trajectory
    assert trace.source is not None
    assert trace.source.name == "key:agents"


# ---- by hand


def span(span_id: str, parent: str = "", operation: str = "", **attributes: Any) -> dict[str, Any]:
    named = {"gen_ai.operation.name": operation, **attributes}
    return {
        "traceId": TRACE_ID,
        "spanId": span_id,
        **({"parentSpanId": parent} if parent else {}),
        "name": operation,
        "startTimeUnixNano": "1000000",
        "endTimeUnixNano": "2000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in named.items()],
    }


AGENT = span(AGENT_ID, "", "invoke_agent", **{"combee.playbook": PLAYBOOK})
CALL = span(CALL_ID, AGENT_ID, "chat", **{"gen_ai.input.messages": json.dumps(QUESTION)})


def request(*given: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(given)}]}]}


async def send(gateway: Asked, *given: dict[str, Any], key: str = "") -> Any:
    return await gateway.client.post(PATH, json=request(*given), headers=bearer(key) if key else {})


async def test_json_has_hexadecimal_ids_and_pieces_make_one_trace_however_often_they_come() -> None:
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        for pieces in ((CALL,), (AGENT,), (CALL, AGENT)):
            answer = await send(gateway, *pieces)
            assert (answer.status_code, answer.json()) == (200, {})
        (trace,) = {found.trace_id: found for found in await traces(log)}.values()
    assert trace.trace_id == f"otel-{TRACE_ID}-{AGENT_ID}"
    assert trace.task == "Refund order 7?"


async def test_a_trace_names_the_span_of_the_run_that_it_was_made_of() -> None:
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        await send(gateway, CALL, AGENT)
        assert [context_of(record) for record in await read_all(log, topics.TRACES)] == [
            TraceContext(f"00-{TRACE_ID}-{AGENT_ID}-01")
        ]


async def test_spans_of_our_own_services_teach_nothing() -> None:
    """They call a model to learn: learning from these calls would never end."""
    spans = request(AGENT, CALL)
    spans["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": SCOPE}
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        answer = await gateway.client.post(PATH, json=spans)
        assert (answer.status_code, answer.json()) == (200, {})
        assert await traces(log) == []


def test_what_a_resource_says_is_kept_once_for_all_its_spans() -> None:
    given = request(*(span(f"{at:016x}", AGENT_ID, "chat") for at in range(1, 51)))
    said = {"combee.playbook": PLAYBOOK, "combee.other": "x" * 1_000}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    given["resourceSpans"][0]["resource"] = {"attributes": attributes}
    taken, _ = decoded(json.dumps(given).encode(), "application/json")
    assert all("combee.other" not in span.attributes for span in taken)
    assert {span.attributes["combee.playbook"] for span in taken} == {PLAYBOOK}
    assert len({id(span.attributes["combee.playbook"]) for span in taken}) == 1


async def test_spans_beyond_those_that_a_trace_may_have_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_SPANS", 3)
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        calls = [span(f"{at:016x}", AGENT_ID, "chat") for at in range(1, 6)]
        partial = (await send(gateway, CALL, *calls)).json()["partialSuccess"]
        assert partial["rejectedSpans"] == "3"
        assert "a trace may have at most" in partial["errorMessage"]
        assert (await send(gateway, AGENT)).json() == {}
        (trace,) = await traces(log)
    assert trace.task == "Refund order 7?"


async def test_few_reasons_are_named_however_many_playbooks_are_wrong() -> None:
    async with asked(MemoryLog(SystemClock())) as gateway:
        wrong = [
            span(f"{at:016x}", "f" * 16, "invoke_agent", **{"combee.playbook": f"-{at}"})
            for at in range(1, 40)
        ]
        partial = (await send(gateway, span("f" * 16), *wrong)).json()["partialSuccess"]
        assert partial["rejectedSpans"] == "39"
        assert partial["errorMessage"].count("no playbook's name") == spans.MAX_REASONS


async def test_a_run_without_a_playbook_is_rejected_in_part_and_a_default_takes_it() -> None:
    nameless = span(AGENT_ID, "", "invoke_agent")
    async with asked(MemoryLog(SystemClock())) as gateway:
        partial = (await send(gateway, nameless, CALL)).json()["partialSuccess"]
        assert partial["rejectedSpans"] == "2"
        assert "combee.playbook" in partial["errorMessage"]
    async with asked(log := MemoryLog(SystemClock()), otlp_playbook="shop/rates") as gateway:
        assert (await send(gateway, nameless, CALL)).json() == {}
        (trace,) = await traces(log)
        assert trace.playbook == "shop/rates"


async def test_a_key_writes_only_where_it_may_and_only_with_its_scope() -> None:
    elsewhere = span(AGENT_ID, "", "invoke_agent", **{"combee.playbook": "legal"})
    async with asked(log := MemoryLog(SystemClock()), **CONFIGURED) as gateway:
        assert (await send(gateway, AGENT)).status_code == 401
        assert (await send(gateway, AGENT, key=READER)).status_code == 403
        answer = await send(gateway, elsewhere, CALL, key=WRITER)
        assert "name spaces" in answer.json()["partialSuccess"]["errorMessage"]
        assert await traces(log) == []


async def test_what_waits_too_long_for_its_agent_is_a_run() -> None:
    async with asked(log := MemoryLog(SystemClock()), spans_wait_s=0.01, otlp_playbook=PLAYBOOK) as gateway:
        await send(gateway, CALL)
        await until(lambda: gateway.context.traced[PLAYBOOK] == 1)
        (trace,) = await traces(log)
    assert trace.task == "Refund order 7?"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", {"content-type": "application/x-protobuf"}, 400),
        (b"[1", {"content-type": "application/json"}, 400),
        (b"null", {"content-type": "application/json"}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', {}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-encoding": "br"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-4], {"content-encoding": "gzip"}, 400),
        (gzip.compress(b" " * 2_000_000, mtime=0), {"content-encoding": "gzip"}, 413),
        (b" " * 2_000_000, {}, 413),
    ],
)
async def test_what_is_no_request_is_refused(body: bytes, headers: dict[str, str], status: int) -> None:
    async with asked(MemoryLog(SystemClock()), max_body_bytes=1 << 20) as gateway:
        typed = {"content-type": "application/json", **headers}
        answer = await gateway.client.post(PATH, content=body, headers=typed)
        assert answer.status_code == status


def _of_one_span(**fields: Any) -> bytes:
    spans = [ScopeSpans(spans=[trace_pb2.Span(**fields)])]
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=spans)])
    body: bytes = request.SerializeToString()
    return body


@pytest.mark.parametrize(
    "value",
    [
        AnyValue(array_value=ArrayValue(values=[AnyValue(array_value=ArrayValue())] * 20_000)),
        AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=f"{at:x}") for at in range(20_000)])),
    ],
    ids=["lists", "names"],
)
def test_a_span_that_waits_counts_with_what_it_takes_in_memory(value: AnyValue) -> None:
    ids = {"trace_id": bytes(15) + b"1", "span_id": bytes(7) + b"1"}
    call = KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value="chat"))
    body = _of_one_span(**ids, attributes=[call, KeyValue(key="x", value=value)])
    tracemalloc.start()
    try:
        (span,), _ = decoded(body, "application/x-protobuf")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert span.bytes > taken / 2


def test_the_fields_of_a_request_are_counted_in_every_part_of_it() -> None:
    pair = KeyValue(
        key="a", value=AnyValue(string_value="b")
    )  # with key, value and the value's text: 4 fields
    body = _of_one_span(start_time_unix_nano=1, kind=1, flags=1, attributes=[pair, pair])
    assert otlp.has_more_fields(body, 13)
    assert not otlp.has_more_fields(body, 14)
    for cut in range(len(body)):  # the parser refuses it
        assert not otlp.has_more_fields(body[:cut], 14)
    assert not otlp.has_more_fields(b"\xff" * 100, 100)


def test_spans_of_an_exporter_in_the_largest_body_have_no_more_fields_than_may_be() -> None:
    attributes = [KeyValue(key=f"http.attr.{n}", value=AnyValue(string_value=f"value {n}")) for n in range(8)]
    body = _of_one_span(
        trace_id=bytes(16),
        span_id=bytes(8),
        parent_span_id=bytes(8),
        name="GET /v1/x",
        kind=2,
        start_time_unix_nano=1,
        end_time_unix_nano=2,
        attributes=attributes,
    )
    spans = GatewayLimits().max_body_bytes // len(body)
    assert not otlp.has_more_fields(body, otlp.MAX_FIELDS // spans)


async def test_one_request_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory it is many times as large."""
    both = threading.Barrier(2)

    def decoded(body: bytes, media: str) -> Any:
        with pytest.raises(threading.BrokenBarrierError):
            both.wait(0.3)
        both.reset()
        return inside(body, media)

    inside = otlp.decoded
    monkeypatch.setattr(otlp, "decoded", decoded)
    async with asked() as gateway:
        headers = {"content-type": "application/json"}
        sent = [gateway.client.post(PATH, content=b"{}", headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in await asyncio.gather(*sent)] == [200, 200]


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b"\x0a\x00" * (otlp.MAX_SPANS + 1), "application/x-protobuf"),
        (to_json({"resourceSpans": [{}] * (otlp.MAX_JSON_VALUES + 1)}), "application/json"),
        (
            ExportTraceServiceRequest(
                resource_spans=[
                    ResourceSpans(scope_spans=[ScopeSpans(spans=[trace_pb2.Span()] * otlp.MAX_SPANS)])
                ]
            ).SerializeToString(),
            "application/x-protobuf",
        ),
        (_of_one_span(attributes=[KeyValue()] * otlp.MAX_FIELDS), "application/x-protobuf"),
        (_of_one_span(events=[trace_pb2.Span.Event()] * otlp.MAX_FIELDS), "application/x-protobuf"),
    ],
    ids=["resources", "json", "spans", "attributes", "events"],
)
async def test_a_request_of_tiny_parts_is_refused_before_they_are_read(body: bytes, media: str) -> None:
    """Each takes two bytes there, and hundreds in memory."""
    async with asked() as gateway:
        answer = await gateway.client.post(PATH, content=body, headers={"content-type": media})
    assert answer.status_code == 413
    assert "at most" in answer.json()["detail"]


async def test_an_empty_request_is_a_success_in_its_own_encoding_and_bad_ids_are_told() -> None:
    async with asked(MemoryLog(SystemClock())) as gateway:
        protobuf = {"content-type": "application/x-protobuf"}
        answer = await gateway.client.post(PATH, content=b"", headers=protobuf)
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
        bad = await send(gateway, {**CALL, "spanId": "00"})
        assert bad.json()["partialSuccess"]["rejectedSpans"] == "1"


async def test_a_run_that_kafka_has_not_acknowledged_is_made_when_its_spans_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        away: Callable[[], str | None] = lambda: "Kafka is away"  # noqa: E731 - one line
        with monkeypatch.context() as patched:
            patched.setattr(gateway.context.health, "outage", away)
            assert (await send(gateway, CALL)).status_code == 200
            assert (await send(gateway, AGENT)).status_code == 503
        assert (await send(gateway, AGENT)).status_code == 200
        (trace,) = await traces(log)
        assert trace.task == "Refund order 7?"


async def test_who_waits_with_too_much_comes_again_later() -> None:
    async with asked(MemoryLog(SystemClock()), spans_waiting_bytes=1 << 20) as gateway:
        said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "x" * 700_000}]}])
        large = span(CALL_ID, AGENT_ID, "chat", **{"gen_ai.input.messages": said})
        another = {**large, "spanId": "00f067aa0ba902b8"}
        assert (await send(gateway, large)).status_code == 200
        refused = await send(gateway, another)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert (await send(gateway, AGENT)).status_code == 200  # the run is complete: there is room again
        assert (await send(gateway, another)).status_code == 200


async def test_half_of_a_surrogate_pair_in_a_message_is_replaced() -> None:
    """JSON may hold it, and no record can."""
    half = [{"role": "user\ud83d", "parts": [{"type": "text", "content": "Refund \ud83d?"}]}]
    call = span(CALL_ID, AGENT_ID, "chat", **{"gen_ai.input.messages": json.dumps(half)})
    asked_half = [{"role": "user", "parts": [{"type": "text", "content": "Refund \ud83d?"}]}]
    agent = span(
        AGENT_ID,
        "",
        "invoke_agent",
        **{"combee.playbook": PLAYBOOK, "gen_ai.input.messages": json.dumps(asked_half)},
    )
    async with asked(log := MemoryLog(SystemClock())) as gateway:
        assert (await send(gateway, call, agent)).status_code == 200
        (trace,) = await traces(log)
    assert trace.task == "Refund ??"
    assert "user?" in trace.trajectory


async def test_a_run_that_cannot_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(run: SpanRun, playbook: str) -> Trace | None:
        if run.spans[0].trace_id == TRACE_ID:
            raise ValueError("no text")
        return trace_from(run, playbook)

    monkeypatch.setattr(spans, "trace_from", unreadable)
    other = {**CALL, "traceId": TRACE_ID[::-1]}
    async with asked(log := MemoryLog(SystemClock()), otlp_playbook=PLAYBOOK, spans_wait_s=0.02) as gateway:
        with capture_logs() as lines:
            assert (await send(gateway, CALL, other)).status_code == 200
            await until(lambda: gateway.context.traced[PLAYBOOK] == 1)
        assert [line["reason"] for line in lines if line["event"] == "spans_lost"] == ["ValueError: no text"]
        (trace,) = await traces(log)
    assert trace.task == "Refund order 7?"


async def test_spans_of_a_key_that_is_gone_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(log := MemoryLog(SystemClock()), otlp_playbook=PLAYBOOK) as gateway:
        receiver = Receiver(gateway.context)
        (waiting,), _ = decoded(json.dumps(request(CALL)).encode(), "application/json")
        await receiver.take(ANYBODY, [waiting])
        (group,) = receiver._gathering.expired(2**60)
        with monkeypatch.context() as patched:
            patched.setattr(type(gateway.context.keys), "holds", lambda *_: False)
            await receiver._give_up(group)
        assert len(receiver._gathering) == 0
        assert await traces(log) == []


async def test_a_gateway_without_the_extra_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_has", lambda _module: False)
    async with asked(MemoryLog(SystemClock())) as gateway:
        answer = await send(gateway, AGENT)
        assert (answer.status_code, "combee[otel]" in answer.text) == (501, True)


async def test_what_still_waits_when_the_gateway_stops_is_told_in_the_log() -> None:
    async with asked(MemoryLog(SystemClock())) as gateway:
        with capture_logs() as lines:
            assert (await send(gateway, CALL)).status_code == 200
            gateway.context.stopping.set()
            await until(lambda: any(line["event"] == "spans_lost" for line in lines))
    (lost,) = [line for line in lines if line["event"] == "spans_lost"]
    assert lost["spans"] == 1
