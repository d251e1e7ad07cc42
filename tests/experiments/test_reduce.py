"""``reduce``: what its arms share, what it counts, and the criteria on made-up numbers."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from combee.ports import FatalError
from combee.sim.family.falsehoods import invented, opposite
from combee.sim.family.family import latent
from combee.sim.family.wordings import all_wordings
from combee.sim.law.rules import IN_FORCE, RULES
from combee.sim.modes import Modes
from combee_experiments.data.generated import quantities
from combee_experiments.reduce import experiment
from combee_experiments.reduce.report import ALIKE, EMPTY, LARGE, PARAPHRASE, SINGLE, SURE, TODAY
from combee_experiments.robustness.experiment import MODES
from combee_experiments.robustness.report import NONE
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Verdict
from combee_experiments.running.setup import Setup

SETUP = Setup(data=(), seeds=(0, 1))
TOPIC, TOPIC_CARRY = "topic, 1,000", "topic, 1,000, carry"


def cell(arm: str, *, mode: str = NONE, given: str = EMPTY, size: int = 100, law: str = IN_FORCE) -> Cell:
    return Cell.of(arm, 0, reflections=size, given=given, mode=mode, law=law)


def test_it_goes_through_rules_and_modes_by_itself_and_reads_the_samples_bound() -> None:
    for asked in (replace(SETUP, law="lessons_only"), replace(SETUP, modes=Modes(invented=1.0))):
        with pytest.raises(FatalError, match="leave out"):
            list(experiment.cells(asked))
    cells = list(experiment.cells(SETUP))
    assert len(set(cells)) == len(cells)
    places = {(each.number("reflections"), each.text("given")) for each in cells}
    assert places == {(100, EMPTY), (100, LARGE), (100, ALIKE), (400, EMPTY), (2_000, EMPTY)}
    few = experiment.cells(replace(SETUP, samples=100))
    assert {each.number("reflections") for each in few} == {100}


def test_lessons_are_counted_by_meaning_and_what_is_wrong_or_made_up_is_none() -> None:
    first, second, third = quantities(3)
    right = latent(first).sentence()
    wrong = opposite(latent(second).sentence())
    assert wrong is not None
    made_up = [invented("x"), invented("correlated", 7, 2)]
    found = experiment.lessons_in((first, second, third), [*all_wordings(right)[:3], wrong, *made_up], 7)
    assert (found["lessons"], found["lessons_there"], found["wordings_per_lesson"]) == (1, 3, 3.0)
    assert (found["invented"], found["invented_by_calls"], found["wrong"]) == (2, 1, 1)


def test_arms_that_share_what_is_asked_below_measure_what_they_measure_alone() -> None:
    shared = {arm: experiment.measure(SETUP, cell(arm, mode="invented")) for arm in experiment.ARMS}
    for arm, numbers in shared.items():
        experiment._remembered.cache_clear()
        assert experiment.measure(SETUP, cell(arm, mode="invented")) == numbers


def test_by_topic_keeps_more_than_a_single_combine_and_carry_makes_them_equal() -> None:
    found = {arm: experiment.measure(SETUP, cell(arm)) for arm in experiment.ARMS}
    assert found[SINGLE]["lessons"] < found[TOPIC]["lessons"] < found[TODAY]["lessons"]
    assert found[TOPIC_CARRY]["lessons"] == found[TODAY]["lessons"]
    assert found[TOPIC_CARRY]["calls"] > found[TODAY]["calls"]
    assert found[TOPIC_CARRY]["carried"] < found[TODAY]["carried"]


# ---- the criteria

EVEN = {"lessons": 20, "lessons_there": 25, "wordings_per_lesson": 2.0, "invented": 20, "wrong": 0}
EVEN |= {"invented_by_calls": 20, "contradicted": 0, "calls": 10, "tokens_in": 1000, "seconds": 2}
WORSE: Mapping[str, Numbers] = {
    "lessons": {"lessons": 19},
    "wordings": {"wordings_per_lesson": 2.2},
    "invented": {"invented": 22},
    "tokens": {"tokens_in": 1101},
    "calls": {"calls": 16},
}
NAMES = (*WORSE, "fewer", "gains")


def judged(changes: Mapping[tuple[str, str, str], Numbers]) -> dict[str, Verdict]:
    """Return the verdicts on topics without carry, which keep as much as today but for what is changed."""
    return dict(zip(NAMES, verdicts_on(TOPIC, changes), strict=True))


def verdicts_on(own: str, changes: Mapping[tuple[str, str, str], Numbers]) -> tuple[Verdict, ...]:
    cells = {
        Cell.of(arm, seed, reflections=100, given=EMPTY, law=law, mode=mode): {
            **EVEN,
            **({"lessons": 10} if arm == SINGLE else {}),
            **({"wordings_per_lesson": 1.5} if arm == TOPIC else {}),
            **changes.get((arm, law, mode), {}),
        }
        for law, mode, arm, seed in product(RULES, MODES, (SINGLE, TODAY, own), (0, 1))
    }
    return experiment.report(SETUP, Measured(cells)).verdicts


def test_as_many_lessons_in_fewer_entries_at_the_same_price_meet_all_criteria() -> None:
    assert all(verdict.met for verdict in judged({}).values())


@pytest.mark.parametrize("criterion", WORSE)
def test_one_rule_and_mode_in_which_a_criterion_fails_is_enough(criterion: str) -> None:
    found = judged({(TOPIC, "lessons_only", "invented"): WORSE[criterion]})
    assert [name for name, verdict in found.items() if not verdict.met] == [criterion]
    assert "lessons_only, mode invented" in found[criterion].told


def test_a_rule_under_which_nothing_is_won_is_enough() -> None:
    found = judged({(TOPIC, "lessons_only", PARAPHRASE): {"wordings_per_lesson": 2.0}})
    assert [name for name, verdict in found.items() if not verdict.met] == ["fewer"]


def test_without_carry_more_lessons_than_the_single_combine_are_wanted_everywhere() -> None:
    found = judged({(SINGLE, "exact_text", "all"): {"lessons": 20}})
    assert [name for name, verdict in found.items() if not verdict.met] == ["gains"]


def without_guesses(changes: Mapping[tuple[str, str, str], Numbers]) -> list[bool]:
    """Return whether as many lessons are kept, and half of what calls invent at most, but for what is changed."""
    halved = {
        (SURE, law, mode): {"invented_by_calls": 10} for law, mode in product(RULES, ("invented", "all"))
    }
    return [verdict.met for verdict in verdicts_on(SURE, {**halved, **changes})]


def test_a_carry_without_guesses_must_keep_the_lessons_and_halve_what_calls_invent_under_every_rule() -> None:
    assert without_guesses({}) == [True, True]
    assert without_guesses({(SURE, "exact_text", PARAPHRASE): {"lessons": 19}}) == [False, True]
    for mode in ("invented", "all"):
        assert without_guesses({(SURE, "exact_text", mode): {"invented_by_calls": 11}}) == [True, False]
    assert without_guesses({(SURE, "exact_text", "correlated"): {"invented": 99}}) == [True, True]


def test_a_carry_without_guesses_passes_on_less_of_what_calls_invent() -> None:
    today, sure = (experiment.measure(SETUP, cell(arm, mode="invented")) for arm in (TODAY, SURE))
    assert sure["invented_by_calls"] < today["invented_by_calls"] == today["invented"]
    assert sure["carried"] < today["carried"]
    assert sure["calls"] == today["calls"]


def test_a_carry_without_guesses_is_compared_on_20_seeds_and_the_other_tables_keep_theirs() -> None:
    setup = replace(SETUP, seeds=tuple(range(20)))
    cells = {each: EVEN for each in experiment.cells(setup) if each.number("reflections") == 400}
    seeds = {arm: {each.seed for each in cells if each.arm == arm} for arm in (TODAY, SURE, TOPIC)}
    assert [len(each) for each in seeds.values()] == [20, 20, 5]
    late = {each: {**EVEN, "lessons": 0} for each in cells if each.arm == TODAY and each.seed >= 5}
    report = experiment.report(setup, Measured({**cells, **late}))
    kept, *_, pair = report.tables
    assert SURE not in kept.columns
    assert {row[kept.columns.index(TODAY)] for row in kept.rows} == {"20.0"}
    assert {row[pair.columns.index("lessons")] for row in pair.rows} == {"5.0 / 20.0"}
