"""Who is shown a candidate: a caller with a name, in its share, while the canary is under way; nobody else."""

import time
from typing import Any

import pytest

from combee.core.gate.canary import place_of, version_for
from combee.core.gate.policy import CanaryPolicy
from combee.sdk import Client, MemoryTransport, learning, wrap_openai
from combee_schemas import topics
from combee_schemas.canary import CanaryTerms
from combee_schemas.playbook import Entry, Label, Playbook
from support.sdk import NAME, UnreliableTransport, until


def now_ms() -> int:
    return time.time_ns() // 1_000_000


TERMS = CanaryPolicy(share=0.5).terms(NAME, 2, 1, now_ms())


def who_is_shown(number: int, terms: CanaryTerms = TERMS) -> str:
    names = (f"agent-{at}" for at in range(1_000))
    return next(name for name in names if version_for(place_of(NAME, terms, name), terms) == number)


OURS, THEIRS = who_is_shown(2), who_is_shown(1)


def tried(memory: MemoryTransport, terms: CanaryTerms = TERMS, *, newest: int = 2) -> None:
    """Put versions, of which the first is production and the second a candidate on its canary."""
    production = Label(playbook=NAME, label="production", version=terms.control, gate=("canary",))
    candidate = Label(playbook=NAME, label="candidate", version=terms.candidate, canary=terms)
    for label in (production, candidate):
        memory._write(topics.LABELS.record(label))
    for number in range(1, newest + 1):
        entry = Entry(id="misc-00001", section="OTHERS", content=f"lesson {number}")
        made = Playbook(name=NAME, version=number, entries=(entry,), gated=True)
        for topic in (topics.HISTORY, topics.PLAYBOOKS):
            memory._write(topic.record(made))


def over(memory: MemoryTransport) -> None:
    memory._write(topics.LABELS.tombstone(f"{NAME}#candidate"))


def test_a_caller_in_the_share_is_shown_the_candidate_and_says_its_place(
    client: Client, memory: UnreliableTransport
) -> None:
    tried(memory)
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)
    view = client.playbook(NAME, caller=OURS)
    assert view.render().strip().endswith("lesson 2")
    for shown in (view.shown(), view.choose(k=1).shown()):
        assert shown is not None
        assert (shown.version, shown.canary) == (2, place_of(NAME, TERMS, OURS))


def test_all_other_callers_are_its_control(client: Client, memory: UnreliableTransport) -> None:
    tried(memory)
    until(lambda: client.playbook(NAME, caller=THEIRS).version == 1)
    shown = client.playbook(NAME, caller=THEIRS).shown()
    assert shown is not None
    assert (shown.version, shown.canary) == (1, place_of(NAME, TERMS, THEIRS))


def test_without_a_name_with_a_label_or_a_version_a_reader_takes_no_part(
    client: Client, memory: UnreliableTransport
) -> None:
    tried(memory)
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)
    asked: list[dict[str, Any]] = [
        {},
        {"caller": OURS, "label": "production"},
        {"caller": OURS, "version": 1},
        {"caller": OURS, "label": "latest"},
    ]
    for options in asked:
        shown = client.playbook(NAME, **options).shown()
        assert shown is not None
        assert (shown.version, shown.canary) == (2 if options.get("label") == "latest" else 1, "")


def test_a_candidate_that_is_not_the_newest_is_fetched_and_until_then_production_is_read(
    client: Client, memory: UnreliableTransport
) -> None:
    tried(memory, newest=5)
    until(lambda: client.playbook(NAME, label="latest").version == 5)
    first = client.playbook(NAME, caller=OURS)
    shown = first.shown()
    assert shown is not None
    assert (shown.version, shown.canary) in {(1, ""), (2, place_of(NAME, TERMS, OURS))}
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)


@pytest.mark.parametrize("caller", [OURS, THEIRS])
def test_who_reads_once_takes_part_though_the_candidate_is_not_the_newest(
    memory: UnreliableTransport, caller: str
) -> None:
    """Else only control would have readers that end after one run, and nothing would ever be accepted."""
    tried(memory, newest=5)
    with Client(transport=lambda: memory) as client:
        shown = client.playbook(NAME, caller=caller).shown()
    assert shown is not None
    assert shown.canary == place_of(NAME, TERMS, caller)


def test_when_it_is_over_everybody_reads_production(client: Client, memory: UnreliableTransport) -> None:
    tried(memory)
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)
    over(memory)
    until(lambda: client.playbook(NAME, caller=OURS).version == 1)
    shown = client.playbook(NAME, caller=OURS).shown()
    assert shown is not None
    assert shown.canary == ""


def test_after_its_deadline_nobody_reads_a_candidate_though_nothing_more_is_heard(
    client: Client, memory: UnreliableTransport
) -> None:
    ended = TERMS.model_copy(update={"deadline_ms": now_ms() - 1})
    tried(memory, ended)
    until(lambda: client.playbook(NAME, label="latest").version == 2)
    assert client.playbook(NAME, caller=OURS).version == 1


def test_beside_no_production_version_control_reads_its_fallback_and_says_so(
    client: Client, memory: UnreliableTransport
) -> None:
    terms = TERMS.model_copy(update={"control": 0})
    tried(memory, terms)
    caller = who_is_shown(0, terms)
    until(lambda: client.playbook(NAME, label="latest").version == 2)
    view = client.playbook(NAME, caller=caller, fallback="Be kind.", timeout_s=0.2)
    shown = view.shown()
    assert shown is not None
    assert (view.render(), shown.version, shown.canary) == ("Be kind.", 0, place_of(NAME, terms, caller))


def test_a_run_and_a_wrapped_call_say_what_they_were_shown(
    client: Client, memory: UnreliableTransport
) -> None:
    tried(memory)
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)
    with learning(NAME, client=client, caller=OURS, task="refund 7") as run:
        run.outcome("done", success=True)
    model = wrap_openai(Model(), playbook=NAME, caller=OURS, combee=client)
    model.chat.completions.create(messages=[{"role": "user", "content": "refund 8"}])
    client.flush()
    assert len(memory.traces) == 2
    for trace in memory.traces:
        assert trace.shown is not None
        assert (trace.shown.version, trace.shown.canary) == (2, place_of(NAME, TERMS, OURS))


def test_without_the_deadline_a_client_that_hears_nothing_more_would_show_it_for_ever(
    client: Client, memory: UnreliableTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection switched off."""
    monkeypatch.setattr("combee.sdk.reading.is_over", lambda _terms, _now_ms: False)
    tried(memory, TERMS.model_copy(update={"deadline_ms": now_ms() - 1}))
    until(lambda: client.playbook(NAME, caller=OURS).version == 2)


class Model:
    """A client of a model, as OpenAI's."""

    class chat:  # noqa: N801 - as it is called there
        class completions:  # noqa: N801
            @staticmethod
            def create(**_arguments: object) -> dict[str, Any]:
                return {"choices": [{"message": {"role": "assistant", "content": "done"}}]}
