"""Comparing two commits: only a difference that noise cannot make is one."""

import random
from pathlib import Path

import pytest
from benchmarks.paired import estimate, exceeds, interval
from benchmarks.sides import foreign

from support.rows import each_row

LIMIT = 1.05


def noisy(ratio: float, spread: float, pairs: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [ratio * chance.lognormvariate(0, spread) for _ in range(pairs)]


def test_a_fifth_more_is_found_within_eight_pairs() -> None:
    assert all(exceeds(noisy(1.2, 0.03, 8, seed), LIMIT) for seed in range(50))


def test_noise_alone_is_no_difference() -> None:
    found = sum(exceeds(noisy(1.0, 0.1, 8, seed), 1.0) for seed in range(400))
    assert found <= 400 * 0.05


def test_a_difference_that_may_be_below_the_limit_is_none() -> None:
    ratios = [1.02, 1.04, 1.06, 1.08, 1.10, 1.12, 1.14, 1.04]
    assert estimate(ratios) > LIMIT
    assert not exceeds(ratios, LIMIT)


def test_less_is_never_too_much() -> None:
    assert not exceeds(noisy(0.5, 0.01, 8, 1), LIMIT)


def test_one_wild_reading_does_not_hide_what_the_others_show() -> None:
    assert exceeds([1.2, 1.21, 1.19, 1.2, 1.22, 1.18, 1.2, 1.0], LIMIT)


@each_row(("pairs", "outside"), [(6, 0), (7, 2), (8, 3), (10, 8)])
def test_the_interval_is_that_of_the_tables(pairs: int, outside: int) -> None:
    ratios = noisy(1.0, 0.5, pairs, 3)
    averages = sorted((a * b) ** 0.5 for n, a in enumerate(ratios) for b in ratios[n:])
    assert interval(ratios) == pytest.approx((averages[outside], averages[-1 - outside]))


def test_five_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="too few: 6 at least"):
        interval([1.2] * 5)


def test_code_that_is_not_a_sides_own_is_named(tmp_path: Path) -> None:
    own = str(tmp_path / "services" / "combee" / "__init__.py")
    assert foreign([own, None, "/installed/combee/ports.py"], tmp_path) == ["/installed/combee/ports.py"]
