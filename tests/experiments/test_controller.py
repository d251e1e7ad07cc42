"""``controller``: the front of a sweep, the noise around it, and epochs with and without the controller."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.adapters.ports import FatalError
from combee.core.batching.sizing.policy import SizingPolicy
from combee_experiments.arms.tails import SlowModel
from combee_experiments.controller import epoch as controller_epoch
from combee_experiments.controller import experiment as controller
from combee_experiments.controller.choice_report import BY_ITERATIONS, BY_VERSIONS, FIXED
from combee_experiments.controller.epoch import (
    Circumstances,
    Epoch,
    Next,
    by_iterations,
    by_versions,
    fixed,
    run_epoch,
)
from combee_experiments.controller.front import Difference, Point, front, rivals
from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured, Numbers, Spread
from combee_experiments.running.report import Report, Verdict
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.reflection import Reflection
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.samples import reflections_on, task_traces
from combee_sim.server.latency import Latency

POLICY = SizingPolicy(kind="plateau", candidates=(2, 4), most=8)


def reflections(count: int) -> Sequence[Reflection]:
    rows = [
        (f"Use formula F{n} to answer. Formula: F{n} = {n} / x, Explanation: x", "1.0") for n in range(count)
    ]
    return reflections_on(task_traces(rows))


def point(name: object, delay_s: float, *accuracy: float) -> Point:
    """Return a point whose delay is the same on every seed."""
    delays = Spread(values=(delay_s,) * len(accuracy))
    return Point(name=str(name), delay_s=delays, accuracy=Spread(values=accuracy))


# ---- the front

SWEEP = (point(5, 400, 0.9), point(10, 200, 0.95), point(50, 100, 0.8), point(100, 110, 0.7))


def test_the_front_holds_what_nothing_beats_fastest_first() -> None:
    assert [one.name for one in front(SWEEP)] == ["50", "10"]


def test_an_equal_point_beats_nothing_and_equal_accuracy_in_less_time_does() -> None:
    one, same, faster = point(1, 10, 0.5), point(2, 10, 0.5), point(3, 9, 0.5)
    assert not one.beats(same)
    assert faster.beats(one)
    assert not one.beats(faster)


points = st.builds(point, st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))


@given(st.lists(points, min_size=1, max_size=12))
def test_every_point_is_on_the_front_or_beaten_by_one_that_is(found: list[Point]) -> None:
    best = front(found)
    assert best
    for one in found:
        assert (one in best) != any(other.beats(one) for other in best)
        assert (one in best) == (not any(other.beats for other in rivals(one, found)))


# ---- the noise


def test_a_difference_is_taken_seed_by_seed() -> None:
    """Both spread over 0.4, and yet every seed says the same."""
    low, high = Spread(values=(0.1, 0.3, 0.5)), Spread(values=(0.2, 0.4, 0.6))
    found = Difference.of(high, low)
    assert found.mean == pytest.approx(0.1)
    assert found.error == pytest.approx(0)
    assert not Difference.of(Spread(values=(0.6, 0.4, 0.2)), low).is_clear


@pytest.mark.parametrize(
    ("accuracies", "beats", "is_clear"),
    [
        ((0.7, 0.8), True, True),
        ((0.8, 0.4), True, False),
        ((0.2, 0.8), False, False),
    ],
    ids=["better on every seed", "a little better by luck", "a little worse by bad luck"],
)
def test_what_is_faster_beats_as_clearly_as_its_seeds_agree(
    accuracies: tuple[float, float], *, beats: bool, is_clear: bool
) -> None:
    (rival,) = rivals(point("c", 10, 0.5, 0.6), [point(1, 9, *accuracies), point(2, 9, 0.4, 0.5)])
    assert (rival.name, rival.beats, rival.is_clear) == ("1", beats, is_clear)


def test_one_seed_tells_nothing_from_noise() -> None:
    (rival,) = rivals(point("c", 10, 0.5), [point(1, 9, 0.9)])
    assert (rival.beats, rival.is_clear) == (True, False)


# ---- the report

SETUP = Setup(data=(family(200),), seeds=(0, 1))


def reported(choice: Numbers, sweep: Mapping[int, Numbers], setup: Setup = SETUP) -> Report:
    """Return the report where every fixed size has the same numbers except these, and every choice has one's."""
    common: Numbers = {"lessons": 1, "alpha": 0.7, "r_squared": 0.9, "delay_s": 1, "chosen": 55}
    dull: Numbers = {"seconds": 900.0, "accuracy": 0.1}
    cells = {}
    for cell in controller.cells(setup):
        own = {**dull, **(choice if cell.arm != FIXED else sweep.get(cell.number("batch_size"), {}))}
        profiled = {"profiled_seconds": 1.0, "profiled_accuracy": 0.5}
        # The odd seed is luckier, so that there is a spread.
        luck = {"accuracy": own["accuracy"] + 0.1 * cell.seed * own.get("luck", 1)}
        cells[cell] = {**common, **profiled, **own, **luck, "epoch_s": own["seconds"]}
    return controller.report(setup, Measured(cells))


def first(choice: Numbers, sweep: Mapping[int, Numbers]) -> Verdict:
    return reported(choice, sweep).verdicts[0]


CHOICE = {"seconds": 100.0, "accuracy": 0.8}


@pytest.mark.parametrize(
    ("accuracy", "luck", "met"),
    [(0.7, 1.0, True), (0.9, 1.0, False), (0.92, -1.0, False), (0.88, -1.0, True)],
    ids=["beaten by nothing", "beaten", "beaten within the noise", "not told from beaten"],
)
def test_a_choice_that_something_beats_misses_the_criterion(
    accuracy: float, luck: float, *, met: bool
) -> None:
    verdict = first(CHOICE, {50: {"seconds": 90.0, "accuracy": accuracy, "luck": luck}})
    assert verdict.met is met
    assert ("beaten" in verdict.told) == (accuracy != 0.7)


def test_fewer_samples_than_the_controller_may_choose_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(FatalError, match="199 samples; the controller may choose 200"):
        list(controller.cells(replace(SETUP, data=(family(199),))))


# ---- epochs


def epoch(following: Next, count: int = 20) -> Epoch:
    async def ran() -> Epoch:
        model = SlowModel(SimulatedModel(), Latency(median_s=1), seed=0, concurrency=32)
        given_ = Circumstances(model=model, agent=Latency(median_s=4), agents=64, seed=0)
        return await run_epoch(given_, reflections(count), following)

    return run_virtual(ran())


def test_a_fixed_size_is_taken_until_every_reflection_is_applied() -> None:
    ran = epoch(fixed(9))
    assert [one.batch_size for one in ran.iterations] == [9, 9, 2]
    assert ran.playbook.through_offset == 19
    assert ran.delay_of(9) == pytest.approx(4 + 2 + len(["check", "about what is left"]), abs=0.2)
    assert ran == epoch(fixed(9))


@pytest.mark.parametrize("following", [by_iterations, by_versions], ids=["whole iterations", "as deployed"])
def test_the_controller_profiles_its_candidates_and_goes_on_with_what_it_chose(
    following: Next, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_epoch, "POLICY", POLICY)
    ran = epoch(following)
    assert [one.batch_size for one in ran.iterations[:2]] == [2, 4]
    assert ran.decision is not None
    assert ran.decision.phase == "settled"
    assert {one.batch_size for one in ran.iterations[2:-1]} == {ran.decision.batch_size}
    assert sum(one.batch_size for one in ran.iterations) == 20


@pytest.mark.parametrize(("arm", "way"), [(BY_ITERATIONS, "GEPA"), (BY_VERSIONS, "ACE, carry on")])
def test_the_choice_is_measured_in_an_epoch_of_its_own(
    arm: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_epoch, "POLICY", POLICY)
    setup = Setup(data=(family(16),), seeds=(0,))
    found = controller.measure(setup, Cell.of(arm, 0, data="task family", batch_size=0, way=way))
    size = int(found["chosen"])
    alone = controller.measure(setup, Cell.of(FIXED, 0, data="task family", batch_size=size, way=way))
    assert {name: found[name] for name in alone} == alone
    assert alone["iterations"] == -(-16 // size)
    assert found["profiled_seconds"] != found["seconds"]
