"""Spans that come in pieces are gathered into runs; a run's spans are read as its task, steps, answer and verdict."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from combee.core.spans.gathering import MAX_SPANS, Gathering, SpanRun
from combee.core.spans.reading import playbook_named, trace_from, trajectory_of
from combee.core.spans.span import EVALUATION, OPERATION, Event, Span
from support.rows import each_row

TRACE = "a" * 32
WAIT_MS = 1_000
JUDGED = Event(name=EVALUATION, attributes={"gen_ai.evaluation.explanation": "it is right"})


def span(number: int, parent: int = 0, operation: str = "", **more: Any) -> Span:
    attributes = {**({OPERATION: operation} if operation else {}), **more.pop("attributes", {})}
    made = {"started_ns": number, "ended_ns": 1_000 - number, "is_entry": not parent, "bytes": 100, **more}
    parent_id = f"{parent:016x}" if parent else ""
    return Span(trace_id=TRACE, span_id=f"{number:016x}", parent_id=parent_id, attributes=attributes, **made)


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "content": said}


def gathering(most_bytes: int = 10_000) -> Gathering[str]:
    return Gathering(most_bytes=most_bytes, wait_ms=WAIT_MS)


def runs(*spans: Span) -> list[SpanRun]:
    gathered = gathering()
    gathered.add("shop", spans, 0)
    return [run for group in gathered.complete("shop", [TRACE]) for run in group.runs()]


# ---- gathering


def test_spans_wait_until_the_one_that_they_all_are_below_has_come() -> None:
    gathered = gathering()
    for number, parent in ((3, 2), (2, 1)):
        gathered.add("shop", [span(number, parent, "chat")], 0)
        assert gathered.complete("shop", [TRACE]) == []
    gathered.add("shop", [span(1, 0, "invoke_agent")], 0)

    (group,) = gathered.complete("shop", [TRACE])
    (run,) = group.runs()
    gathered.forget(group)

    assert [int(part.span_id, 16) for part in run.spans] == [1, 2, 3]
    assert run.id == f"otel-{TRACE}-{1:016x}"
    assert len(gathered) == 0


def test_an_agent_below_an_agent_belongs_to_its_run_and_agents_side_by_side_are_runs() -> None:
    nested = runs(span(1), span(2, 1, "invoke_agent"), span(3, 2, "invoke_agent"), span(4, 3, "chat"))
    assert [run.id[-1] for run in nested] == ["2"]
    assert len(nested[0].spans) == 3

    beside = runs(span(1), span(2, 1, "invoke_agent"), span(3, 1, "invoke_agent"))
    assert [run.id[-1] for run in beside] == ["2", "3"]


def test_calls_without_an_agent_are_one_run_and_spans_of_something_else_are_none() -> None:
    (run,) = runs(span(1), span(2, 1, "chat"), span(3, 1, "chat"))
    assert (run.root, len(run.spans)) == (None, 3)
    assert runs(span(1), span(2, 1)) == []


def test_a_span_whose_parent_is_elsewhere_completes_its_part_of_the_trace() -> None:
    (run,) = runs(span(7, 6, "invoke_agent", is_entry=True), span(8, 7, "chat"))
    assert run.id[-1] == "7"


def test_what_waits_too_long_is_a_run_of_what_came() -> None:
    gathered = gathering()
    gathered.add("shop", [span(3, 2, "chat"), span(4, 2, "chat")], 0)
    gathered.add("shop", [span(5, 2, "chat")], 500)
    assert gathered.expired(500 + WAIT_MS - 1) == []
    (group,) = gathered.expired(500 + WAIT_MS)
    (run,) = group.runs()
    assert len(run.spans) == 3
    assert run.id[-1] == "2"  # as if the missing span were there


def test_a_sender_gets_only_its_own_room_and_adds_to_no_other_senders_trace() -> None:
    gathered = gathering(most_bytes=150)
    assert gathered.add("shop", [span(2, 1, "chat")], 0)
    assert not gathered.add("shop", [span(3, 1, "chat")], 0)
    assert gathered.add("thief", [span(1, 0, "invoke_agent")], 0)
    (group,) = gathered.complete("thief", [TRACE])
    assert len(group.spans) == 1


def test_where_there_is_no_room_what_completes_a_trace_still_finds_some() -> None:
    gathered = gathering(most_bytes=150)
    assert gathered.add("shop", [span(2, 1, "chat")], 0)
    assert gathered.add("shop", [span(1, 0, "invoke_agent")], 0)
    for group in gathered.complete("shop", [TRACE]):
        gathered.forget(group)
    assert gathered.add("shop", [span(3, 1, "chat")], 0)


def test_a_repeated_span_counts_once_and_a_circle_of_parents_ends() -> None:
    gathered = gathering()
    gathered.add("shop", [span(2, 3, "invoke_agent"), span(3, 2, "chat")] * 2, 0)
    assert len(gathered) == 2
    (group,) = gathered.expired(WAIT_MS)
    (run,) = group.runs()
    assert len(run.spans) == 2


def test_each_span_is_in_one_group_that_of_the_nearest_entry() -> None:
    chain = [span(number, number - 1, "chat", is_entry=number % 2 == 1) for number in range(2_000, 0, -1)]
    circle = [span(2, 3, is_entry=True), span(3, 4, is_entry=True), span(4, 2), span(5, 4, "chat")]
    for spans, groups in ((chain, 1_000), (circle, 2)):
        gathered = gathering(most_bytes=1_000_000)
        gathered.add("shop", spans, 0)
        complete = gathered.complete("shop", [TRACE])
        assert len(complete) == groups
        assert sum(len(group.spans) for group in complete) == len(spans)


def test_an_agent_that_another_process_calls_is_a_run_of_its_own_and_knows_what_is_around_it() -> None:
    called = span(3, 2, "invoke_agent", is_entry=True)
    here = span(1, attributes={"combee.playbook": "shop/refunds"}), span(2, 1, "invoke_agent")
    first, second = sorted(runs(*here, called, span(4, 3, "chat")), key=lambda run: run.id)
    assert [len(first.spans), len(second.spans)] == [1, 2]
    assert playbook_named(second) == "shop/refunds"
    assert runs(called, span(4, 3, "chat"))[0].spans == second.spans


def test_a_trace_takes_in_so_many_spans_and_then_those_that_complete_it() -> None:
    gathered = gathering(most_bytes=10**9)
    spans = [span(number, 1, "chat") for number in range(2, MAX_SPANS + 12)]
    fitting = gathered.fitting("shop", spans)
    assert len(fitting) == MAX_SPANS
    gathered.add("shop", fitting, 0)
    assert gathered.fitting("shop", spans[-10:]) == []
    assert gathered.fitting("shop", spans[:5]) == spans[:5], "repeats take no room"
    assert gathered.fitting("shop", [span(1)]) == [span(1)]
    assert len(gathered.fitting("thief", spans)) == MAX_SPANS


SHAPES: Mapping[str, Callable[[int], list[Span]]] = {
    "a chain of entries": lambda n: [span(at, at - 1, "chat", is_entry=True) for at in range(1, n)],
    "a chain of links": lambda n: [span(at, at - 1) for at in range(1, n)],
    "agents below a chain": lambda n: [
        *(span(at, at - 1) for at in range(1, n // 2)),
        *(span(at, n // 2 - 1, "invoke_agent") for at in range(n // 2, n)),
    ],
    "agents below much that is ours": lambda n: [
        span(1, 0, attributes={f"combee.{at}": "x" for at in range(n)}, events=(JUDGED,) * n),
        *(span(at, 1, "invoke_agent") for at in range(2, n)),
    ],
    "calls that each say something else": lambda n: [
        span(1, 0, "invoke_agent"),
        *(call(at, [message("user", text(f"question {at}"))], []) for at in range(2, n)),
    ],
}
"""Spans of one trace, about as many as given, that somebody made to be slow to read."""


def seconds_to_read(spans: list[Span], repeats: int) -> float:
    """Return the processor time that it takes to gather and read spans, the shortest of some."""
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        gathered = gathering(most_bytes=10**9)
        gathered.add("shop", spans, 0)
        for group in gathered.complete("shop", [TRACE]):
            for run in group.runs():
                playbook_named(run)
                trace_from(run, "shop/refunds")
            gathered.forget(group)
        times.append(time.thread_time() - began)
    return min(times)


@each_row("shape", SHAPES)
def test_spans_take_processor_time_in_proportion_to_their_number(shape: str) -> None:
    def growth(repeats: int) -> float:
        few, many = (seconds_to_read(SHAPES[shape](count), repeats) for count in (125, 1_000))
        return many / few

    # 8 times the spans; quadratic is 64 times the time. Only what looks like it is measured closely.
    assert growth(1) < 24 or growth(3) < 24


# ---- reading

QUESTION = message("user", text("Refund order 7?"))
CALL = message("assistant", {"type": "tool_call", "id": "c1", "name": "paid", "arguments": {"order": 7}})
RESULT = message("tool", {"type": "tool_call_response", "id": "c1", "response": "120 were paid"})
SYSTEM = message("system", text("PLAYBOOK"))
ANSWER = message("assistant", text("Refunded 120."))


def call(number: int, asked: list[Any], answered: list[Any], **attributes: Any) -> Span:
    said = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(answered)}
    return span(number, 1, "chat", attributes={**said, **attributes})


TOOL = {"gen_ai.tool.name": "paid", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": '{"order": 7}'}


def test_a_run_is_its_task_each_message_once_its_tools_and_its_answer() -> None:
    (run,) = runs(
        span(
            1,
            0,
            "invoke_agent",
            attributes={"gen_ai.agent.name": "refunder", "combee.playbook": "shop/refunds"},
        ),
        call(2, [SYSTEM, QUESTION], [CALL], **{"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}),
        span(3, 1, "execute_tool", attributes={**TOOL, "gen_ai.tool.call.result": "120 were paid"}),
        call(4, [SYSTEM, QUESTION, CALL, RESULT], [ANSWER], **{"gen_ai.usage.input_tokens": 20}),
    )
    trajectory = trajectory_of(run)
    assert [(step.who, step.text) for step in trajectory.steps] == [
        ("user", "Refund order 7?"),
        ("assistant", 'paid {"order": 7}'),
        ("tool", 'paid {"order": 7}\n120 were paid'),
        ("assistant", "Refunded 120."),
    ]
    assert (trajectory.task, trajectory.answer) == ("Refund order 7?", "Refunded 120.")
    assert trajectory.agent == "refunder"
    assert trajectory.metadata["gen_ai.usage.input_tokens"] == "30"
    assert playbook_named(run) == "shop/refunds"
    assert trajectory.success is None


def test_results_that_no_span_tells_of_come_from_the_messages() -> None:
    (run,) = runs(
        span(1, 0, "invoke_agent"), call(2, [QUESTION], [CALL]), call(3, [QUESTION, CALL, RESULT], [ANSWER])
    )
    assert ("tool", "120 were paid") in [(step.who, step.text) for step in trajectory_of(run).steps]


def test_an_agents_own_messages_stand_where_its_calls_have_none() -> None:
    said = {"gen_ai.input.messages": [QUESTION], "gen_ai.output.messages": [ANSWER]}  # structured, not JSON
    (run,) = runs(span(1, 0, "invoke_agent", attributes=said), span(2, 1, "chat"))
    trajectory = trajectory_of(run)
    assert (trajectory.task, trajectory.answer) == ("Refund order 7?", "Refunded 120.")
    assert len(trajectory.steps) == 2


def test_messages_of_the_details_event_count() -> None:
    details = {
        "gen_ai.input.messages": json.dumps([QUESTION]),
        "gen_ai.output.messages": json.dumps([ANSWER]),
    }
    event = Event(name="gen_ai.client.inference.operation.details", attributes=details)
    (run,) = runs(span(1, 0, "invoke_agent"), span(2, 1, "chat", events=(event,)))
    assert trajectory_of(run).answer == "Refunded 120."


def test_errors_are_kept_and_evaluations_are_scores_and_feedback() -> None:
    found = {
        "gen_ai.evaluation.name": "correct",
        "gen_ai.evaluation.score.value": 0.25,
        "gen_ai.evaluation.explanation": "120 was not paid",
    }
    judged = Event(name=EVALUATION, attributes=found)
    (run,) = runs(
        span(1, 0, "invoke_agent", error="ValueError: no order", events=(judged,)),
        call(2, [QUESTION], [CALL]),
        span(3, 1, "execute_tool", attributes=TOOL, error="timeout"),
    )
    trajectory = trajectory_of(run)
    assert trajectory.steps[-1].text == 'paid {"order": 7}\nfailed: timeout'
    assert trajectory.steps[-1].failure is not None
    assert trajectory.feedback == "The run failed: ValueError: no order\ncorrect: 120 was not paid"
    assert (trajectory.success, trajectory.score) == (False, {"correct": 0.25})


def test_what_is_no_message_and_no_score_is_left_out() -> None:
    for said in ("nonsense", 7, [7], [{"parts": [None, {"type": 3}]}], {"role": "user"}, "[" * 100_000):
        (run,) = runs(
            span(
                1,
                0,
                "invoke_agent",
                attributes={"gen_ai.input.messages": said, "gen_ai.output.messages": [ANSWER]},
                events=(Event(name=EVALUATION, attributes={"gen_ai.evaluation.score.value": float("nan")}),),
            )
        )
        assert trajectory_of(run).answer == "Refunded 120."
        assert trajectory_of(run).score == {}


def test_a_run_without_texts_is_no_trace_and_secrets_go_from_one_that_has_some() -> None:
    (silent,) = runs(span(1, 0, "invoke_agent"), span(2, 1, "chat"))
    assert trace_from(silent, "shop/refunds") is None
    (run,) = runs(
        span(1, 0, "invoke_agent"), call(2, [message("user", text("use sk-" + "a1B2" * 12))], [ANSWER])
    )
    made = trace_from(run, "shop/refunds")
    assert made is not None
    assert "a1B2" not in made.model_dump_json()
