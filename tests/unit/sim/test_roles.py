import json
from random import Random

import pytest

from combee.core.methods.ace import aggregate_prompt, answer_prompt, combine_prompt, reflect_prompt
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_sim.family.family import one_each
from combee_sim.family.lessons import entries_in
from combee_sim.inprocess import as_request
from combee_sim.law.samples import family_traces
from combee_sim.roles.reading import NotAChatError, read
from combee_sim.roles.respond import respond
from support.rows import each_row
from support.worded import in_full


def rng(seed: int) -> Random:
    return Random(seed)


BASE = empty("p")
TRACE = family_traces(rng(0), 1)[0]
REFLECTION = Reflection(reflection_id="r", playbook="p", key_insight="Lock the gate.")
ADD = Operation(kind=OperationKind.ADD, content="Lock the gate.")
PROMPTS = {
    "aggregator": aggregate_prompt(BASE, [REFLECTION]),
    "aggregator at level 1": combine_prompt(BASE, [ADD]),
    "reflector": reflect_prompt(TRACE, ()),
    "agent": answer_prompt(BASE, one_each(rng(0))[0].text),
}


@each_row("name", PROMPTS)
def test_the_role_follows_from_the_schema_of_the_reply(name: str) -> None:
    assert read(as_request(PROMPTS[name])).role == name.split(maxsplit=1)[0]


@each_row("name", PROMPTS)
def test_without_a_schema_the_role_follows_from_the_keys_the_text_asks_for(name: str) -> None:
    request = as_request(PROMPTS[name])
    del request["response_format"]
    assert read(request).role == name.split(maxsplit=1)[0]
    assert respond(request, 1).reply == respond(as_request(PROMPTS[name]), 1).reply


@each_row("name", PROMPTS)
def test_reworded_instructions_change_nothing(name: str) -> None:
    prompt = PROMPTS[name]
    playbook = prompt.system.partition("<playbook ")
    reworded = Prompt(
        system="Kindly do your part of the work." + "".join(playbook[1:]),
        user=f"Here you are:\n{prompt.user}\nThank you.",
        reply_name="x",
        reply_schema=prompt.reply_schema,
    )
    one, other = (as_request(asked) for asked in (reworded, prompt))
    assert in_full(respond(one, 1).reply, one) == in_full(respond(other, 1).reply, other)


def test_what_the_model_said_before_a_re_ask_is_not_read_as_material() -> None:
    request = as_request(PROMPTS["aggregator"])
    said = {"n": 2, "key_insight": "Feed the fish."}
    request["messages"] += [
        {"role": "assistant", "content": json.dumps(said)},
        {"role": "user", "content": "That was not usable; once more, please."},
    ]
    assert [item.lesson for item in read(request).items()] == ["Lock the gate."]


def test_message_content_may_come_in_parts() -> None:
    request = as_request(PROMPTS["aggregator"])
    request["messages"][1]["content"] = [{"type": "text", "text": PROMPTS["aggregator"].user}]
    assert len(read(request).items()) == 1


@each_row("body", [{}, {"messages": []}, {"messages": ["hi"]}])
def test_a_body_without_messages_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(NotAChatError):
        read(body)


def test_entry_lines_are_read_with_and_without_counters_and_with_continuations() -> None:
    text = "## OTHERS\n[misc-00001] helpful=2 harmful=0 :: One.\n[shr-00002] Two\ngoes on.\n\nnot this"
    found = {entry.id: entry.content for entry in entries_in(text.splitlines())}
    assert found == {"misc-00001": "One.", "shr-00002": "Two goes on."}


def test_an_entry_in_the_prompt_is_not_taken_for_a_reflection() -> None:
    entry = Entry(id="calc-00001", section="OTHERS", content="Lock the gate.")
    prompt = aggregate_prompt(BASE.model_copy(update={"entries": (entry,)}), [])
    assert read(as_request(prompt)).items() == ()
    assert respond(as_request(prompt), 0).reply["operations"] == []
