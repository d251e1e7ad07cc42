"""Keeping up, on simulated arrivals: the size follows the load, within its bounds, and comes to rest."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.core.batching.sizing.decide import decide
from combee.core.batching.sizing.keep_up import Pipeline, demand, step
from combee.core.batching.sizing.plateau import PowerLaw
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_schemas.control import BatchSize
from support.simulated_pipeline import Turn, evenly, poisson, power_law, run

KEEP_UP = SizingPolicy(kind="keep-up")
FIRST_S, ALPHA = 3.0, 0.6
"""A batch of 5 takes 3 s: 1.7 reflections/s at 5, about 10/s at 90."""


def sizes(turns: Sequence[Turn]) -> list[int]:
    return [one.after.batch_size for one in turns]


def changes_of_direction(found: Sequence[int]) -> int:
    moves = [b - a for a, b in pairwise(found) if a != b]
    return sum((a > 0) != (b > 0) for a, b in pairwise(moves))


def capacity_per_s(size: int, alpha: float = ALPHA) -> float:
    return 5 / FIRST_S * math.pow(size / 5, alpha)


def jumps(rate: float, times: float) -> list[tuple[float, float]]:
    """Return phases before, during and after: 300, 600 and 900 arrivals."""
    return [(rate, 300 / rate), (times * rate, 400 / (times * rate)), (rate, 500 / rate)]


def within_three(done: Sequence[Turn], rate: float) -> BatchSize:
    """Return what stood after the third batch of a tenfold jump."""
    return [one for one in done if one.closed_s >= 300 / rate][2].after


@settings(max_examples=20, deadline=None)
@given(st.floats(0.25, 0.6), st.floats(0.5, 1.0), st.integers(0, 1))
def test_once_profiled_a_tenfold_jump_is_answered_within_three_batches_and_taken_back(
    rate: float, alpha: float, late: int
) -> None:
    arrivals = list(evenly(jumps(rate, 10)))
    done = run(KEEP_UP, arrivals, power_law(FIRST_S, alpha), late=late, max_wait_s=600)
    before = [one.after for one in done if one.closed_s < 300 / rate]
    assert (before[-1].batch_size, before[-1].phase, len(before[-1].observations)) == (5, "settled", 4)
    reached = within_three(done, rate)
    asked = min(10 * rate, capacity_per_s(int(reached.numbers["plateau"]), alpha))
    assert capacity_per_s(reached.batch_size, alpha) >= 0.99 * asked
    assert done[-1].after.batch_size == 5


@pytest.mark.parametrize("seed", range(6))
def test_a_jump_of_poisson_arrivals_and_noisy_delays_is_too(seed: int) -> None:
    done = run(KEEP_UP, list(poisson(jumps(0.5, 10), seed)), power_law(FIRST_S, ALPHA, 0.1, seed))
    assert capacity_per_s(within_three(done, 0.5).batch_size) >= 4.0
    assert done[-1].after.batch_size <= 10


@settings(max_examples=15, deadline=None)
@given(st.floats(0.2, 4.0), st.integers(0, 10**6))
def test_under_steady_arrivals_the_size_comes_to_rest_and_nothing_piles_up(rate: float, seed: int) -> None:
    arrivals = list(poisson([(rate, 1500.0)], seed))
    done = run(KEEP_UP, arrivals, power_law(FIRST_S, ALPHA, 0.1, seed))
    settled = [one for one in done if 500 <= one.closed_s < 1400]
    assert changes_of_direction(sizes(settled)) <= 2
    assert sum(a != b for a, b in pairwise(sizes(settled))) <= 4
    assert all(one.waiting <= 3 * one.asked + 10 * rate for one in settled[-5:])


phases = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 1.0, 8.0]), st.floats(20, 300)), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None)
@given(phases, st.integers(0, 10**6), st.sampled_from([0.0, 0.4]))
def test_whatever_arrives_it_goes_down_only_after_a_calm_while(
    load: list[tuple[float, float]], seed: int, noise: float
) -> None:
    done = run(KEEP_UP, list(poisson(load, seed)), power_law(FIRST_S, ALPHA, noise, seed))
    since_larger = 0
    for before, now in pairwise(done):
        fell, rose = (sign * (now.after.batch_size - before.after.batch_size) > 0 for sign in (-1, 1))
        if before.after.phase == now.after.phase == "settled":
            assert not (fell and since_larger < 4)
        since_larger = 0 if rose or now.after.phase == "profiling" else since_larger + 1
        assert KEEP_UP.smallest <= now.after.batch_size <= KEEP_UP.most


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(30, 200), st.floats(0.5, 6))
def test_bursts_keep_the_size_within_its_bounds_and_leave_no_backlog(
    seed: int, lasts_s: float, rate: float
) -> None:
    phases = [(rate, lasts_s), (0.1, lasts_s)] * 6 + [(0.1, 600.0)]
    done = run(KEEP_UP, list(poisson(phases, seed)), power_law(FIRST_S, ALPHA, 0.1, seed))
    assert all(KEEP_UP.smallest <= one <= KEEP_UP.most for one in sizes(done))
    assert done[-1].waiting == 0
    assert changes_of_direction(sizes(done)) <= 4 * 6 + 6


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_model_leaves_a_backlog_that_is_worked_off_and_then_forgotten(seed: int) -> None:
    working = power_law(FIRST_S, ALPHA)
    arrivals = list(poisson([(1.0, 8000.0)], seed))
    done = run(KEEP_UP, arrivals, lambda size, at: 3000.0 if 500 <= at < 520 else working(size, at))
    worst = max(one.waiting for one in done)
    assert worst > 1000
    # What arrived in 50 minutes was not a jump.
    assert max(one.after.arrivals_per_s for one in done if one.closed_s > 500) < 2
    late = [one for one in done if one.closed_s > 7000]
    assert max(one.waiting for one in late) < 60
    assert late[-1].after.batch_size <= 20


def test_a_new_choice_has_all_the_head_room_it_should_have() -> None:
    done = run(KEEP_UP, list(evenly([(1.2, 400.0)])), power_law(FIRST_S, ALPHA), max_wait_s=600)
    chosen = next(one.after for one in done if one.after.phase == "settled")
    assert capacity_per_s(5) > 1.25 * 1.2
    assert 1.5 * 1.2 <= capacity_per_s(chosen.batch_size) < 1.75 * 1.2


@pytest.mark.parametrize(("left", "grows"), [(1.4, False), (1.2, True)])
def test_nothing_moves_until_half_of_the_head_room_is_gone(*, left: float, grows: bool) -> None:
    pipeline = Pipeline(fit=PowerLaw(a=1500, alpha=ALPHA, r_squared=1), slowness=1, in_flight=1)
    wanted = demand(pipeline, pipeline.capacity_per_s(10) / left, waiting=0, size=10)
    assert (step(pipeline, wanted, standing=10, calm=0, least=5, most=200).size > 10) == grows


def test_a_lower_cap_holds_from_the_next_version_on() -> None:
    flood = list(evenly([(60.0, 120.0)]))
    high = run(KEEP_UP, flood, power_law(FIRST_S, ALPHA), turns=20)[-1].after
    seen = Iteration(playbook="p", sequence=high.sequence + 1, asked=high.batch_size, reflections=3)
    assert decide(high, seen, SizingPolicy(kind="keep-up", most=30)).batch_size <= 30 < high.batch_size


def test_the_plateau_is_not_passed() -> None:
    flood = list(evenly([(60.0, 120.0)]))
    bounded = run(KEEP_UP, flood, power_law(FIRST_S, ALPHA))
    plateau = int(bounded[-1].after.numbers["plateau"])
    assert max(sizes(bounded)) == max(plateau, *KEEP_UP.candidates)


def test_batches_in_flight_count_as_capacity() -> None:
    steady = list(poisson([(3.0, 1500.0)], 1))
    one = run(KEEP_UP, steady, power_law(FIRST_S, ALPHA))
    three = run(SizingPolicy(kind="keep-up", in_flight=3), steady, power_law(FIRST_S, ALPHA))
    middle = len(three) // 2
    assert sizes(three)[middle] < sizes(one)[len(one) // 2]
