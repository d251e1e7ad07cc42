"""The client on a deployment in memory: what it delivers, what it drops, what it reads."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from combee.ports import FatalError, PoisonError, TransientError
from combee.sdk import (
    AsyncClient,
    Client,
    MemoryTransport,
    PlaybookView,
    Reflection,
    background,
    default,
    engine,
    learning,
)
from combee.sdk.transport import Sent
from combee_schemas.playbook import Playbook
from combee_schemas.trace import Trace

NAME = "support/refunds"
DEADLINE_S = 5.0


class Hurt(MemoryTransport):
    """A deployment whose broker can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.attempts = 0
        self.fetches = 0

    async def send(self, messages: Sequence[Sent]) -> None:
        self.attempts += 1
        if self.away:
            raise TransientError("the broker is away")
        if any(isinstance(one, Reflection) and one.key_insight == "poison" for one in messages):
            raise PoisonError("too large")
        await super().send(messages)

    async def fetch(self, name: str, version: int) -> Playbook | None:
        self.fetches += 1
        return await super().fetch(name, version)


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends, "the condition did not come true in time"
        time.sleep(0.002)


@pytest.fixture
def memory() -> Hurt:
    return Hurt()


@pytest.fixture
def client(memory: Hurt) -> Iterator[Client]:
    with Client(transport=lambda: memory) as made:
        yield made


def reflection(number: int, insight: str = "") -> Reflection:
    return Reflection(reflection_id=f"r-{number}", playbook=NAME, key_insight=insight or f"lesson {number}")


# ---- out


def test_what_is_published_is_delivered_in_order(client: Client, memory: Hurt) -> None:
    for number in range(500):
        client.publish(reflection(number))
    counts = client.flush()
    assert (counts.delivered, counts.is_complete) == (500, True)
    assert [one.reflection_id for one in memory.reflections] == [f"r-{number}" for number in range(500)]


def test_a_reflection_can_be_given_as_fields(client: Client, memory: Hurt) -> None:
    given = client.publish(playbook=NAME, key_insight="look at the date")
    client.flush()
    assert [(one.reflection_id, one.key_insight) for one in memory.reflections] == [
        (given, "look at the date")
    ]
    assert memory.reflections[0].created_at_ms > 0


def test_a_deployment_that_is_away_costs_nothing_and_gets_everything_later(
    client: Client, memory: Hurt
) -> None:
    memory.away = True
    client.publish(reflection(1))
    until(lambda: memory.attempts >= 2)
    counts = client.flush(timeout_s=0.01)
    assert (counts.delivered, counts.waiting, counts.is_complete) == (0, 1, False)
    memory.away = False
    assert client.flush().is_complete
    assert len(memory.reflections) == 1


def test_a_full_buffer_drops_counts_and_says_so_once(memory: Hurt, caplog: pytest.LogCaptureFixture) -> None:
    memory.away = True
    with Client(transport=lambda: memory, max_messages=3) as client:
        for number in range(10):
            client.publish(reflection(number))
        assert (client.counts.waiting, client.counts.dropped) == (3, 7)
        assert caplog.text.count("the buffer is full") == 1
        assert client.close(timeout_s=0.05).waiting == 3
    assert "closed with 3 messages not delivered and 7 dropped" in caplog.text


def test_the_buffer_is_bounded_by_bytes_too(memory: Hurt) -> None:
    memory.away = True
    with Client(transport=lambda: memory, max_bytes=10_000) as client:
        for number in range(10):
            client.publish(reflection(number, "x" * 4_000))
        assert (client.counts.waiting, client.counts.dropped) == (2, 8)
        client.close(timeout_s=0.05)


def test_one_message_that_is_refused_hurts_only_itself(client: Client, memory: Hurt) -> None:
    for number in range(6):
        client.publish(reflection(number, "poison" if number == 3 else ""))
    counts = client.flush()
    assert (counts.delivered, counts.dropped, counts.waiting) == (5, 1, 0)
    assert {one.reflection_id for one in memory.reflections} == {"r-0", "r-1", "r-2", "r-4", "r-5"}


def test_what_is_no_message_is_dropped_and_never_raises(client: Client) -> None:
    client.publish(playbook="no name!", key_insight="x")
    client.trace("no name!", "task")
    client.outcome("t-unknown", "good")
    assert client.counts.dropped == 3


def test_values_of_wrong_types_never_raise_into_an_agent(client: Client, memory: Hurt) -> None:
    wrong: Any = {"playbook": NAME, "key_insight": "x"}
    assert client.publish(wrong) == ""
    assert client.publish("text") == ""  # type: ignore[arg-type]
    client.trace(NAME, "task", metadata=5)  # type: ignore[arg-type]
    client.trace(NAME, "task", metadata=[("a",)])  # type: ignore[arg-type]
    client.trace(NAME, "held", trace_id="t-1", outcome_within_s=60)
    client.outcome(["t-1"])  # type: ignore[arg-type]
    assert client.counts.dropped == 5

    client.trace(NAME, "at once", outcome_within_s="5")  # type: ignore[arg-type]
    client.outcome("t-1", 0.75, success="yes")  # type: ignore[arg-type]
    assert client.flush().delivered == 2
    assert [one.feedback for one in memory.traces] == ["", "The run succeeded. 0.75"]


def test_an_empty_lesson_is_dropped_counted_and_told_of_once(
    client: Client, memory: Hurt, caplog: pytest.LogCaptureFixture
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


WRONG: tuple[Any, ...] = (None, 7, -1.5, math.nan, math.inf, ["a"], {"a": 1}, b"a", object(), "", "no name!")


@pytest.mark.parametrize("wrong", WRONG, ids=[f"{type(one).__name__}-{n}" for n, one in enumerate(WRONG)])
def test_no_public_method_raises_whatever_it_is_given(client: Client, wrong: Any) -> None:
    client.ready()
    view = client.playbook(wrong, label=wrong, version=wrong, fallback=wrong, timeout_s=0.01)
    assert (view.is_fallback, view.shown(), type(view.render())) == (True, None, str)
    assert "be brief" in client.playbook(wrong, fallback="be brief", timeout_s=0.01).prompt()
    assert client.playbook(NAME, label=wrong, fallback="f", timeout_s=0.01).render() == "f"
    client.on_update(wrong, wrong, label=wrong)()
    client.on_update(NAME, wrong)()
    for arguments in ({"reflection": wrong}, {"playbook": wrong, "key_insight": wrong}, {NAME: wrong}):
        client.publish(**arguments)
    client.trace(wrong, wrong, trajectory=wrong, answer=wrong, feedback=wrong, target=wrong, shown=wrong)
    client.trace(NAME, "t", agent=wrong, metadata=wrong, trace_id=wrong, outcome_within_s=wrong)
    client.trace(NAME, "t", trace_id="t-1", outcome_within_s=60)
    client.outcome("t-1", wrong, success=wrong, target=wrong, answer=wrong)
    client.outcome(wrong)
    with learning(wrong, client=client, label=wrong, fallback=wrong, task=wrong) as run:
        run.step(wrong, wrong)
        run.outcome(wrong, success=wrong, target=wrong, answer=wrong)
        run.playbook.prompt()
    client.flush(timeout_s=wrong if wrong != math.inf else 1)
    client.ready(timeout_s=wrong)
    assert client.close(timeout_s=wrong).waiting == 0


@pytest.mark.parametrize("wrong", [["a"], None, math.nan], ids=repr)
async def test_no_public_method_of_the_async_client_raises_either(wrong: Any) -> None:
    async with AsyncClient(transport=MemoryTransport) as combee:
        view = await combee.playbook(wrong, label=wrong, version=wrong, timeout_s=wrong)
        assert view.is_fallback
        combee.on_update(wrong, wrong)()
        await combee.flush(wrong)
        await combee.ready(wrong)
        await combee.close(wrong)


def test_a_playbook_that_cannot_be_read_is_its_fallback_and_said_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert client.playbook(["a"], fallback="Be brief.").render() == "Be brief."  # type: ignore[arg-type]
    assert [one.getMessage() for one in caplog.records] == [
        "a playbook cannot be read, its fallback is given: its name is of type list"
    ]


def test_a_reflection_beyond_the_limit_is_dropped_and_its_neighbours_go(client: Client) -> None:
    client.publish(reflection(1, "word " * 100_000))
    client.publish(reflection(2))
    counts = client.flush()
    assert (counts.delivered, counts.dropped) == (1, 1)


def test_an_outcome_completes_the_trace_that_waits_for_it(client: Client, memory: Hurt) -> None:
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
    client: Client, memory: Hurt
) -> None:
    for name, task in ((NAME, "first"), ("other", "second"), (NAME, "told anew")):
        client.trace(name, task, trace_id="run-17", outcome_within_s=60)
    client.flush()
    assert [one.task for one in memory.traces] == ["first"]
    client.outcome("run-17", "good")
    client.flush()
    completed = {(one.playbook, one.task, one.feedback) for one in memory.traces[1:]}
    assert completed == {("other", "second", "good"), (NAME, "told anew", "good")}


def test_a_trace_whose_outcome_never_comes_is_sent_in_time_or_at_the_end(memory: Hurt) -> None:
    client = Client(transport=lambda: memory)
    client.trace(NAME, "short", outcome_within_s=0.01)
    until(lambda: [one.task for one in memory.traces] == ["short"])
    client.trace(NAME, "long", outcome_within_s=600)
    assert client.close().is_complete
    assert [one.task for one in memory.traces] == ["short", "long"]


def test_a_closed_client_drops_and_still_reads(memory: Hurt) -> None:
    memory.put_playbook(NAME, "be kind")
    client = Client(transport=lambda: memory)
    assert client.playbook(NAME).version == 1
    client.close()
    client.publish(reflection(1))
    assert client.counts.dropped == 1
    assert client.playbook(NAME).version == 1
    assert client.playbook("never asked for", fallback="f").render() == "f"
    assert not client.ready()
    assert client.flush().dropped == 1
    assert client.close().dropped == 1


def test_who_waits_while_the_client_is_closed_gets_an_answer() -> None:
    client = Client(transport=Deaf)
    found: list[PlaybookView] = []
    waiting = threading.Thread(target=lambda: found.append(client.playbook(NAME, fallback="f", timeout_s=60)))
    waiting.start()
    until(lambda: len(client.engine._reader._wanted) == 1)
    client.close(timeout_s=0.1)
    waiting.join(DEADLINE_S)
    assert [one.render() for one in found] == ["f"]


def test_a_redactor_that_reads_a_playbook_does_not_wait_for_itself(memory: Hurt) -> None:
    def redact(text: str) -> str:
        return own.playbook("never asked for", fallback=text, timeout_s=60).render()

    own = Client(transport=lambda: memory, redact=redact)
    own.publish(reflection(1))
    assert own.close().is_complete


def test_publishing_from_many_threads_loses_nothing(client: Client, memory: Hurt) -> None:
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


# ---- redaction


def test_personal_data_leaves_only_where_redaction_is_off(memory: Hurt) -> None:
    told = "write to ann@example.org with sk-abcdefgh12345678"
    with Client(transport=lambda: memory) as client:
        client.publish(reflection(1, told))
        assert client.flush().redacted == {"email": 1, "secret": 1}
    other = MemoryTransport()
    with Client(transport=lambda: other, redact=None) as client:
        client.publish(reflection(2, told))
    assert [one.key_insight for one in (*memory.reflections, *other.reflections)] == [
        "write to [email] with ***",
        told,
    ]


def test_counts_are_logged_and_values_never(memory: Hurt, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="combee")
    with Client(transport=lambda: memory) as client:
        client.publish(reflection(1, "ann@example.org"))
    assert "{'email': 1}" in caplog.text
    assert "ann@" not in caplog.text


def test_a_redactor_that_fails_lets_nothing_out(memory: Hurt) -> None:
    def broken(text: str) -> str:
        raise RuntimeError(text)

    with Client(transport=lambda: memory, redact=broken) as client:
        client.publish(reflection(1))
        assert client.flush().dropped == 1
    assert memory.reflections == []


def test_a_redactor_that_hangs_does_not_hold_up_the_end(
    memory: Hurt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GRACE_S", 0.05)
    monkeypatch.setattr(background, "STOP_S", 0.05)
    goes_on, has_closed = threading.Event(), threading.Event()

    def hang(text: str) -> str:
        goes_on.wait(DEADLINE_S)
        return text

    client = Client(transport=lambda: memory, redact=hang)
    client.publish(reflection(1))

    def close() -> None:
        assert client.close(timeout_s=0.05).waiting == 1
        has_closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        assert has_closed.wait(DEADLINE_S / 2)
    finally:
        goes_on.set()
        closing.join(DEADLINE_S)


def test_a_redactor_of_ones_own_takes_its_place(memory: Hurt) -> None:
    with Client(transport=lambda: memory, redact=str.upper) as client:
        client.publish(reflection(1))
    assert [one.key_insight for one in memory.reflections] == ["LESSON 1"]


# ---- in


def test_a_playbook_is_read_from_memory_with_its_labels(client: Client, memory: Hurt) -> None:
    memory.put_playbook(NAME, "be kind")
    memory.put_label(NAME, "production", 1)
    until(lambda: client.playbook(NAME).labels == ("latest", "production"))
    found = client.playbook(NAME, fallback="unused")
    assert (found.version, found.is_fallback, found.name) == (1, False, NAME)
    assert 0 <= found.age_s < DEADLINE_S


def test_without_a_playbook_the_fallback_is_what_it_says(client: Client) -> None:
    found = client.playbook(NAME, fallback="Be brief.")
    assert (found.version, found.is_fallback, found.render(), found.age_s) == (0, True, "Be brief.", math.inf)
    assert found.shown() is None


def test_an_old_version_is_fetched_once(client: Client, memory: Hurt) -> None:
    for text in ("one", "two", "three"):
        memory.put_playbook(NAME, text)
    until(lambda: client.playbook(NAME).version == 3)
    assert [client.playbook(NAME, version=1).version for _ in range(3)] == [1, 1, 1]
    assert memory.fetches == 1


def test_a_version_that_does_not_exist_is_not_looked_for_each_time(client: Client, memory: Hurt) -> None:
    memory.put_playbook(NAME, "one")
    assert all(client.playbook(NAME, version=9, fallback="f").is_fallback for _ in range(3))
    assert memory.fetches == 1


def test_a_label_that_moves_brings_its_version_before_it_is_asked_for(client: Client, memory: Hurt) -> None:
    for text in ("one", "two", "three"):
        memory.put_playbook(NAME, text)
    memory.put_label(NAME, "production", 1)
    until(lambda: client.playbook(NAME, label="production").version == 1)
    memory.put_label(NAME, "production", 2)
    until(lambda: client.playbook(NAME, label="production").version == 2)
    assert client.playbook(NAME, label="production").labels == ("production",)
    assert client.playbook(NAME, label="staging").is_fallback


def test_updates_are_told_from_what_is_known_on_in_order_and_until_the_end(
    client: Client, memory: Hurt
) -> None:
    heard: list[int] = []
    memory.put_playbook(NAME, "one")
    until(lambda: client.playbook(NAME).version == 1)
    end = client.on_update(NAME, lambda view: heard.append(view.version))
    for text in ("two", "three"):
        memory.put_playbook(NAME, text)
    until(lambda: heard == [1, 2, 3])
    end()
    memory.put_playbook(NAME, "four")
    until(lambda: client.playbook(NAME).version == 4)
    assert heard == [1, 2, 3]


def test_a_callback_that_fails_is_called_again(client: Client, memory: Hurt) -> None:
    heard: list[int] = []

    def failing(view: PlaybookView) -> None:
        heard.append(view.version)
        raise RuntimeError("mine")

    client.on_update(NAME, failing)
    memory.put_playbook(NAME, "one")
    memory.put_playbook(NAME, "two")
    until(lambda: heard == [1, 2])


def test_a_deleted_playbook_is_gone_and_may_begin_again(client: Client, memory: Hurt) -> None:
    heard: list[bool] = []
    client.on_update(NAME, lambda view: heard.append(view.is_fallback))
    memory.put_playbook(NAME, "one")
    until(lambda: heard == [False])
    memory.delete_playbook(NAME)
    until(lambda: heard == [False, True])
    assert client.playbook(NAME, fallback="f").render() == "f"


class Deaf(MemoryTransport):
    """A deployment that never answers."""

    async def follow(self, sink: object) -> None:  # noqa: ARG002 - nothing is heard
        raise TransientError("nobody answers")


def test_a_broker_that_is_away_is_waited_for_once(caplog: pytest.LogCaptureFixture) -> None:
    with Client(transport=Deaf) as client:
        assert client.playbook(NAME, fallback="f", timeout_s=0.05).is_fallback
        began = time.monotonic()
        assert all(client.playbook(NAME, fallback="f", timeout_s=60).is_fallback for _ in range(100))
        assert time.monotonic() - began < 30
        assert not client.ready(timeout_s=0.01)
    assert caplog.text.count("playbooks are not kept fresh") == 1


def test_the_next_start_has_the_last_known_text_from_disk(memory: Hurt, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "be kind")
    with Client(transport=lambda: memory, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    with Client(transport=Deaf, cache_dir=tmp_path) as client:
        found = client.playbook(NAME, fallback="f", timeout_s=0.01)
        assert (found.version, found.is_fallback) == (1, False)
        assert client.playbook("other", fallback="f", timeout_s=0.01).is_fallback


def test_a_broken_file_on_disk_is_passed_over(memory: Hurt, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "be kind")
    with Client(transport=lambda: memory, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    for path in tmp_path.glob("*.json"):
        path.write_text('{"name": ')
    with Client(transport=Deaf, cache_dir=tmp_path) as client:
        assert client.playbook(NAME, fallback="f", timeout_s=0.01).is_fallback


def test_what_the_broker_says_goes_before_what_was_on_disk(tmp_path: Path) -> None:
    old, new = MemoryTransport(), MemoryTransport()
    for text in ("one", "two"):
        old.put_playbook(NAME, text)
    with Client(transport=lambda: old, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    new.put_playbook(NAME, "begun again")
    with Client(transport=lambda: new, cache_dir=tmp_path) as client:
        assert client.playbook(NAME).version == 1


def test_without_an_address_a_client_says_what_to_set() -> None:
    with pytest.raises(FatalError, match="COMBEE_BOOTSTRAP_SERVERS"):
        Client()


# ---- the other face


async def test_the_async_face_does_the_same(memory: Hurt) -> None:
    memory.put_playbook(NAME, "be kind")
    heard: list[int] = []

    async def hear(view: PlaybookView) -> None:
        heard.append(view.version)

    async with AsyncClient(transport=lambda: memory) as client:
        assert await client.ready(timeout_s=30)
        assert (await client.playbook(NAME)).version == 1
        client.on_update(NAME, hear)
        client.publish(reflection(1))
        assert (await client.flush()).delivered == 1
        async with learning(NAME, client=client) as run:
            run.task = "task"
        assert (await client.flush()).delivered == 2
        assert (await client.playbook(NAME, version=7)).is_fallback
    assert heard == [1]
    assert [one.task for one in memory.traces] == ["task"]


# ---- learning


def test_a_run_becomes_a_trace_with_what_was_shown(client: Client, memory: Hurt) -> None:
    memory.put_playbook(NAME, "be kind\nask first")
    until(lambda: client.playbook(NAME).version == 1)
    with learning(NAME, client=client, task="refund 7") as run:
        assert "ask first" in run.playbook.prompt()
        run.step("tool", "looked up 7")
        run.outcome("refunded", success=True, answer="done")
    client.flush()
    (trace,) = memory.traces
    assert trace.shown is not None
    assert (trace.shown.version, trace.shown.entry_ids) == (1, ("misc-00001", "misc-00002"))
    assert (trace.task, trace.trajectory, trace.answer) == ("refund 7", "tool: looked up 7", "done")
    assert trace.feedback == "The run succeeded. refunded"


def test_what_a_run_raises_is_its_feedback_and_goes_on(client: Client, memory: Hurt) -> None:
    with pytest.raises(KeyError), learning(NAME, client=client, task="t"):
        raise KeyError("missing")
    client.flush()
    assert [one.feedback for one in memory.traces] == ["The run ended with KeyError: 'missing'"]


def test_a_run_in_which_nothing_happened_leaves_no_trace(client: Client, memory: Hurt) -> None:
    with learning(NAME, client=client):
        pass
    client.flush()
    assert memory.traces == []


def test_learning_without_an_address_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Client] = []
    monkeypatch.setattr(default, "_made", made)
    with learning(NAME, fallback="f", task="t") as run:
        assert run.playbook.render() == "f"
    assert made[0].close().dropped == 1
    assert "COMBEE_BOOTSTRAP_SERVERS" in caplog.text


def test_long_traces_arrive_cut_with_their_size(client: Client, memory: Hurt) -> None:
    client.trace(NAME, "task", trajectory="step " * 400_000)
    assert client.flush().is_complete
    (trace,) = memory.traces
    assert trace.original_bytes is not None
    assert trace.original_bytes >= 2_000_000
    assert isinstance(trace, Trace)
    assert len(trace.trajectory) < 900 * 1024
