"""What a client publishes: delivered, buffered, cut, completed by its outcome, or dropped and counted."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.text.shortening import cut
from combee.sdk import (
    Client,
    core,
    logs,
    publishing,
)
from combee.sdk.publishing import fit
from combee.sdk.transport import Contexts
from combee_schemas.base import Shown
from combee_schemas.codec import CodecError, encode
from combee_schemas.topics import Published
from combee_schemas.trace import Trace
from support.sdk import DEADLINE_S, NAME, UnreliableTransport, reflection, until


def test_what_is_published_is_delivered_in_order(client: Client, memory: UnreliableTransport) -> None:
    for number in range(500):
        client.publish(reflection(number))
    counts = client.flush()
    assert (counts.delivered, counts.is_complete) == (500, True)
    assert [one.reflection_id for one in memory.reflections] == [f"r-{number}" for number in range(500)]


def test_a_reflection_can_be_given_as_fields(client: Client, memory: UnreliableTransport) -> None:
    given = client.publish(playbook=NAME, key_insight="look at the date")
    client.flush()
    assert [(one.reflection_id, one.key_insight) for one in memory.reflections] == [
        (given, "look at the date")
    ]
    assert memory.reflections[0].created_at_ms > 0


def test_a_field_that_reflections_do_not_have_is_a_type_error_at_the_call(client: Client) -> None:
    with pytest.raises(TypeError, match=r"argument 'keyinsight'; did you mean 'key_insight'\?"):
        client.publish(playbook=NAME, keyinsight="look at the date")
    with pytest.raises(TypeError, match="argument 'colour'"):
        client.publish(reflection(1), colour="red")
    assert (client.counts.published, client.counts.dropped) == (0, 0)


def test_a_reflection_that_is_dropped_has_no_id(memory: UnreliableTransport) -> None:
    memory.away = True
    with Client(transport=lambda: memory, max_messages=1) as client:
        assert client.publish(playbook="no name!", key_insight="x") == ""
        assert client.publish(playbook=NAME) == ""
        assert client.publish(reflection(1)) == "r-1"
        assert client.publish(reflection(2)) == ""
        memory.away = False
    assert (client.counts.delivered, client.counts.dropped) == (1, 3)


def test_closing_gives_up_where_nothing_answers_and_counts_what_was_not_sent(
    memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "AWAY_S", 0.05)
    memory.away = True
    client = Client(transport=lambda: memory)
    for number in range(3):
        client.publish(reflection(number))
    until(lambda: memory.attempts >= 1)

    assert client.close(timeout_s=600).waiting == 3  # the test's own limit is 120 s
    assert "closed with 3 messages not delivered" in caplog.text


def test_closing_tries_once_more_at_once_and_goes_on_while_acknowledgements_come_in(
    memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "AWAY_S", 0.5)
    monkeypatch.setattr(publishing, "CLOSING_PAUSE_S", 0.1)
    monkeypatch.setattr(publishing, "MAX_SENT", 1)
    monkeypatch.setattr(publishing, "FIRST_PAUSE_S", 60.0)
    send, gaps = memory.send, iter(range(10**6))

    async def every_third(messages: Sequence[Published], contexts: Contexts = ()) -> None:
        memory.away = next(gaps) % 3 != 2
        await send(messages, contexts)

    monkeypatch.setattr(memory, "send", every_third)
    client = Client(transport=lambda: memory)
    for number in range(8):
        client.publish(reflection(number))
    until(lambda: memory.attempts >= 1)

    # Two pauses of 0.1 s before each acknowledgement: 1.6 s, with none of them 0.5 s after the one before.
    assert client.close(timeout_s=100).is_complete
    assert memory.attempts == 24


def test_an_outage_is_one_line_a_minute_and_one_at_its_end(
    client: Client,
    memory: UnreliableTransport,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE_S", 0.005)
    memory.away = True
    client.publish(reflection(1))
    until(lambda: memory.attempts >= 5)
    assert caplog.text.count("no answer for now") == 1

    monkeypatch.setattr(logs, "OUTAGE_S", 0.0)
    until(lambda: caplog.text.count("no answer for now") >= 3)
    memory.away = False
    assert client.flush().is_complete
    assert caplog.text.count("answers again") == 1


def test_a_deployment_that_says_nothing_at_all_is_reported_and_closing_gives_up(
    memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(memory, "send", silent)
    monkeypatch.setattr(core, "AWAY_S", 0.05)
    monkeypatch.setattr(publishing, "UNANSWERED_S", 0.05)
    client = Client(transport=lambda: memory)
    client.publish(reflection(1))
    until(lambda: "no answer for now" in caplog.text)

    assert client.close(timeout_s=600).waiting == 1


def test_a_deployment_that_is_away_costs_nothing_and_gets_everything_later(
    client: Client, memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE_S", 0.005)
    memory.away = True
    client.publish(reflection(1))
    until(lambda: memory.attempts >= 2)
    counts = client.flush(timeout_s=0.01)
    assert (counts.delivered, counts.waiting, counts.is_complete) == (0, 1, False)
    memory.away = False
    assert client.flush().is_complete
    assert len(memory.reflections) == 1


def test_a_full_buffer_drops_counts_and_says_so_once(
    memory: UnreliableTransport, caplog: pytest.LogCaptureFixture
) -> None:
    memory.away = True
    with Client(transport=lambda: memory, max_messages=3) as client:
        for number in range(10):
            client.publish(reflection(number))
        assert (client.counts.waiting, client.counts.dropped) == (3, 7)
        assert caplog.text.count("the buffer is full") == 1
        assert client.close(timeout_s=0.01).waiting == 3
    assert "closed with 3 messages not delivered and 7 dropped" in caplog.text


def test_the_buffer_is_bounded_by_bytes_too(memory: UnreliableTransport) -> None:
    memory.away = True
    with Client(transport=lambda: memory, max_bytes=10_000) as client:
        for number in range(10):
            client.publish(reflection(number, "x" * 4_000))
        assert (client.counts.waiting, client.counts.dropped) == (2, 8)
        client.close(timeout_s=0.01)


def test_one_message_that_is_refused_hurts_only_itself(client: Client, memory: UnreliableTransport) -> None:
    for number in range(6):
        client.publish(reflection(number, "poison" if number == 3 else ""))
    counts = client.flush()
    assert (counts.delivered, counts.dropped, counts.waiting) == (5, 1, 0)
    assert {one.reflection_id for one in memory.reflections} == {"r-0", "r-1", "r-2", "r-4", "r-5"}


def test_an_empty_lesson_is_dropped_counted_and_told_of_once(
    client: Client, memory: UnreliableTransport, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        client.publish(playbook=NAME, key_insight=" ")
    client.trace(NAME, "")
    client.publish(reflection(2))
    assert client.flush(DEADLINE_S).dropped == 4
    assert [one.reflection_id for one in memory.reflections] == ["r-2"]
    assert memory.traces == []
    (told,) = [one.message for one in caplog.records if "lesson is empty" in one.message]
    assert told.startswith(
        "a message was dropped: the lesson is empty: fill in at least one of key_insight, "
    )


def test_a_playbook_that_cannot_be_read_is_its_fallback_and_said_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert client.playbook(["a"], fallback="Be brief.").render() == "Be brief."  # type: ignore[arg-type]
    assert [one.getMessage() for one in caplog.records] == [
        "a playbook cannot be read, its fallback is used: its name is of type list"
    ]


def test_a_reflection_beyond_the_limit_is_dropped_and_its_neighbours_go(client: Client) -> None:
    client.publish(reflection(1, "word " * 100_000))
    client.publish(reflection(2))
    counts = client.flush()
    assert (counts.delivered, counts.dropped) == (1, 1)


def test_an_outcome_completes_the_trace_that_waits_for_it(
    client: Client, memory: UnreliableTransport
) -> None:
    given = client.trace(NAME, "task", answer="42", outcome_within_s=60)
    assert (client.flush().held, memory.traces) == (1, [])
    client.outcome(given, "wrong", success=False, target="43")
    client.flush()
    (trace,) = memory.traces
    assert (trace.trace_id, trace.answer, trace.feedback, trace.target) == (
        given,
        "42",
        "The run failed. wrong",
        "43",
    )


def test_one_run_held_for_two_playbooks_is_completed_in_both_and_nothing_held_is_lost(
    client: Client, memory: UnreliableTransport
) -> None:
    for name, task in ((NAME, "first"), ("other", "second"), (NAME, "told anew")):
        client.trace(name, task, trace_id="run-17", outcome_within_s=60)
    client.flush()
    assert [one.task for one in memory.traces] == ["first"]
    client.outcome("run-17", "good")
    client.flush()
    completed = {(one.playbook, one.task, one.feedback) for one in memory.traces[1:]}
    assert completed == {("other", "second", "good"), (NAME, "told anew", "good")}


def test_a_trace_whose_outcome_never_comes_is_sent_in_time_or_at_the_end(
    memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PENDING_CHECK_S", 0.005)
    client = Client(transport=lambda: memory)
    client.trace(NAME, "short", outcome_within_s=0.01)
    until(lambda: [one.task for one in memory.traces] == ["short"])
    client.trace(NAME, "long", outcome_within_s=600)
    assert client.close().is_complete
    assert [one.task for one in memory.traces] == ["short", "long"]


def test_publishing_from_many_threads_loses_nothing(client: Client, memory: UnreliableTransport) -> None:
    def publish(first: int) -> None:
        for number in range(first, first + 100):
            client.publish(reflection(number))

    threads = [threading.Thread(target=publish, args=(100 * n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    counts = client.flush()
    assert (counts.published, counts.delivered) == (800, 800)
    assert len({one.reflection_id for one in memory.reflections}) == 800


def test_long_traces_arrive_cut_with_their_size(client: Client, memory: UnreliableTransport) -> None:
    client.trace(NAME, "task", trajectory="step " * 400_000)
    assert client.flush().is_complete
    (trace,) = memory.traces
    assert trace.original_bytes is not None
    assert trace.original_bytes >= 2_000_000
    assert isinstance(trace, Trace)
    assert len(trace.trajectory) < 900 * 1024


def test_what_fits_is_as_it_was() -> None:
    trace = Trace(trace_id="t", playbook="a", task="x" * 1_000)
    assert fit(trace) is trace


@given(
    st.integers(0, 400_000),
    st.integers(0, 400_000),
    st.integers(0, 400_000),
    st.sampled_from(["x ", "ü", "€ "]),
)
def test_a_cut_trace_fits_and_says_what_it_was(task: int, trajectory: int, answer: int, letter: str) -> None:
    trace = Trace(
        trace_id="t", playbook="a", task=letter * task, trajectory=letter * trajectory, answer=letter * answer
    )
    short = fit(trace)
    assert len(encode(short)) <= Trace.max_bytes
    size = len((trace.task + trace.trajectory + trace.answer).encode())
    assert short is trace or short.original_bytes == size


def test_the_longest_text_is_cut_and_the_short_ones_stay() -> None:
    trace = Trace(trace_id="t", playbook="a", task="a task", trajectory="step " * 400_000, answer="42")
    short = fit(trace)
    assert (short.task, short.answer) == ("a task", "42")
    assert short.trajectory.startswith("step step")
    assert short.trajectory.endswith("step step ")
    assert "bytes cut from the middle" in short.trajectory
    assert len(short.trajectory) > 900_000


def test_a_trace_that_cannot_fit_is_refused() -> None:
    trace = Trace(trace_id="t", playbook="a", task="x", metadata={"m": "x" * 1_000_000})
    with pytest.raises(CodecError):
        fit(trace)


def test_a_cut_leaves_no_half_of_a_secret() -> None:
    text = "word " * 100 + "sk-proj-" + "a" * 60 + " word" * 100
    assert all("sk-proj" not in cut(text, size) or "a" * 60 in cut(text, size) for size in range(300, 900))


# ---- outcomes on their own


def test_an_outcome_that_names_a_playbook_goes_out_alone(client: Client, memory: UnreliableTransport) -> None:
    shown = Shown(version=3, entry_ids=("misc-00001",))
    client.outcome(
        "run-7", playbook=f"{NAME}@exp", success=False, score=0.25, shown=shown, bullet_ids=["misc-00001"]
    )
    client.flush()
    (outcome,) = memory.outcomes
    assert (outcome.run_id, outcome.playbook, outcome.success, outcome.score) == (
        "run-7",
        NAME,
        False,
        {"score": 0.25},
    )
    assert (outcome.shown, outcome.bullet_ids) == (shown, ("misc-00001",))
    assert outcome.created_at_ms
    assert (memory.traces, client.counts.dropped) == ([], 0)


def test_an_outcome_with_a_score_completes_the_trace_that_waits_rather_than_going_out_alone(
    client: Client, memory: UnreliableTransport
) -> None:
    given = client.trace(NAME, "task", outcome_within_s=60)
    client.outcome(given, playbook=NAME, score={"reward": 1.0}, success=True)
    client.flush()
    (trace,) = memory.traces
    assert (trace.score, trace.success, memory.outcomes) == ({"reward": 1.0}, True, [])


def test_what_is_no_outcome_is_dropped_and_counted(client: Client, memory: UnreliableTransport) -> None:
    client.outcome("r", playbook="no name", success=True)
    client.outcome("r", playbook=NAME, score={"x": "high"})  # type: ignore[dict-item]
    client.outcome("r", playbook=NAME, shown="3")  # type: ignore[arg-type]
    client.flush()
    assert (memory.outcomes, client.counts.dropped) == ([], 3)


def test_secrets_in_a_caller_do_not_leave(client: Client, memory: UnreliableTransport) -> None:
    client.outcome("r", playbook=NAME, success=True, caller="jane.doe@example.com")
    client.flush()
    assert memory.outcomes[0].caller == "[email]"
