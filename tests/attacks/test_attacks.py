"""Malicious producers against a deployment in memory: what each protection must hold, and what fails without it."""

from functools import cache

import pytest

from combee_experiments.attacks.producers import ATTACKS, NONE, RIDING, SYBIL
from combee_experiments.attacks.protections import ALL_APPROVE, ALL_EVALUATE, APPROVE, CAPPED, OFF
from combee_experiments.attacks.run import attacked, unattacked
from combee_experiments.running.cells import Numbers
from combee_experiments.running.virtual_time import run_virtual

ATTACKED = [attack for attack in ATTACKS if attack != NONE]


@cache
def numbers(attack: str, arm: str) -> Numbers:
    return run_virtual(attacked(0, attack, arm))


@pytest.mark.parametrize("attack", ATTACKED)
def test_without_protections_every_attack_reaches_production(attack: str) -> None:
    assert numbers(attack, OFF)["harmful"] > 0


@pytest.mark.parametrize("attack", ATTACKED)
def test_what_a_careful_person_must_approve_shows_nothing_harmful(attack: str) -> None:
    assert numbers(attack, APPROVE)["harmful"] == 0


@pytest.mark.parametrize("attack", ATTACKED)
def test_caps_and_probation_at_least_halve_what_attackers_get_into_production(attack: str) -> None:
    assert numbers(attack, CAPPED)["share"] <= numbers(attack, OFF)["share"] / 2


def test_a_curator_that_obeys_costs_no_honest_lesson_where_it_reads_no_instructions() -> None:
    assert numbers("instructions to the curator", CAPPED)["lessons"] == numbers(NONE, OFF)["lessons"]


@pytest.mark.parametrize("arm", ["several sources", CAPPED, ALL_EVALUATE])
def test_who_rides_on_honest_words_gets_nothing_in_and_no_lesson_out(arm: str) -> None:
    ridden = numbers(RIDING, arm)
    assert (ridden["harmful"], ridden["lessons"]) == (0, numbers(NONE, OFF)["lessons"])


@pytest.mark.parametrize("arm", [OFF, CAPPED])
def test_of_honest_producers_who_say_lessons_word_for_word_nearly_all_reflections_count(arm: str) -> None:
    verbatim = run_virtual(unattacked(0, arm, 1))
    assert verbatim["counted"] > 0.99
    assert verbatim["lessons"] == numbers(NONE, OFF)["lessons"]


@pytest.mark.parametrize("arm", [CAPPED, ALL_APPROVE])
def test_without_attackers_no_lesson_is_lost(arm: str) -> None:
    assert numbers(NONE, arm)["lessons"] == numbers(NONE, OFF)["lessons"]


@pytest.mark.parametrize(
    ("attack", "arm"),
    [
        ("instructions to agents", "flagged texts"),
        ("stuffing", "several sources"),
        ("harmful tags", "several sources"),
        ("forged scores", "several sources"),
        (RIDING, "several sources"),
        (SYBIL, "new sources"),
    ],
)
def test_a_protection_by_itself_keeps_out_what_it_is_for(attack: str, arm: str) -> None:
    assert numbers(attack, arm)["harmful"] == 0
