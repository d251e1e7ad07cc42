"""What an agent's span is, goes along with what is handed over in it: in headers, never in messages."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from combee.sdk import Client
from combee.sdk.background import Background
from combee_schemas import topics
from combee_schemas.topics import AnyTopic
from combee_schemas.trace_context import TraceContext, context_of
from support.ledger import read_all
from support.sdk import NAME, UnreliableTransport

TRACE = 0xAF7651916CD43DD8448EB211C80319C


@contextmanager
def span(number: int, state: Mapping[str, str] | None = None) -> Iterator[TraceContext]:
    """Run in the span of that number."""
    made = SpanContext(
        TRACE,
        number,
        is_remote=False,
        trace_flags=TraceFlags(1),
        trace_state=TraceState(list((state or {}).items())),
    )
    with trace.use_span(NonRecordingSpan(made)):
        yield TraceContext(f"00-{TRACE:032x}-{number:016x}-01", made.trace_state.to_header())


def contexts(transport: UnreliableTransport, topic: AnyTopic) -> list[TraceContext | None]:
    background = Background()
    try:
        records = background.submit(read_all(transport._memory, topic)).result(5)
    finally:
        background.stop()
    return [context_of(record) for record in records]


@pytest.fixture
def transport() -> UnreliableTransport:
    return UnreliableTransport()


@pytest.fixture
def client(transport: UnreliableTransport) -> Iterator[Client]:
    with Client(transport=lambda: transport) as made:
        yield made


def test_each_kind_of_message_names_the_span_that_it_was_handed_over_in(
    client: Client, transport: UnreliableTransport
) -> None:
    with span(7, {"vendor": "state"}) as context:
        client.publish(playbook=NAME, key_insight="x")
        client.trace(NAME, "task", answer="42")
        client.outcome("run", success=True, playbook=NAME)
    assert client.flush(5).is_complete
    assert context.tracestate == "vendor=state"
    kinds: list[AnyTopic] = [topics.REFLECTIONS, topics.TRACES, topics.OUTCOMES]
    assert [contexts(transport, topic) for topic in kinds] == [[context]] * 3


def test_messages_that_are_sent_together_keep_their_own_spans(
    client: Client, transport: UnreliableTransport
) -> None:
    transport.away = True
    client.publish(playbook=NAME, key_insight="untraced")
    with span(1) as first:
        client.publish(playbook=NAME, key_insight="a")
    with span(2) as second:
        client.publish(playbook=NAME, key_insight="poison")  # a refusal sends the others one by one
        client.publish(playbook=NAME, key_insight="b")
    transport.away = False
    client.flush(10)
    assert contexts(transport, topics.REFLECTIONS) == [None, first, second]


def test_a_trace_that_waits_for_its_outcome_names_the_span_of_its_run(
    client: Client, transport: UnreliableTransport
) -> None:
    with span(1) as run:
        trace_id = client.trace(NAME, "task", answer="42", outcome_within_s=60)
    with span(2):
        client.outcome(trace_id, "done", success=True)
    assert client.flush(5).is_complete
    assert contexts(transport, topics.TRACES) == [run]


def test_without_a_span_there_is_no_header(client: Client, transport: UnreliableTransport) -> None:
    client.publish(playbook=NAME, key_insight="x")
    assert client.flush(5).is_complete
    assert contexts(transport, topics.REFLECTIONS) == [None]
