import json
from collections.abc import Mapping
from typing import Any

import pytest

from combee.adapters.openai.model import OpenAIModel
from combee.adapters.ports import Outgoing, PoisonError, PromptTooLongError
from combee.core.methods.ace import EXAMPLE
from combee.core.names import identity
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.versions import empty
from combee.core.text.prompt import estimate_tokens
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.codec import encode
from combee_schemas.model import Prompt, Reply
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import Entry
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.trace import Trace
from combee_sim.inprocess import as_request
from combee_sim.roles.reading import read
from support import ledger, model_rig
from support.deployment import Deployment
from support.fake_openai import FakeOpenAI, reads_at_most, says
from support.ledger import NAME, dead_letters
from support.models import Answer, ScriptedModel

pytestmark = pytest.mark.usefixtures("quick_polls")

server, build, model = model_rig.server, model_rig.build, model_rig.model

GOOD = {"key_insight": "An insight.", "reasoning": "Because."}
WHOLE = {**dict.fromkeys(LESSON_FIELDS, "An insight."), "bullet_tags": []}


def trace(number: int, **fields: Any) -> Trace:
    return Trace.model_validate(
        {
            "trace_id": f"t-{number}",
            "playbook": NAME,
            "task": f"task {number}",
            "answer": f"answer {number}",
            **fields,
        }
    )


async def send(deployment: Deployment, *traces: Trace) -> None:
    await deployment.log.produce(
        *(Outgoing(topic="traces", key=one.trace_id.encode(), value=encode(one)) for one in traces)
    )


def reflections(deployment: Deployment) -> list[Reflection]:
    return ledger.messages(deployment.log, topics.REFLECTIONS, Reflection)


def done(deployment: Deployment) -> bool:
    return not [at for at in ledger.behind(deployment.log) if at[0] == "reflect"]


async def reflected(
    answer: Answer, *traces: Trace, entries: tuple[Entry, ...] = (), **settings: Any
) -> Deployment:
    """Reflect on traces with a playbook of these entries in place."""
    deployment = Deployment(model=ScriptedModel(answer), **settings)
    known = empty(NAME).model_copy(update={"version": 1, "entries": entries})
    await deployment.log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(known)))
    async with deployment.running(["reflect"]):
        await send(deployment, *traces)
        await deployment.until(lambda: done(deployment))
    return deployment


async def test_a_trace_becomes_one_reflection_with_the_reflector_s_words() -> None:
    texts = {name: f"the {name}" for name in ("reasoning", "error_identification", "root_cause_analysis")}
    deployment = await reflected(lambda _: {**texts, **GOOD, "correct_approach": "so"}, trace(1))
    (found,) = reflections(deployment)
    assert (found.reflection_id, found.playbook, found.trace_id) == (
        identity.reflection_id(NAME, "t-1"),
        NAME,
        "t-1",
    )
    assert (found.key_insight, found.correct_approach) == ("An insight.", "so")
    assert found.usage.calls == 1
    (record,) = ledger.records(deployment.log, topics.REFLECTIONS)
    assert record.key == NAME.encode()


async def test_a_trace_that_comes_again_is_not_paid_for_again() -> None:
    deployment = await reflected(lambda _: GOOD, trace(1), trace(1), trace(2), trace(1))
    assert deployment.model.calls == 2
    assert len(reflections(deployment)) == 2


async def test_a_reflection_in_the_log_is_remembered_over_a_restart_that_lost_the_commit() -> None:
    deployment = await reflected(lambda _: GOOD, trace(1), trace(2))
    deployment.log._store.committed.clear()
    async with deployment.running(["reflect"]):
        await deployment.until(lambda: done(deployment))
    assert deployment.model.calls == 2
    assert len(reflections(deployment)) == 2


async def test_only_tags_of_entries_that_were_shown_are_believed() -> None:
    tags = [
        {"id": "a-1", "tag": "helpful"},
        {"id": "b-1", "tag": "HARMFUL"},
        {"id": "unseen", "tag": "helpful"},
        {"id": "invented", "tag": "helpful"},
        {"id": "a-2", "tag": "wonderful"},
        "a-1",
        {"id": ["a-1"]},
        {},
    ]
    entries = tuple(Entry(id=one, section="OTHERS", content=one) for one in ("a-1", "b-1", "a-2", "unseen"))
    shown = Shown(version=1, entry_ids=("a-1", "b-1", "a-2", "gone"))
    deployment = await reflected(
        lambda _: {**GOOD, "bullet_tags": tags}, trace(1, shown=shown), entries=entries
    )
    (found,) = reflections(deployment)
    assert [(one.id, one.tag) for one in found.bullet_tags] == [("a-1", "helpful"), ("b-1", "harmful")]
    assert found.shown == shown
    (prompt,) = deployment.model.prompts
    assert given(prompt) == ["a-1", "b-1", "a-2"]


# ---- which entries the reflector reads, and how much


def given(prompt: Prompt) -> list[str]:
    """Return the ids of the entries that a prompt holds."""
    return [entry.id for entry in read(as_request(prompt)).entries]


def full_playbook() -> tuple[Entry, ...]:
    """Return entries of 16,000 tokens together; one is about tasks with a gearbox."""
    about = ["gearbox", *(f"subject{n}" for n in range(355))]
    entries = tuple(
        Entry(
            id=f"str-{n:05d}",
            section="STRATEGIES & INSIGHTS",
            content=f"Where the task is about a {subject}, " + "check the sheet twice, " * 5 + "then answer.",
        )
        for n, subject in enumerate(about)
    )
    assert 15_500 <= sum(map(entry_tokens, entries)) <= 16_500
    return entries


USED = ("str-00007", "str-00300", "never-00001")


async def test_a_reflector_reads_the_entries_that_the_agent_says_it_used() -> None:
    entries = full_playbook()
    shown = Shown(version=1, entry_ids=tuple(entry.id for entry in entries))
    tags = [{"id": entry.id, "tag": "helpful"} for entry in entries]
    deployment = await reflected(
        lambda _: {**GOOD, "bullet_tags": tags}, trace(1, shown=shown, bullet_ids=USED), entries=entries
    )
    (prompt,) = deployment.model.prompts
    assert given(prompt) == ["str-00007", "str-00300"]
    (found,) = reflections(deployment)
    assert [tag.id for tag in found.bullet_tags] == ["str-00007", "str-00300"]


@pytest.mark.parametrize("used", [(), ("never-00001",)], ids=["not said", "unknown"])
async def test_else_those_shown_nearest_to_the_task_within_a_budget(used: tuple[str, ...]) -> None:
    entries = full_playbook()
    shown = Shown(version=1, entry_ids=tuple(entry.id for entry in entries[:350]))
    tags = [{"id": entry.id, "tag": "helpful"} for entry in entries]
    asked = trace(1, task="Mend two gearboxes and a subject320", shown=shown, bullet_ids=used)
    deployment = await reflected(lambda _: {**GOOD, "bullet_tags": tags}, asked, entries=entries)
    (prompt,) = deployment.model.prompts
    assert {"str-00000", "str-00321"} <= set(given(prompt)) < {entry.id for entry in entries[:350]}
    (found,) = reflections(deployment)
    assert [tag.id for tag in found.bullet_tags] == given(prompt)


async def test_with_a_full_playbook_a_reflect_prompt_reads_a_sixth_of_what_was_shown() -> None:
    entries = full_playbook()
    shown = Shown(version=1, entry_ids=tuple(entry.id for entry in entries))
    budgets = {"all": 1_000_000, "2,000": 2_000, "none": 0}
    tokens = {}
    for name, budget in budgets.items():
        deployment = await reflected(
            lambda _: GOOD, trace(1, shown=shown), entries=entries, reflect_entry_tokens=budget
        )
        (prompt,) = deployment.model.prompts
        tokens[name] = estimate_tokens(prompt.system + prompt.user)
    assert tokens["all"] > 16_000
    assert tokens["2,000"] - tokens["none"] <= 2_050
    assert tokens["2,000"] < tokens["all"] / 6


async def test_entries_that_the_answer_cites_are_judged_and_counted_as_if_the_agent_had_reported_them() -> (
    None
):
    entries = full_playbook()
    shown = Shown(version=1, entry_ids=tuple(entry.id for entry in entries[:350]))
    tags = [{"id": entry.id, "tag": "helpful"} for entry in entries]
    answer = "68, by [str-00007] and [str-00300]; [str-00355] was not shown, [never-00001] is none."
    cites = trace(1, answer=answer, shown=shown)
    deployment = await reflected(lambda _: {**GOOD, "bullet_tags": tags}, cites, cites, entries=entries)
    (prompt,) = deployment.model.prompts
    assert given(prompt) == ["str-00007", "str-00300"]
    (found,) = reflections(deployment)
    assert [tag.id for tag in found.bullet_tags] == ["str-00007", "str-00300"]
    assert found.bullet_ids == ("str-00007", "str-00300")
    (outcome,) = ledger.messages(deployment.log, topics.OUTCOMES, Outcome)
    assert outcome.bullet_ids == ("str-00007", "str-00300")


async def test_a_used_entry_that_was_not_shown_is_not_believed() -> None:
    entries = full_playbook()
    shown = Shown(version=1, entry_ids=("str-00007",))
    deployment = await reflected(lambda _: GOOD, trace(1, shown=shown, bullet_ids=USED), entries=entries)
    assert given(deployment.model.prompts[0]) == ["str-00007"]


async def test_a_long_trace_is_cut_in_the_middle_visibly_before_a_model_has_to_refuse_it() -> None:
    deployment = await reflected(
        lambda _: GOOD, trace(1, trajectory=LONG, feedback="No."), reflect_trace_tokens=1_000
    )
    (prompt,) = deployment.model.prompts
    assert estimate_tokens(prompt.user) <= 1_100
    for part in ("The run began.", "The run ended.", "bytes cut from the middle", "feedback: No.", "task 1"):
        assert part in prompt.user


async def test_a_reflection_carries_an_excerpt_of_its_task_for_the_curator() -> None:
    deployment = await reflected(
        lambda _: GOOD, trace(1, task="Begin here.\n" + "x y " * 500 + "End here."), trace(2)
    )
    by_trace = {found.trace_id: found.task_excerpt for found in reflections(deployment)}
    assert by_trace["t-2"] == "task 2"
    assert by_trace["t-1"].startswith("Begin here. x y")
    assert by_trace["t-1"].endswith("End here.")
    assert len(by_trace["t-1"]) <= 400
    assert "cut from the middle" in by_trace["t-1"]


async def test_small_models_get_their_own_reflector_s_prompt() -> None:
    deployment = await reflected(lambda _: GOOD, trace(1), prompts="small")
    assert "A good answer:" in deployment.model.prompts[0].system


async def test_a_small_model_that_says_the_worked_example_back_has_learned_nothing() -> None:
    parrot = {**GOOD, "key_insight": EXAMPLE.upper()}
    deployment = await reflected(lambda _: parrot, trace(1), prompts="small")
    assert reflections(deployment) == []
    assert [letter.record_id for letter in dead_letters(deployment.log)] == ["t-1"]
    deployment = await reflected(lambda _: parrot, trace(1))
    assert len(reflections(deployment)) == 1


REPLIES: Mapping[str, Mapping[str, Any]] = {
    "lists": {"key_insight": ["a"], "reasoning": ["b"]},
    "numbers": {"key_insight": 42},
    "half a surrogate pair": {"key_insight": "\ud800", "bullet_tags": [{"id": "\ud800", "tag": "helpful"}]},
    "10 MB": {"key_insight": "x" * 10_000_000, "reasoning": "ü🐝" * 1_000_000},
    "everything large": dict.fromkeys(
        ("reasoning", "error_identification", "root_cause_analysis", "correct_approach", "key_insight"),
        "🐝" * 50_000,
    ),
    "tags are no list": {**GOOD, "bullet_tags": {"a": "helpful"}},
    "null bytes": {"key_insight": "a\x00b"},
}


@pytest.mark.parametrize("body", REPLIES.values(), ids=REPLIES.keys())
async def test_a_strange_reply_still_becomes_a_reflection_that_fits(body: Mapping[str, Any]) -> None:
    deployment = await reflected(lambda _: body, trace(1))
    assert len(reflections(deployment)) == 1
    assert dead_letters(deployment.log) == []


@pytest.mark.parametrize(
    "body",
    [{}, {"key_insight": ""}, {"key_insight": " \n"}, {"reasoning": None}, {"bullet_tags": []}],
    ids=str,
)
async def test_a_reply_without_any_insight_is_poison_and_its_trace_a_dead_letter(
    body: Mapping[str, Any],
) -> None:
    deployment = await reflected(lambda p: GOOD if "task 2" in p.user else body, trace(1), trace(2))
    (letter,) = dead_letters(deployment.log)
    assert (letter.record_id, letter.playbook, letter.value) == ("t-1", NAME, encode(trace(1)))
    assert [one.trace_id for one in reflections(deployment)] == ["t-2"]


async def test_an_empty_trace_is_a_dead_letter_and_no_model_is_asked() -> None:
    deployment = await reflected(lambda _: GOOD, trace(1, task=" ", answer=""), trace(2))
    (letter,) = dead_letters(deployment.log)
    assert (letter.record_id, letter.reason) == (
        "t-1",
        "the trace is empty: fill in at least one of task, trajectory, answer, feedback",
    )
    assert deployment.model.calls == 1


async def test_a_model_that_gives_up_makes_a_dead_letter_and_the_next_trace_goes_on() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if "task 1" in prompt.user:
            raise PoisonError("unusable after the re-ask")
        return GOOD

    deployment = await reflected(answer, trace(1), trace(2))
    assert [letter.record_id for letter in dead_letters(deployment.log)] == ["t-1"]
    assert [one.trace_id for one in reflections(deployment)] == ["t-2"]


async def test_a_trace_whose_reflection_cannot_be_written_hurts_only_itself() -> None:
    shown = Shown(version=1, entry_ids=tuple(f"entry-{n:0200}" for n in range(2_000)))
    deployment = await reflected(lambda _: GOOD, trace(1, shown=shown), trace(2))
    assert [letter.record_id for letter in dead_letters(deployment.log)] == ["t-1"]
    assert [one.trace_id for one in reflections(deployment)] == ["t-2"]


# ---- prompts that are too long

LONG = "The run began. " + "x y z " * 20_000 + "The run ended."


def narrow(characters: int) -> Answer:
    """Answer only prompts up to this length, as a model with a small window."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if len(prompt.system) + len(prompt.user) > characters:
            raise PromptTooLongError("context_length_exceeded")
        return GOOD

    return answer


class ServedModel(ScriptedModel):
    """A model behind a server."""

    def __init__(self, client: OpenAIModel) -> None:
        super().__init__()
        self._client = client

    async def reply(self, prompt: Prompt) -> Reply:
        return await self._client.ask(prompt)


async def test_a_trace_longer_than_the_models_window_is_cut_and_reflected(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    """The server answers 400 context_length_exceeded, as OpenAI's does."""
    server.always = reads_at_most(8_000, says(json.dumps(WHOLE)))
    deployment = Deployment(model=ServedModel(model))
    async with deployment.running(["reflect"]):
        await send(deployment, trace(1, trajectory=LONG), trace(2))
        await deployment.until(lambda: done(deployment))
    assert {one.trace_id for one in reflections(deployment)} == {"t-1", "t-2"}
    assert dead_letters(deployment.log) == []
    answered = max((one.body["messages"][1]["content"] for one in server.seen[-2:]), key=len)
    assert "The run began." in answered
    assert "The run ended." in answered
    assert "cut from the middle" in answered
    assert len(answered) > 2_000  # no more is cut than has to be, but for a half


async def test_a_trace_is_cut_the_same_way_every_time() -> None:
    first, again = [await reflected(narrow(6_000), trace(1, trajectory=LONG)) for _ in range(2)]
    assert first.model.prompts == again.model.prompts
    assert first.model.calls == 6


async def test_a_trace_that_is_too_long_however_it_is_cut_is_a_dead_letter_and_the_next_goes_on() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if "task 1" in prompt.user:
            raise PromptTooLongError("context_length_exceeded")
        return GOOD

    deployment = await reflected(answer, trace(1, trajectory=LONG), trace(2))
    (letter,) = dead_letters(deployment.log)
    assert (letter.record_id, letter.playbook) == ("t-1", NAME)
    assert letter.value == encode(trace(1, trajectory=LONG))
    assert "too long for the model however it is cut: context_length_exceeded" in letter.reason
    assert [one.trace_id for one in reflections(deployment)] == ["t-2"]
    assert deployment.model.calls < 12


async def test_entries_shown_give_way_after_the_trace_and_only_those_read_are_judged() -> None:
    entries = tuple(
        Entry(id=f"e-{n}", section="OTHERS", content=f"{n} " + "word " * (200 if n else 20))
        for n in range(40)
    )
    shown = Shown(version=1, entry_ids=tuple(entry.id for entry in entries))
    tags = [{"id": entry.id, "tag": "helpful"} for entry in entries]
    deployment = await reflected(
        lambda prompt: {**narrow(9_000)(prompt), "bullet_tags": tags},
        trace(1, trajectory=LONG, shown=shown),
        entries=entries,
    )
    judged = set(given(deployment.model.prompts[-1]))
    assert "e-0" in judged
    assert 1 < len(judged) < len(entries)
    (found,) = reflections(deployment)
    assert {one.id for one in found.bullet_tags} == judged
    assert found.shown == shown
