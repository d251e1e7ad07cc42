"""``stragglers``: rules on drawn times, batches in virtual time, and the criteria."""

import pytest

from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.setup import Setup
from combee_experiments.stragglers import experiment
from combee_experiments.stragglers.choice import GROUPS, Rule, simulate
from combee_experiments.stragglers.experiment import ARMS, HEAVY
from combee_experiments.stragglers.report import ON, PLAIN
from combee_sim.server.latency import Latency

SETUP = Setup(data=(family(10),), seeds=tuple(range(3)))
HEAVY_TAIL = Latency(median_s=1, sigma=1.0)
WAITS = Rule(late=None, quantile=1)


def test_of_fixed_times_nothing_is_left_out_and_nothing_gained() -> None:
    fixed = Latency(median_s=1)
    for rule in (WAITS, Rule(late=2.0, quantile=1)):
        assert simulate(fixed, rule, 0) == {"mean_s": 2.0, "p95_s": 2.0, "left_out": 0, "hedges": 0}


def test_under_a_heavy_tail_a_rule_saves_time_and_leaves_out_about_a_group() -> None:
    waiting, going_on = (simulate(HEAVY_TAIL, rule, 0) for rule in (WAITS, Rule(late=2.0, quantile=0.6)))
    assert going_on["mean_s"] < 0.7 * waiting["mean_s"]
    assert 0.5 < going_on["left_out"] < GROUPS / 5
    assert 0.3 < going_on["hedges"] < 0.5


@pytest.fixture
def few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "BATCHES", 12)


@pytest.mark.usefixtures("few_batches")
def test_batches_are_faster_in_virtual_time_and_every_call_is_counted() -> None:
    cells = [Cell.of(arm, 0, asks="times", times=HEAVY) for arm in ARMS]
    plain, on = (experiment.measure(SETUP, cell) for cell in cells)
    assert on["mean_s"] < plain["mean_s"]
    assert plain["begun"] == plain["planned"] == plain["counted"]
    assert on["left_out"] > 0
    assert on["counted"] == on["planned"] + on["hedges"]
    assert experiment.measure(SETUP, cells[1]) == on  # again, the same


def measured(**spoilt: float) -> Measured:
    """Return numbers that meet every criterion; those of the arm that does not wait may be spoilt."""

    def numbers(cell: Cell) -> Numbers:
        mine = {"mean_s": 6.0, "p95_s": 4.0, "lessons": 48.0 + cell.seed, "begun": 105.0, "counted": 105.0}
        plain = {"mean_s": 10.0, "p95_s": 10.0, "lessons": 48.0 + cell.seed, "begun": 100.0, "counted": 100.0}
        calls = {"planned": 100.0, "hedges": 5.0 if cell.arm == ON else 0.0, "left_out": 1.0}
        return {**calls, **(plain if cell.arm in {PLAIN, "wait for all"} else {**mine, **spoilt})}

    return Measured({cell: numbers(cell) for cell in experiment.cells(SETUP)})


@pytest.mark.parametrize(
    ("spoilt", "missed"),
    [
        ({}, 0),
        ({"mean_s": 6.6}, 2),
        ({"p95_s": 5.1}, 2),
        ({"begun": 111.0}, 1),
        ({"counted": 104.0}, 1),
        ({"lessons": 40.0}, 2),
    ],
)
def test_each_criterion_is_missed_by_its_own_number_and_misses_come_first(
    spoilt: dict[str, float], missed: int
) -> None:
    verdicts = experiment.report(SETUP, measured(**spoilt)).verdicts
    assert [verdict.met for verdict in verdicts] == [False] * missed + [True] * (len(verdicts) - missed)
