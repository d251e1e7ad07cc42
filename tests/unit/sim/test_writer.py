"""The stand-in as writer of whole texts, and as an agent that reads one (all simulated)."""

import time
from dataclasses import replace
from random import Random

import pytest

from combee.core.methods import gepa
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace
from combee_sim.family.family import latent, lessons, one_each, right
from combee_sim.family.quantities import QUANTITIES
from combee_sim.inprocess import as_request
from combee_sim.law.law import LAW, Law
from combee_sim.law.samples import family_traces
from combee_sim.roles.aggregator import keep, write
from combee_sim.roles.reading import NO_RULES, read
from combee_sim.roles.respond import respond

EVERYTHING = Law(half_tokens=1e12, steepness=1.0)
NOTHING = Law(half_tokens=1e-12, steepness=1.0)
TRACES = family_traces(Random(1), 8)
LESSONS = set(lessons())


def playbook(*lines: str) -> Playbook:
    entry = Entry(id="i-00001", section="instruction", content="\n".join(lines))
    return empty("p").model_copy(update={"entries": (entry,), "holds": "components"})


def records(traces: tuple[Trace, ...] = TRACES) -> list[Reflection]:
    return [
        Reflection(reflection_id=one.trace_id, playbook="p", **gepa.read_reflection(one, (), {}))
        for one in traces
    ]


def versions(*texts: str) -> list[Operation]:
    return [Operation(kind=OperationKind.ADD, section="instruction", content=text) for text in texts]


def written(prompt: Prompt, law: Law = EVERYTHING, base: Playbook | None = None) -> list[str]:
    """Return the lines of the text that the stand-in's reply gives to the method."""
    reply = write(read(as_request(prompt)), 1, law)
    (operation,) = gepa.read(base or empty("p"), reply, [("r",)]).operations
    return operation.content.splitlines()


@pytest.mark.parametrize(
    "base", [empty("p"), playbook('Answer as {"final_answer": "..."} says.', "Be brief.")]
)
def test_whoever_asks_for_a_text_between_fences_gets_a_writer_whatever_the_current_text_says(
    base: Playbook,
) -> None:
    for prompt in (gepa.aggregate_prompt(base, records()), gepa.combine_prompt(base, versions("a", "b"))):
        assert read(as_request(prompt)).role == "writer"
        assert respond(as_request(prompt), 1).content.startswith("Simulated: ")


def test_records_teach_it_what_its_reflector_would_say_of_the_traces() -> None:
    assert set(written(gepa.aggregate_prompt(empty("p"), records()))) <= LESSONS
    told = [
        one.model_copy(update={"feedback": f"The answer is wrong, {one.target} was wanted."})
        for one in TRACES
    ]
    assert written(gepa.aggregate_prompt(empty("p"), records(tuple(told)))) == written(
        gepa.aggregate_prompt(empty("p"), records())
    )


def test_it_keeps_what_the_aggregator_s_law_keeps() -> None:
    reading = read(as_request(gepa.aggregate_prompt(empty("p"), records())))
    read_this, kept = keep(reading, 1)
    assert 0 < len(kept) < len(read_this.distinct)
    assert len(written(gepa.aggregate_prompt(empty("p"), records()), LAW)) == len(kept)


def test_a_combine_says_each_line_of_the_versions_once_and_keeps_the_current_text() -> None:
    base = playbook("Be brief.", "Lock the gate.")
    texts = versions("Be brief.\nFeed the fish.", "Be brief.\nFeed the fish.\nCount the bees.")
    lines = written(gepa.combine_prompt(base, texts), base=base)
    assert lines[:2] == ["Be brief.", "Lock the gate."]
    assert sorted(lines[2:]) == ["Count the bees.", "Feed the fish."]


def test_a_lesson_takes_the_place_of_the_line_that_says_otherwise() -> None:
    convention = latent(QUANTITIES[0])
    wrong = replace(convention, decimals=convention.decimals + 1).sentence()
    base = playbook("Be brief.", wrong)
    lines = written(gepa.combine_prompt(base, versions(convention.sentence())), base=base)
    assert lines == ["Be brief.", convention.sentence()]


def test_where_nothing_is_kept_it_writes_a_text_all_the_same_and_that_is_no_lesson() -> None:
    assert written(gepa.aggregate_prompt(empty("p"), records()), NOTHING) == [NO_RULES]
    assert written(gepa.combine_prompt(empty("p"), versions(NO_RULES, "Lock the gate."))) == [
        "Lock the gate."
    ]
    base = playbook(NO_RULES)
    assert written(gepa.combine_prompt(base, versions("Lock the gate.")), base=base) == ["Lock the gate."]


def test_an_agent_is_right_if_and_only_if_the_text_before_it_says_how() -> None:
    exam = one_each(Random(2))
    known = {latent(one).sentence(): one.name for one in QUANTITIES[:10]}
    text = playbook("Be careful.", *known)
    for question in exam:
        reply = respond(as_request(gepa.answer_prompt(text, question.text)), 1).reply
        assert right(reply["final_answer"], question.target) is (question.quantity in known.values())


@pytest.mark.parametrize("text", ["right answer is ", "wrong, ", "wrong, a was ", "right answer: \n"])
def test_hostile_feedback_is_read_in_linear_time(text: str) -> None:
    feedback = text * (50_000 // len(text))
    hostile = Reflection(
        reflection_id="r", playbook="p", side_info={"Inputs": "a task", "Feedback": feedback}
    )
    began = time.process_time()
    read(as_request(gepa.aggregate_prompt(empty("p"), [hostile]))).items()
    assert time.process_time() - began < 2.5
