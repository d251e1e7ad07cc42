"""Spans of all services, by OpenTelemetry's own SDK: one trace from what an agent hands over to the version."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from combee.adapters.opentelemetry.current import current_context
from combee.adapters.opentelemetry.spans import OtelTracing
from combee.adapters.ports import NO_TRACING, DrainingError, Outgoing, PoisonError, Record, Tracing
from combee.core.text.redact import redacted
from combee.sdk.transport import LogTransport
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.outcome import Outcome
from combee_schemas.records import Headers
from combee_schemas.reflection import Reflection
from combee_schemas.topics import TOPICS, AnyTopic
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TRACEPARENT, context_of
from support import ledger
from support.deployment import ROLES, Deployment
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

HOSTILE: dict[str, Headers] = {
    "no header": (),
    "not a context": ((TRACEPARENT, b"hello"),),
    "no bytes": ((TRACEPARENT, None),),
    "a later version": ((TRACEPARENT, b"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what"),),
    "zeros": ((TRACEPARENT, b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),),
    "a huge state": (
        (TRACEPARENT, b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", b"a=" + b"b" * 100_000),
    ),
    "twice": ((TRACEPARENT, b"\xff\xfe"), (TRACEPARENT, b"00-0af7651916cd43dd8448eb211c80319c")),
}


class Spans:
    """A tracer for agents and services, and what it has ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.agent: Tracer = provider.get_tracer("agent")
        self.tracing = OtelTracing(provider.get_tracer("combee"), redacted)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def spans() -> Spans:
    return Spans()


def ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def written(deployment: Deployment, topic: AnyTopic) -> list[Record]:
    return ledger.records(deployment.log, topic)


def context_ids(record: Record) -> tuple[int, int]:
    context = context_of(record)
    assert context is not None
    return int(context.trace_id, 16), int(context.span_id, 16)


async def handed_over(
    deployment: Deployment, spans: Spans, *messages: Trace | Reflection
) -> list[ReadableSpan]:
    """Send each message from a span of its own, as an agent does; return these spans."""
    transport, agents = LogTransport(deployment.log), list[str]()
    for number, message in enumerate(messages):
        agents.append(f"agent {number}")
        with spans.agent.start_as_current_span(agents[-1]):
            await transport.send([message], [current_context()])
    return [spans.named(name)[-1] for name in agents]


async def settled(deployment: Deployment, reflections: int) -> None:
    await deployment.until(lambda: ledger.applied(deployment.log) == reflections)
    await deployment.until(lambda: not ledger.behind(deployment.log))


async def test_one_trace_leads_from_what_an_agent_hands_over_to_the_version(spans: Spans) -> None:
    async with Deployment(batch_size=1, tracing=spans.tracing).running() as running:
        trace = Trace(trace_id="t", playbook=NAME, task="a task", answer="forty-two")
        (agent,) = await handed_over(running, spans, trace)
        await settled(running, 1)
    assert {span.context.trace_id for span in spans.ended} == {agent.context.trace_id}
    (reflect,), (batch,), (scan,) = map(spans.named, ("process traces", "batch", "process scan.0"))
    (publish,), (version,) = map(spans.named, ("process updates", "write version"))
    assert parent_id(reflect) == agent.context.span_id
    assert parent_id(batch) == reflect.context.span_id
    assert parent_id(scan) == batch.context.span_id
    assert parent_id(publish) == scan.context.span_id
    assert parent_id(version) == publish.context.span_id
    assert version.attributes is not None
    assert (version.attributes["combee.playbook"], version.attributes["combee.version"]) == (NAME, 1)
    for topic in (topics.HISTORY, topics.PLAYBOOKS):
        assert [context_ids(record) for record in written(running, topic)] == [ids(version)]


async def test_a_batch_of_several_traces_is_linked_to_all_of_them_and_each_of_them_to_it(
    spans: Spans,
) -> None:
    async with Deployment(batch_size=5, tracing=spans.tracing).running() as running:
        agents = await handed_over(running, spans, *map(reflection, range(5)))
        await settled(running, 5)
    (batch,) = spans.named("batch")
    assert batch.parent is None
    assert sorted((link.context.trace_id, link.context.span_id) for link in batch.links) == sorted(
        map(ids, agents)
    )
    waits = spans.named("wait batch")
    assert sorted(map(parent_id, waits)) == sorted(agent.context.span_id for agent in agents)
    assert {(link.context.trace_id, link.context.span_id) for wait in waits for link in wait.links} == {
        ids(batch)
    }
    (version,) = spans.named("write version")
    assert version.context.trace_id == batch.context.trace_id


async def test_a_shuffler_that_takes_over_knows_the_spans_of_what_waits(spans: Spans) -> None:
    deployment = Deployment(batch_size=3, tracing=spans.tracing)
    async with deployment.running():
        agents = await handed_over(deployment, spans, reflection(0), reflection(1))
        await deployment.until(lambda: bool(deployment.shuffler and deployment.shuffler.due_in() < 1e9))
    async with deployment.running():
        agents += await handed_over(deployment, spans, reflection(2))
        await settled(deployment, 3)
    (batch,) = spans.named("batch")
    assert sorted(link.context.span_id for link in batch.links) == sorted(a.context.span_id for a in agents)


async def test_a_batch_that_is_overdue_is_emitted_again_in_the_trace_that_it_was_cut_in(spans: Spans) -> None:
    deployment = Deployment(batch_size=1, batch_timeout_s=60, tracing=spans.tracing)
    async with deployment.running(["shuffle"]):
        await handed_over(deployment, spans, reflection(0))
        await deployment.until(lambda: bool(spans.named("batch")))
    deployment.shuffler = None
    async with deployment.running(["shuffle"]):  # another process: it knows the manifest alone
        await deployment.until(lambda: bool(deployment.shuffler and deployment.shuffler.in_flight()))
        deployment.advance(61)
        await deployment.until(lambda: bool(spans.named("batch again")))
    (batch,), again = spans.named("batch"), spans.named("batch again")[0]
    assert parent_id(again) == batch.context.span_id
    first, *_, last = written(deployment, topics.GROUPS)
    assert context_ids(first) == ids(batch)
    assert context_ids(last) == ids(again)


async def test_a_model_call_is_a_span_by_the_genai_conventions_without_any_text(spans: Spans) -> None:
    async with Deployment(batch_size=1, tracing=spans.tracing).running() as running:
        secret = Trace(trace_id="t", playbook=NAME, task="the secret task", answer="the secret answer")
        await handed_over(running, spans, secret)
        await settled(running, 1)
    calls = spans.named("chat scripted")
    assert len(calls) == running.model.calls == 2
    assert [span.name for span in spans.ended if span.context.span_id == parent_id(calls[0])] == [
        "process traces"
    ]
    for call in calls:
        assert call.attributes is not None
        assert call.attributes["gen_ai.operation.name"] == "chat"
        assert call.attributes["gen_ai.request.model"] == "scripted"
        assert int(str(call.attributes["gen_ai.usage.input_tokens"])) > 0
    assert "secret" not in "".join(span.to_json() for span in spans.ended)


async def test_the_span_of_a_record_that_is_dead_lettered_says_why_and_the_letter_names_it(
    spans: Spans,
) -> None:
    async with Deployment(batch_size=1, tracing=spans.tracing).running() as running:
        await running.log.produce(Outgoing(topic=topics.TRACES.name, key=b"t", value=b"not ours"))
        await running.log.produce(Outgoing(topic=topics.UPDATES.name, key=NAME.encode(), value=b"not ours"))
        await running.until(lambda: len(written(running, topics.DEAD_LETTERS)) == 2)
        await running.until(lambda: not ledger.behind(running.log))
    bad = [*spans.named("process traces"), *spans.named("process updates")]
    assert [span.status.status_code for span in bad] == [StatusCode.ERROR] * 2
    assert all(span.status.description for span in bad)
    assert sorted(map(context_ids, written(running, topics.DEAD_LETTERS))) == sorted(map(ids, bad))


async def test_outcomes_are_folded_in_a_span_that_is_linked_to_what_wrote_them(spans: Spans) -> None:
    deployment = Deployment(tracing=spans.tracing)
    async with deployment.running(["control"]):
        with spans.agent.start_as_current_span("agent") as agent:
            await LogTransport(deployment.log).send(
                [Outcome(run_id="r", playbook=NAME, success=True)], [current_context()]
            )
        await deployment.until(lambda: bool(spans.named("outcomes")))
    (fold,) = spans.named("outcomes")
    assert [link.context.span_id for link in fold.links] == [agent.get_span_context().span_id]


async def learned(tracing: Tracing, headers: Headers) -> dict[str, list[bytes | None]]:
    """Learn from records with these headers; return what stands in every topic, without headers."""
    deployment = Deployment(batch_size=4, tracing=tracing)
    async with deployment.running():
        for number in range(4):
            await deployment.log.produce(replace(outgoing(reflection(number)), headers=tuple(headers)))
        await settled(deployment, 4)
        empty = Command(command_id="i", playbook=NAME, kind="import", entries=())
        await deployment.log.produce(outgoing(empty))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return {topic.name: [record.value for record in written(deployment, topic)] for topic in TOPICS}


@pytest.mark.parametrize("case", HOSTILE)
async def test_headers_change_nothing_of_what_is_learned(spans: Spans, case: str) -> None:
    """The same bytes stand in all topics, whatever the headers say, with spans and without."""
    plain = await learned(NO_TRACING, ())
    assert await learned(spans.tracing, HOSTILE[case]) == plain
    assert plain[topics.DEAD_LETTERS.name] == []


async def test_a_repeat_counts_once_whatever_span_it_comes_from(spans: Spans) -> None:
    async with Deployment(batch_size=2, tracing=spans.tracing).running(ROLES) as running:
        await handed_over(running, spans, reflection(0), reflection(0), reflection(1))
        await settled(running, 2)
    (batch,) = ledger.batches(running.log)
    assert [member.reflection_id for member in batch.dropped] == [reflection(0).reflection_id]


def test_a_span_that_failed_says_why_without_secrets_and_without_a_stack(spans: Spans) -> None:
    with pytest.raises(PoisonError), spans.tracing.span("failed"):
        raise PoisonError("refused: Authorization: Bearer sk-abcdefghijklmnop")
    with pytest.raises(DrainingError), spans.tracing.span("left to the next worker"):
        raise DrainingError("waiting")
    failed, left = spans.ended
    assert (failed.status.status_code, failed.events) == (StatusCode.ERROR, ())
    assert "refused" in str(failed.status.description)
    assert "sk-abc" not in failed.to_json()
    assert left.status.status_code is StatusCode.UNSET
