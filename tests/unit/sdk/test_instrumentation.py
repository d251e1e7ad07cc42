"""What integrations build on: runs begin, are recorded as told, and are handed over once."""

from typing import Any

import pytest

from combee.sdk import Client, learning
from combee.sdk.instrumentation import Instrumentation, OpenRuns, in_front
from combee.sdk.learning import Run, last_question, tool_calls_text
from combee_schemas.trace import Trace
from support.rows import each_row
from support.sdk import NAME, UnreliableTransport


@pytest.fixture
def instrumentation(client: Client, memory: UnreliableTransport) -> Instrumentation:
    memory.put_playbook(NAME, "Be exact.")
    client.ready(5)
    return Instrumentation.of(NAME, combee=client)


def traces(client: Client, memory: UnreliableTransport) -> list[Trace]:
    client.flush()
    return memory.traces


def begun(instrumentation: Instrumentation, task: str = "task") -> Run:
    run = instrumentation.begin(instrumentation.playbook(), task=task)
    assert run is not None
    return run


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


# ---- outcomes


def test_runs_without_an_outcome_are_reported_once(
    instrumentation: Instrumentation, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        instrumentation.end(begun(instrumentation), None)

    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"runs without an outcome teach {NAME} what the model believes")
    assert "on_end=lambda run: run.outcome(success=…)" in said


@pytest.mark.parametrize("outcome", [{"success": False}, {"score": 0.5}, {"feedback": "no"}, {"target": "7"}])
def test_a_run_with_any_outcome_is_not_reported(
    instrumentation: Instrumentation, caplog: pytest.LogCaptureFixture, outcome: dict[str, Any]
) -> None:
    run = begun(instrumentation)
    run.outcome(**outcome)
    instrumentation.end(run, None)
    instrumentation.end(begun(instrumentation), OSError("an error is feedback"))

    assert not caplog.records


def test_on_end_may_leave_the_outcome_for_later(
    client: Client, instrumentation: Instrumentation, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[str] = []
    later = Instrumentation.of(NAME, combee=client, on_end=lambda run: ids.append(run.trace_id))
    run = begun(instrumentation)
    later.end(run, None)

    assert ids == [run.trace_id]
    assert not caplog.records


# ---- conversations


def test_what_is_said_twice_is_recorded_twice_and_a_conversation_told_again_once(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    run = begun(instrumentation)
    run.record([user("yes"), user("yes")])
    run.record([user("yes"), user("yes"), user("no")])
    instrumentation.end(run, None)

    assert traces(client, memory)[0].trajectory == "user: yes\n\nuser: yes\n\nuser: no"


def test_the_last_question_is_the_user_s_last_word() -> None:
    assert last_question([user("one"), user("two"), {"role": "assistant", "content": "three"}]) == "two"
    assert last_question([]) == ""


def test_calls_of_tools_stand_below_what_was_said() -> None:
    assert tool_calls_text("I look.", [("paid", '{"order": 7}')]) == (
        'I look.\n[{"name": "paid", "arguments": "{\\"order\\": 7}"}]'
    )
    assert tool_calls_text("", []) == ""


@each_row(
    ("prompt", "system", "whole"),
    [
        ("book", "own", "book\n\nown"),
        ("", "own", "own"),
        ("book", None, "book"),
        (
            "book",
            [{"type": "text", "text": "own"}],
            [{"type": "text", "text": "book"}, {"type": "text", "text": "own"}],
        ),
        ("", [{"type": "text", "text": "own"}], [{"type": "text", "text": "own"}]),
    ],
)
def test_a_playbook_comes_first_in_a_system_message(prompt: str, system: Any, whole: Any) -> None:
    assert in_front(prompt, system) == whole


# ---- answers that are told of late


def test_a_run_that_has_ended_is_completed_by_an_answer_that_comes_late(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    run = begun(instrumentation)
    run.expect()
    run.expect()
    run.outcome("good", success=True)
    instrumentation.end(run, None)
    assert traces(client, memory) == []
    run.recorded([user("one")], "1", {})
    run.settle()
    assert traces(client, memory) == []
    run.recorded([user("two")], "2", {})
    run.settle()

    (trace,) = traces(client, memory)
    assert (trace.answer, trace.success, trace.feedback) == ("2", True, "The run succeeded. good")
    assert trace.trajectory.count("user: ") == 2


def test_answers_that_come_in_time_keep_nothing_back(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    run = begun(instrumentation)
    run.expect()
    run.recorded([user("one")], "1", {})
    run.settle()
    instrumentation.end(run, None)

    assert len(traces(client, memory)) == 1


# ---- who hands over


def test_a_block_s_run_is_handed_over_by_the_block_alone(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    with learning(NAME, client=client, task="block"):
        run = begun(instrumentation)
        instrumentation.end(run, None)
        assert traces(client, memory) == []

    assert [trace.task for trace in traces(client, memory)] == ["block"]


def test_without_a_playbook_and_a_block_there_is_no_run(client: Client) -> None:
    bare = Instrumentation.of(None, combee=client)

    assert bare.begin(bare.playbook()) is None
    assert OpenRuns(bare).open("a", None) is None


def test_of_a_run_that_was_cancelled_nobody_is_told(client: Client, memory: UnreliableTransport) -> None:
    judged: list[Run] = []
    made = Instrumentation.of(NAME, combee=client, on_end=judged.append)
    made.end(begun(made), KeyboardInterrupt())

    assert (judged, traces(client, memory)) == ([], [])


def test_runs_are_known_by_their_ids_until_they_end(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    runs = OpenRuns(instrumentation)
    first = runs.open("a", instrumentation.playbook(), task="one")

    assert runs.open("a", instrumentation.playbook(), task="two") is first
    runs.end("a")
    runs.end("a")
    assert runs.get("a") is None
    assert [trace.task for trace in traces(client, memory)] == ["one"]


def test_a_run_that_ended_without_a_word_says_why(
    instrumentation: Instrumentation, client: Client, memory: UnreliableTransport
) -> None:
    runs = OpenRuns(instrumentation)
    runs.open("a", instrumentation.playbook(), task="one")
    runs.abandon("a", "nobody knows")
    runs.abandon("a", "nobody knows")

    assert [trace.feedback for trace in traces(client, memory)] == ["nobody knows"]


def test_runs_whose_end_nobody_tells_are_handed_over_when_there_are_too_many(
    instrumentation: Instrumentation,
    client: Client,
    memory: UnreliableTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("combee.sdk.instrumentation.MAX_OPEN", 2)
    runs = OpenRuns(instrumentation)
    for number in range(3):
        runs.open(number, instrumentation.playbook(), task=f"task {number}")

    assert [trace.task for trace in traces(client, memory)] == ["task 0"]
    assert runs.get(0) is None
