"""The experiments on small data, and the criteria of the first four on made-up numbers."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from combee.adapters.ports import FatalError
from combee.core.batching.sizing.policy import SizingPolicy
from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN
from combee_experiments.arrivals import experiment as arrivals
from combee_experiments.asynchronous import experiment as asynchronous
from combee_experiments.attacks import experiment as attacks
from combee_experiments.attacks import run as attacks_run
from combee_experiments.canary import experiment as canary
from combee_experiments.catalogue import CATALOGUE
from combee_experiments.controller import epoch as controller_epoch
from combee_experiments.controller import experiment as controller
from combee_experiments.copies import experiment as copies
from combee_experiments.data.samples import family
from combee_experiments.overload import experiment as overload
from combee_experiments.price import experiment as price
from combee_experiments.robustness import experiment as robustness
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Verdict
from combee_experiments.running.results import as_markdown
from combee_experiments.running.run import run
from combee_experiments.running.setup import Setup
from combee_experiments.running.store import Store
from combee_experiments.scale import experiment as scale
from combee_experiments.shuffling import experiment as shuffling
from combee_experiments.stragglers import choice
from combee_experiments.stragglers import experiment as stragglers
from combee_sim.law.rules import RULES
from combee_sim.modes import Modes

SMALL = Setup(data=(family(60, quantities=12),), seeds=(0,), samples=160)
SMALLEST = Setup(data=(family(40, quantities=8),), seeds=(0,), samples=80)
"""What every experiment still finds something in."""


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the longest experiments as small as their reports allow."""
    policy = SizingPolicy(kind="plateau", candidates=(5, 10), most=20)
    monkeypatch.setattr(controller, "POLICY", policy)
    monkeypatch.setattr(controller_epoch, "POLICY", policy)
    monkeypatch.setattr(controller, "SIZES", (20,))
    monkeypatch.setattr(controller, "AGENT_CALLS", 1)
    monkeypatch.setattr(asynchronous, "FLEETS", (20,))
    monkeypatch.setattr(asynchronous, "KINDS", ("fixed",))
    monkeypatch.setattr(shuffling, "COPIES", (2,))
    monkeypatch.setattr(scale, "SIZES", (20, 40))
    monkeypatch.setattr(robustness, "SIZES", (20,))
    monkeypatch.setattr(price, "STARTS", (1_500,))
    monkeypatch.setattr(arrivals, "RATES", {10_000: 80})
    monkeypatch.setattr(copies, "SIZES", (4,))
    monkeypatch.setattr(stragglers, "BATCHES", 4)
    monkeypatch.setattr(choice, "BATCHES", 100)
    few = {name: replace(setting, decisions=1) for name, setting in canary.SETTINGS.items()}
    monkeypatch.setattr(canary, "SETTINGS", few)
    monkeypatch.setattr(canary, "MOST_RUNS", 1_000)
    monkeypatch.setattr(attacks, "ATTACKS", ("none", "slow drip"))
    monkeypatch.setattr(attacks_run, "ROUNDS", 2)


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize("name", CATALOGUE)
def test_an_experiment_runs_and_says_what_it_found(name: str, tmp_path: Path) -> None:
    _, report = run(CATALOGUE[name].load(), SMALLEST, Store(tmp_path / "cells.jsonl"))
    text = as_markdown(name, SMALLEST, report)
    assert report.verdicts
    assert report.panels
    assert "**Simulated**" in text
    for table in report.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_under_a_mode_overload_shows_what_else_is_in_the_playbook(tmp_path: Path) -> None:
    setup = replace(SMALL, modes=Modes(paraphrase=0.5, invented=1.0))
    _, report = run(overload, setup, Store(tmp_path / "cells.jsonl"))
    table = report.tables[-1]
    assert table.columns[:4] == ("batch size", "named", "wordings per lesson", "invented")
    assert all(row[3] != "0 / 0 / 0" for row in table.rows)


# ---- robustness: the criteria


def robust(changes: Mapping[tuple[str, str, str], Numbers]) -> dict[str, Verdict]:
    """Return the verdicts where all keep 40 lessons but where (arm, rule, mode) has other numbers."""
    even = {"lessons": 40, "lessons_there": 50, "accuracy": 0.8, "entries": 40, "wordings_per_lesson": 1.0}
    even |= {"named": 40, "invented": 0, "wrong": 0, "contradicted": 0}
    data = SMALL.data[0].name
    cells = {
        Cell.of(arm, 0, data=data, law=law, mode=mode, batch_size=20): {
            **even,
            **changes.get((arm, law, mode), {}),
        }
        for law, mode, arm in product(RULES, robustness.MODES, (NAIVE.name, PLAIN.name, ADAPTIVE.name))
    }
    found = robustness.report(SMALL, Measured(cells)).verdicts
    return dict(zip(("plain", "naive", "no gain", "wordings", "invented", "pairs"), found, strict=True))


def test_it_goes_through_rules_and_modes_by_itself() -> None:
    for asked in (replace(SMALL, law="lessons_only"), replace(SMALL, modes=Modes(invented=1.0))):
        with pytest.raises(FatalError, match="leave out"):
            list(robustness.cells(asked))


MORE = {(ADAPTIVE.name, law, mode): {"lessons": 41} for law in RULES for mode in robustness.MODES}


def test_where_nothing_fails_and_adaptive_is_ahead_all_criteria_are_met() -> None:
    assert all(verdict.met for verdict in robust(MORE).values())


def test_behind_plain_under_one_rule_and_mode_is_missed_and_says_where() -> None:
    judged = robust({**MORE, (ADAPTIVE.name, "lessons_only", "invented"): {"lessons": 38}})["plain"]
    assert not judged.met
    assert judged.told == "behind in 1 of 28; worst -2.0 (lessons_only, mode invented, batch size 20)"


def test_behind_naive_is_missed_but_for_lessons_only() -> None:
    ahead = {"lessons": 42}
    assert robust({**MORE, (NAIVE.name, "lessons_only", "none"): ahead})["naive"].met
    assert not robust({**MORE, (NAIVE.name, "exact_text", "none"): ahead})["naive"].met


@pytest.mark.parametrize(
    ("criterion", "mode", "numbers"),
    [
        ("wordings", "paraphrase", {"lessons": 41, "wordings_per_lesson": 1.2}),
        ("invented", "correlated", {"lessons": 41, "invented": 5}),
        ("invented", "all", {"lessons": 41, "invented": 5}),
        ("pairs", "contradictions", {"lessons": 41, "contradicted": 2}),
    ],
)
def test_each_mode_has_its_limit(criterion: str, mode: str, numbers: Numbers) -> None:
    found = robust({**MORE, (ADAPTIVE.name, "exact_text", mode): numbers})
    assert [name for name, verdict in found.items() if not verdict.met] == [criterion]
    assert f"exact_text, mode {mode}" in found[criterion].told
