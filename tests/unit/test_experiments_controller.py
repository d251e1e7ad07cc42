from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from combee.experiments.controller import Iteration, run_epoch
from combee.experiments.controller_front import Point, front, verdict
from combee.sim.inprocess import SimulatedModel
from combee.sim.naive import reflections_on, task_traces
from combee_schemas.reflection import Reflection


def reflections(count: int) -> Sequence[Reflection]:
    rows = [
        (f"Use formula F{n} to answer. Formula: F{n} = {n} / x, Explanation: x", "1.0") for n in range(count)
    ]
    return reflections_on(task_traces(rows))


def point(batch_size: float, delay_s: float, accuracy: float) -> Point:
    return Point(batch_size=batch_size, delay_s=delay_s, accuracy=accuracy)


SWEEP = (point(5, 400, 0.9), point(10, 200, 0.95), point(50, 100, 0.8), point(100, 110, 0.7))


def test_the_front_holds_what_nothing_beats_fastest_first() -> None:
    assert [one.batch_size for one in front(SWEEP)] == [50, 10]


def test_a_choice_on_the_front_meets_the_criterion_and_another_misses_it_with_its_numbers() -> None:
    assert verdict(point(40, 105, 0.85), SWEEP).startswith("met: batch size 40: 105 s, accuracy 0.850")
    assert verdict(SWEEP[2], SWEEP).startswith("met")
    missed = verdict(point(90, 120, 0.75), SWEEP)
    assert missed == (
        "missed: batch size 90: 120 s, accuracy 0.750; batch size 50 takes 100 s and gives 0.800"
    )


points = st.builds(point, st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))


@given(st.lists(points, min_size=1, max_size=12))
def test_every_point_is_on_the_front_or_beaten_by_one_that_is(found: list[Point]) -> None:
    best = front(found)
    assert best
    for one in found:
        assert one in best or any(other.beats(one) for other in best)
        assert (one in best) == verdict(one, found).startswith("met")


def test_iterations_take_the_sizes_they_are_given_and_every_reflection_is_applied_once() -> None:
    def grow(done: Sequence[Iteration]) -> int:
        return 4 * (1 + len(done))

    epoch = run_epoch(SimulatedModel(), reflections(20), grow, seed=0, carry=True)
    assert [one.batch_size for one in epoch.iterations] == [4, 8, 8]
    assert epoch.delay_s == sum(one.delay_s for one in epoch.iterations) > 0
    assert epoch == run_epoch(SimulatedModel(), reflections(20), grow, seed=0, carry=True)


def test_larger_batches_take_longer_each_and_less_time_together() -> None:
    small, large = (
        run_epoch(SimulatedModel(), reflections(16), lambda _, b=b: b, seed=0, carry=True)  # type: ignore[misc]
        for b in (4, 16)
    )
    assert large.delay_s < small.delay_s
    assert large.iterations[0].delay_s > small.iterations[0].delay_s
