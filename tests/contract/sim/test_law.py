import json
from functools import cache
from pathlib import Path
from random import Random

import pytest
from benchmarks.law_fit import Runs, fit, points, run_all, run_naive, run_two_levels, within_bounds

from combee_schemas.reflection import Reflection
from combee_sim.family.knowledge import read_knowledge
from combee_sim.law.law import LAW, exact_text, in_steps, lessons_only, without_playbook
from combee_sim.law.rules import RULES
from combee_sim.law.samples import family_traces, reflections_on, task_traces


def rng(seed: int) -> Random:
    return Random(seed)


def formula_reflections(shared: Path) -> tuple[Reflection, ...]:
    known = read_knowledge(shared / "data" / "formula_train.jsonl")
    return reflections_on(task_traces([(row.question, row.target) for row in known.rows]), knowledge=known)


def test_the_law_keeps_everything_of_nothing_and_half_at_its_constant() -> None:
    assert LAW.keep_fraction(0) == 1.0
    assert LAW.keep_fraction(LAW.half_tokens) == pytest.approx(0.5)
    fractions = [LAW.keep_fraction(10.0**n) for n in range(7)]
    assert fractions == sorted(fractions, reverse=True)


def test_tokens_count_playbook_lessons_and_the_text_around_them_in_powers_of_eight() -> None:
    lesson = "x" * 40
    assert in_steps([lesson], [], 0) == 10
    assert in_steps([], [lesson], 40) == 10
    assert in_steps([], [lesson], 40 * 4) == in_steps([], [lesson], 40 * 20) == 80
    assert in_steps([], [lesson], 40 * 64) == 640


def test_other_ways_of_counting_leave_out_what_they_say() -> None:
    entry, lesson, text_chars = "e" * 80, "x" * 40, 400
    assert exact_text([entry], [lesson], text_chars) == 120
    assert without_playbook([entry], [lesson], text_chars) == 100
    assert lessons_only([entry], [lesson], text_chars) == 30


def test_two_levels_are_simulated_under_the_same_law_and_keep_lineage() -> None:
    reflections = reflections_on(family_traces(rng(0), 80))
    counts, playbook = run_two_levels(reflections, 40)
    assert len(counts) == 2
    assert all(entry.evidence for entry in playbook.entries)
    assert sum(counts) > len(playbook.entries), "what is named as known counts, as repeats do in the paper"
    assert run_two_levels(reflections, 40) == (counts, playbook)
    assert run_two_levels(reflections[:3], 3)[0] == (run_naive(reflections[:3], 3, seed=0)[0][0].entries,)


def test_naive_aggregation_of_the_built_in_family_reproduces_the_row_of_naive_ace() -> None:
    reflections = reflections_on(family_traces(rng(0), 500))
    assert within_bounds(points(run_all(reflections, seeds=[0])))


@cache
def formula_runs(shared: Path, name: str, seed: int) -> Runs:
    return run_all(formula_reflections(shared), seeds=[seed], law=RULES[name])


@pytest.mark.shared
@pytest.mark.parametrize("name", RULES)
def test_every_counting_rule_reproduces_the_row(shared: Path, name: str) -> None:
    runs = [formula_runs(shared, name, seed) for seed in range(3)]
    assert within_bounds(points({size: [call for run in runs for call in run[size]] for size in runs[0]}))


@pytest.mark.shared
def test_fitting_again_gives_the_committed_constants(shared: Path) -> None:
    reflections = formula_reflections(shared)
    law = fit(reflections, seeds=[0])
    assert law.half_tokens == pytest.approx(LAW.half_tokens, rel=0.05)
    assert law.steepness == pytest.approx(LAW.steepness, rel=0.05)


@pytest.mark.shared
def test_fifty_formulas_are_fifty_lessons(shared: Path) -> None:
    reflections = formula_reflections(shared)
    assert len({reflection.key_insight for reflection in reflections}) == 50


@pytest.mark.shared
def test_equation_traces_hold_a_few_dozen_lessons(shared: Path) -> None:
    path = shared / "data" / "traces_equation_balancer.jsonl"
    read = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    reflections = reflections_on(task_traces([(row["task"], row["target"]) for row in read]))
    assert 20 <= len({reflection.key_insight for reflection in reflections}) <= 60
