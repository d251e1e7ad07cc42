from random import Random
from typing import Any

import pytest

from combee.core.methods.ace import reflect_prompt
from combee_schemas.playbook import Entry
from combee_schemas.trace import Trace
from combee_sim.family.family import latent, one_each, read_question
from combee_sim.family.quantities import QUANTITIES
from combee_sim.inprocess import as_request
from combee_sim.roles.respond import respond
from support.rows import each_row


def rng(seed: int) -> Random:
    return Random(seed)


QUESTION = one_each(rng(1))[0]
LESSON = latent(QUANTITIES[0]).sentence()
OTHER = latent(QUANTITIES[1]).sentence()
FORMULA = (
    "Use formula Operating Margin to answer the question. Answer with a numerical answer with 2 decimal "
    "places. Formula: Operating Margin = (Operating Income / Revenue) × 100, Explanation: Revenue: sales. "
    'Question: "{}". Answer:'
)


def reflect(trace: Trace, *shown: Entry) -> dict[str, Any]:
    return dict(respond(as_request(reflect_prompt(trace, shown)), 0).reply)


def trace_of(task: str, target: str | None, *, answer: str = "", feedback: str = "") -> Trace:
    return Trace(trace_id="t", playbook="p", task=task, target=target, answer=answer, feedback=feedback)


def entry(number: int, content: str) -> Entry:
    return Entry(id=f"calc-{number:05d}", section="OTHERS", content=content)


def test_the_convention_is_inferred_from_question_answer_and_target() -> None:
    assert reflect(trace_of(QUESTION.text, QUESTION.target))["key_insight"] == LESSON


def test_a_target_that_no_convention_reaches_teaches_no_convention() -> None:
    assert reflect(trace_of(QUESTION.text, "0.123456789"))["key_insight"].startswith("Asked “Site")


def test_entries_about_the_quantity_are_tagged_by_how_the_run_went() -> None:
    shown = (entry(1, LESSON), entry(2, OTHER), entry(3, LESSON.replace("Report", "report ")))
    right = reflect(trace_of(QUESTION.text, QUESTION.target, answer=QUESTION.target), *shown)
    wrong = reflect(trace_of(QUESTION.text, QUESTION.target, answer="0"), *shown)
    ids = ["calc-00001", "calc-00003"]
    assert [(tag["id"], tag["tag"]) for tag in right["bullet_tags"]] == [(one, "helpful") for one in ids]
    assert [(tag["id"], tag["tag"]) for tag in wrong["bullet_tags"]] == [(one, "harmful") for one in ids]


def test_feedback_outranks_the_comparison_with_the_target() -> None:
    told = trace_of(QUESTION.text, QUESTION.target, answer="0", feedback="The answer is correct.")
    assert reflect(told, entry(1, LESSON))["bullet_tags"] == [{"id": "calc-00001", "tag": "helpful"}]


def test_one_formula_gives_one_lesson_whatever_its_numbers_were() -> None:
    first = reflect(trace_of(FORMULA.format("income 5, revenue 10"), "50.0"))["key_insight"]
    second = reflect(trace_of(FORMULA.format("income 1, revenue 8"), "12.5"))["key_insight"]
    assert first == second
    assert "Operating Margin" in first
    assert "percentage number" in first


def test_an_equation_gives_the_features_of_its_solution() -> None:
    lesson = reflect(trace_of("19 ? 8 ? 28 = -205", "19 - 8 * 28 = -205"))["key_insight"]
    assert lesson == (
        "When the result of an equation is far below zero, "
        "try multiplication and subtraction for the missing operators."
    )


def test_tagging_teaches_the_tag_that_was_missed() -> None:
    task = "Pick tags.\n1. What is best tag for entity 5?\n2. What is best tag for entity 6?"
    lesson = reflect(trace_of(task, "LongTermDebt,InterestExpense", answer="LongTermDebt,Revenues"))
    assert lesson["key_insight"].startswith("Use the tag InterestExpense for")
    assert "interest expense" in lesson["key_insight"]


@each_row(
    ("feedback", "lesson"),
    [
        ("Wrong: for faulty items the shop pays the label.", "For faulty items the shop pays the label."),
        ("Right: what counts is activation, so check it.", "What counts is activation, so check it."),
        ("Half right: it is given, but as store credit.", "It is given, but as store credit."),
        ("The answer was wrong: the days count from delivery.", "The days count from delivery."),
        ("Ask the carrier to trace the parcel first.", "Ask the carrier to trace the parcel first."),
    ],
)
def test_the_lesson_of_any_other_run_is_the_reason_that_its_feedback_gives(
    feedback: str, lesson: str
) -> None:
    said = reflect(trace_of("A parcel never came. Refund now?", "wait", answer="refund", feedback=feedback))
    assert said["key_insight"] == lesson


@each_row(
    "feedback",
    [
        "",
        "Wrong.",
        "The answer is wrong, 4 was wanted.",
        "The answer is wrong; the right answer is 4.",
    ],
)
def test_a_verdict_without_a_reason_leaves_the_case_and_its_right_answer(feedback: str) -> None:
    said = reflect(trace_of("How many boxes does the order fill?", "4", answer="3", feedback=feedback))
    assert said["key_insight"] == "Asked “How many boxes does the order fill?”, answer 4."


def test_a_run_without_feedback_and_target_says_what_is_missing() -> None:
    said = reflect(trace_of("Book a table for two", None))
    assert said["key_insight"].endswith("this run got neither feedback nor a target.")


@pytest.mark.parametrize(
    "hostile", ["a" * 300_000, "use formula " * 20_000, "what is the " * 20_000, "- " * 90_000]
)
@pytest.mark.timeout(10)
def test_a_hostile_trace_is_read_in_linear_time(hostile: str) -> None:
    assert reflect(trace_of(hostile, "1.0"))["reasoning"]
    assert read_question(hostile) is None
