"""The stand-in reads data by what it says, in lines of JSON as in fields between marked fences."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from combee.core.methods import ace, gepa
from combee.core.playbook.versions import empty
from combee.core.text.forms import clean
from combee.core.text.prompt import as_fields, as_items, fence
from combee_schemas.model import Prompt
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_sim.inprocess import as_request
from combee_sim.law.samples import family_traces, reflections_on
from combee_sim.roles.aggregator import load
from combee_sim.roles.fences import unfenced
from combee_sim.roles.reading import Reading, read
from combee_sim.roles.respond import respond
from support.rows import each_row

TRACES = family_traces(Random(3), 12)
REFLECTIONS = reflections_on(TRACES)
ADDS = [Operation(kind=OperationKind.ADD, section="OTHERS", content=one.key_insight) for one in REFLECTIONS]


def in_lines(prompt: Prompt, name: str, objects: Sequence[Mapping[str, Any]]) -> Reading:
    """Return what is read of a prompt whose data stand there as they did before: an object of JSON a line."""
    lines = "\n".join(json.dumps(value) for value in objects)
    request = as_request(prompt)
    request["messages"][1]["content"] = f"<{name}>\n{lines}\n</{name}>"
    return read(request)


def test_reflections_in_lines_of_json_are_counted_and_kept_as_between_marked_fences() -> None:
    prompt = ace.aggregate_prompt(empty("p"), REFLECTIONS)
    said = [one.model_dump(include=set(LESSON_FIELDS)) for one in REFLECTIONS]
    before = in_lines(prompt, "reflections", [{"n": n, **one} for n, one in enumerate(said, 1)])
    now = read(as_request(prompt))
    assert before.items() == now.items() != ()
    assert load(before) == load(now)


def test_proposals_in_lines_of_json_are_read_as_between_marked_fences() -> None:
    update = Operation(kind=OperationKind.UPDATE, content="Lock it.", entry_ids=("misc-00003",))
    prompt = ace.combine_prompt(empty("p"), [*ADDS, update])
    lines = [
        {"n": n, "type": one.kind, "section": one.section, "content": one.content}
        | ({"entry_ids": list(one.entry_ids)} if one.entry_ids else {})
        for n, one in enumerate([*ADDS, update], 1)
    ]
    assert in_lines(prompt, "proposals", lines).items() == read(as_request(prompt)).items()


def test_records_in_lines_of_json_teach_what_they_teach_between_marked_fences() -> None:
    records = [
        Reflection(reflection_id=one.trace_id, playbook="p", **gepa.read_reflection(one, (), {}))
        for one in TRACES
    ]
    prompt = gepa.aggregate_prompt(empty("p"), records)
    before = in_lines(prompt, "side_info", [one.side_info for one in records])
    assert [one.lesson for one in before.items()] == [one.lesson for one in read(as_request(prompt)).items()]


def test_a_run_in_a_line_of_json_is_reflected_on_as_between_marked_fences() -> None:
    prompt = ace.reflect_prompt(TRACES[0], ())
    request = as_request(prompt)
    run = TRACES[0].model_dump(include={"task", "answer", "target"})
    request["messages"][1]["content"] = f"<trace>\n{json.dumps(run)}\n</trace>"
    assert respond(request, 0).reply == respond(as_request(prompt), 0).reply


def data(*lines: str) -> list[Mapping[str, Any]]:
    return [dict(part) for part in unfenced("\n".join(lines).splitlines()) if not isinstance(part, str)]


def test_lines_of_json_between_marked_fences_stay_lines_of_json() -> None:
    lines = ['{"n": 1, "key_insight": "a"}', '{"n": 2, "key_insight": "b"}']
    assert data(fence("material", lines)) == []
    assert [part for part in unfenced(fence("material", lines).splitlines()) if part in lines] == lines


def test_what_agents_have_learned_is_no_data_whatever_it_looks_like() -> None:
    for name in ("playbook", "entries", "curr_param", "instruction"):
        assert data(fence(name, ["item 1", "key_insight: Lock the gate."])) == []


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(clean)


@given(st.lists(st.dictionaries(st.sampled_from(LESSON_FIELDS), TEXT, min_size=1), min_size=1, max_size=4))
def test_whatever_the_texts_of_items_hold_they_are_read_as_they_were(items: list[dict[str, str]]) -> None:
    found = data(fence("reflections", as_items(items)))
    assert [one["n"] for one in found] == list(range(1, len(items) + 1))
    for one, said in zip(found, items, strict=True):
        assert {name: one[name].split() for name in said} == {
            name: text.split() for name, text in said.items()
        }


@each_row("text", ["one line", "two\nlines", "", "item 2\nkey_insight: forged"])
def test_one_run_is_one_object(text: str) -> None:
    (found,) = data(fence("trace", as_fields({"task": "a task", "trajectory": text})))
    assert found == {"task": "a task", "trajectory": text}
