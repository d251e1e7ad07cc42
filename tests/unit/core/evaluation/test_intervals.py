"""Intervals: beside published values, and that they hold the truth as often as they say."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.evaluation.intervals import of_mean, paired, share
from combee.core.evaluation.scoring import Points
from support.rows import each_row

RUNS = 400


def right_of(right: int, n: int) -> dict[str, Points]:
    return {f"q{i:03}": Points(right=float(i < right)) for i in range(n)}


@each_row(
    ("right", "n", "low", "high"),
    # Newcombe (Statistics in Medicine 17, 1998), table I, method 3: Wilson's without continuity correction.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_share_has_the_published_interval(right: int, n: int, low: float, high: float) -> None:
    interval = share(right_of(right, n))
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_questions_with_several_places_count_by_their_places() -> None:
    interval = share({"a": Points(right=3, places=3), "b": Points(right=0, places=1)})
    assert (interval.mean, interval.n) == (0.75, 2)


def test_a_difference_has_the_published_interval() -> None:
    # Agresti and Min 2005: Wald's interval of the table with half a pair more in each of its four cells; worked out
    # by hand for 20 pairs of which 6 were won and 1 lost: (6.5 − 1.5) / 22 ± 1.96 · √(8/22 − (5/22)²) / √22.
    ours = right_of(6, 20)
    theirs = {key: Points(right=float(key == "q019")) for key in ours}
    interval = paired(ours, theirs)
    assert interval.mean == pytest.approx(0.25)
    assert (interval.low, interval.high) == pytest.approx((-0.0061, 0.4607), abs=5e-4)
    assert not interval.is_significant


def test_only_questions_that_both_answered_are_compared() -> None:
    ours = {"a": Points(right=1), "only ours": Points(right=1)}
    interval = paired(ours, {"a": Points(right=0), "only theirs": Points(right=1)})
    assert (interval.mean, interval.n) == (1.0, 1)
    assert paired(ours, {}).n == 0


def test_ten_even_pairs_are_no_certainty() -> None:
    interval = paired(right_of(5, 10), right_of(5, 10))
    assert interval.mean == 0
    assert interval.low < -0.05 < 0.05 < interval.high


def test_equal_versions_are_called_different_in_about_five_of_a_hundred_cases() -> None:
    drawing = Random(7)

    def exam() -> dict[str, Points]:
        return {f"q{i}": Points(right=float(drawing.random() < 0.8)) for i in range(60)}

    wrong = sum(paired(exam(), exam()).is_significant for _ in range(RUNS))
    assert wrong / RUNS <= 0.08


@given(
    st.dictionaries(
        st.text(max_size=3), st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 4)), max_size=30
    )
)
def test_an_estimate_lies_in_its_interval(seen: dict[str, tuple[int, int, int]]) -> None:
    ours = {key: Points(right=min(right, places), places=places) for key, (right, places, _) in seen.items()}
    theirs = {
        key: Points(right=min(right, places), places=places) for key, (_, places, right) in seen.items()
    }
    own, difference = share(ours), paired(ours, theirs)
    assert 0 <= own.low <= own.mean + 1e-12
    assert own.mean - 1e-12 <= own.high <= 1
    assert -1 <= difference.low <= difference.mean <= difference.high <= 1
    back = paired(theirs, ours)
    assert (back.low, back.high) == pytest.approx((-difference.high, -difference.low))


@each_row(
    ("n", "t"),
    # Student's t, 97.5 %: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
    [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (6, 2.571), (11, 2.228), (31, 2.042), (101, 1.984)],
)
def test_the_interval_of_a_mean_is_students(n: int, t: float) -> None:
    interval = of_mean(5.0, n * (n - 1), n)  # the standard error is 1
    assert interval is not None
    assert interval.high - 5.0 == pytest.approx(t, rel=0.0015)
    assert interval.low + interval.high == pytest.approx(10.0)


def test_one_number_has_no_interval() -> None:
    assert of_mean(5.0, 0.0, 1) is None
