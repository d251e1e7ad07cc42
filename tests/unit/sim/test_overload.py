"""What an overloaded call does with the lessons that it overlooks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from combee.core.methods.ace import aggregate_prompt
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry
from combee_schemas.reflection import Reflection
from combee_sim.family.blurring import blurred, lost_in, topic
from combee_sim.family.falsehoods import opposite
from combee_sim.family.family import lessons
from combee_sim.family.lessons import key
from combee_sim.family.wordings import all_wordings
from combee_sim.inprocess import as_request
from combee_sim.law.law import Law
from combee_sim.modes import OVERLOAD, WAYS, Modes, parse_modes
from combee_sim.roles.respond import respond
from support.rows import each_row
from support.worded import FORMULA, TAG, in_full

LESSONS = lessons()[:24]
HALF = Law(half_tokens=1.0, steepness=1e-9)
"""A law under which half of the lessons are overlooked."""
NOTHING = Law(half_tokens=1e-9, steepness=9.0)
"""A law under which all lessons are overlooked."""
ENTRY = Entry(id="calc-00007", section="OTHERS", content="Feed the fish before noon.")
EQUATION = "When the result of an equation is below zero, try subtraction for the missing operators."
DESK = "Never promise a refund within 14 days unless the parcel was opened."


def prompt(texts: Sequence[str], entries: Sequence[Entry] = (), *, is_to_account: bool = False) -> Prompt:
    reflections = [
        Reflection(reflection_id=f"r-{n}", playbook="p", key_insight=text) for n, text in enumerate(texts)
    ]
    written = aggregate_prompt(empty("p").model_copy(update={"entries": tuple(entries)}), reflections)
    account = "Every item is in one of\nthe three." if is_to_account else ""
    return replace(written, system=f"{account}\n{written.system}")


def reply(asked: Prompt, overload: str = "", law: Law = HALF) -> dict[str, Any]:
    modes = parse_modes([overload] if overload else [])
    request = as_request(asked)
    return in_full(respond(request, 0, law=law, modes=modes).reply, request)


def said(answer: dict[str, Any]) -> set[str]:
    return {key(operation["content"]) for operation in answer["operations"]}


def overlooked(answer: dict[str, Any]) -> set[int]:
    return {n for n, lesson in enumerate(LESSONS, 1) if key(lesson) not in said(answer)}


def in_sources(answer: dict[str, Any]) -> set[int]:
    return {n for operation in answer["operations"] for n in operation["sources"]}


def claimed(answer: dict[str, Any]) -> set[int]:
    return {known["n"] for known in answer["known"]}


def test_the_same_lessons_are_overlooked_whatever_is_said_of_them() -> None:
    answers = {way: reply(prompt(LESSONS, [ENTRY]), way) for way in OVERLOAD}
    assert len(overlooked(answers["silent"])) == 12
    assert {frozenset(overlooked(answer)) for answer in answers.values()} == {
        frozenset(overlooked(answers["silent"]))
    }
    assert answers == {way: reply(prompt(LESSONS, [ENTRY]), way) for way in OVERLOAD}


def test_silently_overlooked_lessons_are_not_mentioned() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "silent")
    assert not overlooked(answer) & in_sources(answer)
    assert (answer["dropped"], answer["known"]) == ([], [])


def test_named_lessons_are_dropped_by_their_numbers() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "named")
    assert set(answer["dropped"]) == overlooked(answer)
    assert not overlooked(answer) & in_sources(answer)


def test_lumped_lessons_are_sources_of_operations_that_say_others() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "lumped")
    assert overlooked(answer) < in_sources(answer)
    assert len(answer["operations"]) == 12
    assert (answer["dropped"], answer["known"]) == ([], [])


def test_claimed_lessons_are_known_by_entries_that_say_others() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "claimed")
    assert claimed(answer) == overlooked(answer)
    assert {known["entry_id"] for known in answer["known"]} == {ENTRY.id}


def test_claimed_lessons_are_lumped_where_there_are_no_entries() -> None:
    answer = reply(prompt(LESSONS), "claimed")
    assert overlooked(answer) < in_sources(answer)
    assert not answer["known"]


def test_blurred_lessons_are_operations_without_their_details() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "blurred")
    expected = {key(blurred(LESSONS[n - 1])) for n in overlooked(answer)}
    assert expected < said(answer)
    assert in_sources(answer) == set(range(1, 25))


def test_a_blurred_lesson_replaces_the_entry_that_has_it() -> None:
    entry = ENTRY.model_copy(update={"content": LESSONS[0]})
    (operation,) = reply(prompt(LESSONS[:1], [entry]), "blurred", NOTHING)["operations"]
    assert (operation["type"], operation["entry_ids"]) == ("UPDATE", [ENTRY.id])
    assert operation["content"] == blurred(LESSONS[0])


def test_a_blurred_lesson_is_known_where_an_entry_is_as_blurred() -> None:
    entry = ENTRY.model_copy(update={"content": blurred(LESSONS[0])})
    answer = reply(prompt(LESSONS[:1], [entry]), "blurred", NOTHING)
    assert (answer["operations"], answer["known"]) == ([], [{"n": 1, "entry_id": ENTRY.id}])


def test_mixed_lessons_are_overlooked_in_all_ways() -> None:
    answer = reply(prompt(LESSONS, [ENTRY]), "mixed")
    lost = overlooked(answer)
    numbers = (set(answer["dropped"]), claimed(answer), in_sources(answer) & lost, lost - in_sources(answer))
    assert all(numbers)
    assert len(said(answer)) > 12, "blurred ones"


def test_lessons_are_named_by_default_only_if_every_item_is_to_be_accounted_for() -> None:
    assert reply(prompt(LESSONS, [ENTRY])) == reply(prompt(LESSONS, [ENTRY]), "silent")
    answer = reply(prompt(LESSONS, [ENTRY], is_to_account=True))
    assert set(answer["dropped"]) == overlooked(answer) != set()


def test_a_rejected_lesson_is_named_only_if_every_item_is_to_be_accounted_for() -> None:
    both = [LESSONS[0], LESSONS[0], str(opposite(LESSONS[0]))]
    everything = Law(half_tokens=1e12, steepness=1.0)
    assert reply(prompt(both), law=everything)["dropped"] == []
    assert reply(prompt(both, is_to_account=True), law=everything)["dropped"] == [3]


@each_row("way", OVERLOAD)
def test_a_call_that_keeps_nothing_answers_in_every_mode(way: str) -> None:
    answer = reply(prompt(LESSONS), way, NOTHING)
    blurred_only = {key(blurred(lesson)) for lesson in LESSONS}
    assert said(answer) <= blurred_only


def test_ways_are_read_and_told_like_modes() -> None:
    assert parse_modes(["lumped"]) == Modes(overload="lumped")
    assert parse_modes(["mixed", "false_yes=0.3"]).summary() == ("false_yes=0.3", "mixed")
    for wrong in (["silent", "named"], ["silent=0.5"]):
        with pytest.raises(ValueError, match="mode"):
            parse_modes(wrong)
    assert set(WAYS) == set(OVERLOAD) - {"mixed"}


# ---- blurred lessons


@each_row("lesson", [LESSONS[0], FORMULA, TAG, EQUATION, DESK, "Be kind to the crew."])
def test_a_blurred_lesson_is_about_the_same_and_is_another_text(lesson: str) -> None:
    less = blurred(lesson)
    assert key(less) != key(lesson)
    assert {blurred(wording) for wording in all_wordings(lesson)} == {less}
    assert blurred(less) == less
    if other := opposite(lesson):
        assert len({key(lesson), key(other), key(less)}) == 3
    if lesson in (LESSONS[0], FORMULA, TAG, EQUATION):
        assert topic(less) == topic(lesson) or lesson == EQUATION


def test_a_blurred_lesson_has_no_figure_condition_or_negation() -> None:
    assert blurred(DESK) == "Promise a refund as usual."
    assert lost_in(DESK, blurred(DESK))
    assert not lost_in(LESSONS[0], all_wordings(LESSONS[0])[2])
