"""Differences of arms that had the same luck, and their interval."""

import pytest

from combee_experiments.running.paired import difference


def test_a_difference_is_taken_seed_by_seed_over_the_seeds_that_both_have() -> None:
    measured = difference({0: 5.0, 1: 7.0, 2: 100.0}, {0: 4.0, 1: 5.0, 9: 0.0})
    assert (measured.mean, measured.pairs) == (1.5, 2)
    assert measured.low == 1.0
    assert measured.high == 2.0


def test_the_interval_narrows_with_more_seeds_and_is_the_same_in_every_run() -> None:
    few = difference({n: float(n % 2) for n in range(6)}, dict.fromkeys(range(6), 0.0))
    many = difference({n: float(n % 2) for n in range(60)}, dict.fromkeys(range(60), 0.0))
    assert few.high - few.low > many.high - many.low > 0
    assert few == difference({n: float(n % 2) for n in range(6)}, dict.fromkeys(range(6), 0.0))


def test_arms_without_a_common_seed_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="no seed"):
        difference({0: 1.0}, {1: 1.0})
