"""Attackers with 30 % of the reflections against a deployment in memory: what each posture must hold."""

from functools import cache

import pytest

from combee_experiments.attacks.ablations import CROWDED
from combee_experiments.attacks.experiment import ALL
from combee_experiments.attacks.producers import CROWD, EVICTION, KNOWING, NONE, REMOVAL, REWORDING, RIDING
from combee_experiments.attacks.protections import LAB, LAB_SHORT, PUBLIC, TEAM, TEAM_SHORT, Arm
from combee_experiments.attacks.report import SHARE
from combee_experiments.attacks.run import attacked, unattacked
from combee_experiments.running.cells import Numbers
from combee_experiments.running.virtual_time import run_virtual

ATTACKED = [attack for attack in ALL if attack != NONE]
LOST = 0.05
"""Share of the honest lessons that one attacker may cost."""
THREE = Arm(posture="public", crew="three").name
NOBODY = Arm(posture="public", crew="nobody proves").name


@cache
def numbers(attack: str, arm: str) -> Numbers:
    return run_virtual(attacked(0, attack, arm))


@pytest.mark.parametrize("attack", ATTACKED)
def test_in_a_team_one_attacker_destroys_nothing_and_few_lessons_are_lost(attack: str) -> None:
    found = numbers(attack, TEAM)
    assert found["destroyed"] == 0
    assert found["lessons"] >= (1 - LOST) * numbers(NONE, LAB)["lessons"]


@pytest.mark.parametrize("attack", ["stuffing", EVICTION, REMOVAL, "instructions to agents"])
def test_where_room_is_short_an_attacker_in_a_team_gets_little_more_than_its_part(attack: str) -> None:
    found = numbers(attack, TEAM_SHORT)
    assert found["text"] <= SHARE
    assert found["destroyed"] == 0


def test_somebody_who_sends_seven_times_as_much_as_all_others_neither_delays_nor_costs_their_lessons() -> (
    None
):
    found = run_virtual(attacked(0, CROWD, CROWDED))
    assert (found["lessons"], found["destroyed"]) == (numbers(NONE, LAB)["lessons"], 0)
    assert found["delay"] < 1.0


@pytest.mark.parametrize("attack", ["contradictions", REWORDING, REMOVAL, EVICTION])
def test_in_a_lab_the_same_attacks_destroy_what_two_sources_support(attack: str) -> None:
    arm = LAB_SHORT if attack == EVICTION else LAB
    assert numbers(attack, arm)["destroyed_supported"] > 0


@pytest.mark.parametrize("attack", [*KNOWING, RIDING, "contradictions", "instructions to the curator"])
def test_in_public_three_who_collude_get_nothing_in_and_no_lesson_out(attack: str) -> None:
    found = numbers(attack, THREE)
    assert (found["harmful"], found["destroyed"], found["lessons"]) == (0, 0, numbers(NONE, LAB)["lessons"])


def test_in_public_nothing_counts_of_whom_nobody_can_prove() -> None:
    assert numbers(NONE, NOBODY)["shown"] == 0


@pytest.mark.parametrize("arm", [TEAM, PUBLIC])
def test_without_attackers_no_lesson_is_lost_and_nothing_waits(arm: str) -> None:
    honest = numbers(NONE, arm)
    assert (honest["lessons"], honest["waiting"]) == (numbers(NONE, LAB)["lessons"], 0)


def test_of_two_honest_sources_one_of_them_busy_neither_loses_or_waits() -> None:
    pair = run_virtual(unattacked(0, TEAM, pair=True))
    assert (pair["lessons"], pair["destroyed"], pair["waiting"]) == (numbers(NONE, LAB)["lessons"], 0, 0)


@pytest.mark.parametrize("arm", [LAB, TEAM, PUBLIC])
def test_of_honest_producers_who_say_lessons_word_for_word_nearly_all_reflections_count(arm: str) -> None:
    assert run_virtual(unattacked(0, arm))["counted"] > 0.99
