"""A run of an agent becomes one trace."""

import pytest

from combee.core.playbook.shown import content_digest
from combee.sdk import (
    Client,
    learning,
)
from combee.sdk import (
    client as client_module,
)
from support.sdk import NAME, UnreliableTransport, until


def test_a_run_becomes_a_trace_with_what_was_shown(client: Client, memory: UnreliableTransport) -> None:
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


def test_who_reads_a_branch_teaches_its_playbook_and_says_what_was_read(
    client: Client, memory: UnreliableTransport
) -> None:
    line = f"{NAME}@exp"
    memory.put_playbook(NAME, "be kind")
    said = memory.put_playbook(line, "be kind\nbe quick").entries
    until(lambda: client.playbook(line).version == 1)
    with learning(line, client=client, task="refund 7") as run:
        assert "be quick" in run.prompt("quick", 10)
        run.outcome("refunded")
    client.publish(playbook=line, key_insight="ask first")
    client.flush()
    (trace,) = memory.traces
    (reflection,) = memory.reflections
    assert (trace.playbook, reflection.playbook) == (NAME, NAME)
    assert trace.shown is not None
    shown = dict(zip(trace.shown.entry_ids, trace.shown.digests, strict=True))
    assert trace.shown.line == line
    assert shown == {each.id: content_digest(each) for each in said if each.id in shown}
    assert shown
    assert client.counts.dropped == 0


def test_of_a_playbook_above_the_budget_a_run_has_the_entries_nearest_to_its_task(
    client: Client, memory: UnreliableTransport
) -> None:
    memory.put_playbook(NAME, "refunds need a manager\ncouriers are late on Mondays")
    until(lambda: client.playbook(NAME).version == 1)
    with learning(NAME, client=client, task="refund 7", budget_tokens=10) as run:
        assert "manager" in run.playbook.prompt()
        assert "couriers" not in run.playbook.prompt()
        run.outcome("refunded")
    client.flush()
    (trace,) = memory.traces
    assert trace.shown is not None
    assert trace.shown.entry_ids == ("misc-00001",)


def test_a_trace_says_in_digests_what_its_calls_were_shown(
    client: Client, memory: UnreliableTransport
) -> None:
    memory.put_playbook(NAME, "couriers are late on Mondays\nrefunds need a manager")
    until(lambda: client.playbook(NAME).version == 1)
    with learning(NAME, client=client, task="t") as run:
        assert "manager" in run.prompt("refund 7", budget_tokens=10)
        run.outcome("refunded")
    client.flush()
    (trace,) = memory.traces
    assert trace.shown is not None
    assert trace.shown.entry_ids == ("misc-00002",)
    assert trace.shown.digests == (content_digest(run.playbook.entries[1]),)


def test_what_a_run_raises_is_its_feedback_and_goes_on(client: Client, memory: UnreliableTransport) -> None:
    with pytest.raises(KeyError), learning(NAME, client=client, task="t"):
        raise KeyError("missing")
    client.flush()
    assert [one.feedback for one in memory.traces] == ["The run ended with KeyError: 'missing'"]


def test_a_run_in_which_nothing_happened_leaves_no_trace(client: Client, memory: UnreliableTransport) -> None:
    with learning(NAME, client=client):
        pass
    client.flush()
    assert memory.traces == []


def test_learning_without_an_address_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Client] = []
    monkeypatch.setattr(client_module, "_default", made)
    with learning(NAME, fallback="f", task="t") as run:
        assert run.playbook.render() == "f"
    assert made[0].close().dropped == 1
    assert "COMBEE_BOOTSTRAP_SERVERS" in caplog.text
