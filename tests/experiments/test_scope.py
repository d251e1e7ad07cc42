"""``scope``: the large playbook it begins with, what its arms read, and the criteria."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from combee.adapters.ports import FatalError
from combee.core.text.prompt import entry_tokens
from combee_experiments.arms.material import reflections
from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, Verdict
from combee_experiments.running.setup import Setup
from combee_experiments.scope import experiment
from combee_experiments.scope.experiment import MODES, START_TOKENS, large_playbook
from combee_experiments.scope.report import AGENTS, NONE, PARAPHRASE, WHOLE
from combee_experiments.scoring.lessons import lessons_of
from combee_sim.law.rules import IN_FORCE, RULES
from combee_sim.modes import Modes

DATA = family(120)
SETUP = Setup(data=(DATA,), seeds=(0, 1))
SCOPED = "20 entries"
TOKENS = START_TOKENS[0]


def test_the_playbook_at_the_start_is_large_and_holds_half_of_the_lessons() -> None:
    known = reflections(SETUP, DATA, 0)
    for tokens in START_TOKENS:
        begin = large_playbook(DATA, known, 0, tokens)
        assert tokens <= sum(map(entry_tokens, begin.entries)) < tokens + 100
    lessons = lessons_of(DATA)
    contents = [entry.content for entry in begin.entries]
    assert len(lessons.kept(contents)) == len(lessons.names) // 2
    assert len({*contents}) == len({entry.id for entry in begin.entries}) == len(contents)
    assert large_playbook(DATA, known, 0, tokens) == begin
    assert large_playbook(DATA, reflections(SETUP, DATA, 1), 1, tokens) != begin


def test_it_goes_through_rules_and_modes_by_itself_and_agents_are_measured_under_one() -> None:
    for asked in (replace(SETUP, law="lessons_only"), replace(SETUP, modes=Modes(invented=1.0))):
        with pytest.raises(FatalError, match="leave out"):
            list(experiment.cells(asked))
    cells = list(experiment.cells(SETUP))
    assert len(set(cells)) == len(cells)
    assert {cell.text("law") for cell in cells if cell.arm == AGENTS} == {IN_FORCE}


def test_what_is_read_is_less_and_the_reflector_s_calls_are_in_the_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "ITERATIONS", 1)
    whole, scoped, agents = (
        experiment.measure(SETUP, Cell.of(arm, 0, data=DATA.name, law=IN_FORCE, mode=NONE, tokens=TOKENS))
        for arm in (WHOLE, SCOPED, AGENTS)
    )
    assert scoped["update_in"] < whole["update_in"] / 3
    assert scoped["reflect_cost"] == whole["reflect_cost"] > 0
    assert scoped["cost"] == pytest.approx(scoped["reflect_cost"] + scoped["update_cost"])
    assert agents["agents_in"] < scoped["agents_in"] / 5
    for numbers in (whole, scoped, agents):
        for who in ("agents", "reflect", "update"):
            new = numbers[f"{who}_in"] - numbers[f"{who}_cached"]
            billed = new + 0.1 * numbers[f"{who}_cached"] + 4 * numbers[f"{who}_out"]
            assert numbers[f"{who}_cost"] == pytest.approx(billed)


# ---- the criteria


def reported(changes: Mapping[tuple[str, str, str], Numbers]) -> Report:
    """Return the report on 20 entries, which cost half and keep as much but for what is changed."""
    tokens = {
        f"{who}_{part}": 1 for who in ("agents", "reflect", "update") for part in ("in", "cached", "out")
    }
    even = {
        "lessons": 40,
        "lessons_there": 50,
        "lessons_before": 25,
        "entries": 40,
        "wordings_per_lesson": 1.0,
    }
    even |= {**tokens, "agents_cost": 1000}
    cells = {
        Cell.of(arm, seed, data=DATA.name, law=law, mode=mode, tokens=tokens): {
            **even,
            "cost": 1000 if arm == WHOLE else 500,
            **changes.get((arm, law, mode), {}),
        }
        for tokens, law, mode, arm, seed in product(START_TOKENS, RULES, MODES, (WHOLE, SCOPED), (0, 1))
    }
    return experiment.report(SETUP, Measured(cells))


def judged(changes: Mapping[tuple[str, str, str], Numbers]) -> dict[str, Verdict]:
    found = reported(changes).verdicts[:3]  # with the smaller playbook
    return dict(zip(("cost", "lessons", "wordings"), found, strict=True))


def test_at_half_the_cost_with_as_many_lessons_and_wordings_all_criteria_are_met() -> None:
    assert all(verdict.met for verdict in judged({}).values())


@pytest.mark.parametrize(
    ("criterion", "numbers"),
    [("cost", {"cost": 501}), ("lessons", {"lessons": 39}), ("wordings", {"wordings_per_lesson": 1.2})],
)
def test_one_rule_and_mode_in_which_a_criterion_fails_is_enough(criterion: str, numbers: Numbers) -> None:
    found = judged({(SCOPED, "lessons_only", PARAPHRASE): numbers})
    assert [name for name, verdict in found.items() if not verdict.met] == [criterion]
    assert f"lessons_only, {PARAPHRASE}" in found[criterion].told
