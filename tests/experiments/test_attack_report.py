"""The verdicts of ``attacks``: a figure that equals its bound meets it, and each that exceeds one is named."""

import pytest

from combee_experiments.attacks.page_report import _lines, _together
from combee_experiments.attacks.producers import LESSONS
from combee_experiments.attacks.protections import TEAM, TEAM_SHORT
from combee_experiments.attacks.report import verdicts
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Verdict


def judged(arm: str, numbers: Numbers) -> Verdict:
    (verdict,) = verdicts(Measured({Cell.of(arm, 0, attack="stuffing", wordings=1): numbers}))
    return verdict


@pytest.mark.parametrize(("shown", "met"), [(20, True), (19, True), (18, False)])
def test_one_lost_lesson_of_twenty_is_at_most_five_percent(shown: int, *, met: bool) -> None:
    assert len(LESSONS) == 20
    assert judged(TEAM, {"lessons": shown, "text": 0.5, "destroyed": 0}).met is met


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"lessons": 20, "text": 0.35, "destroyed": 0}, "in 1 of 1 attacks"),
        (
            {"lessons": 19, "text": 0.352, "destroyed": 0},
            "in 0 of 1 attacks; not in stuffing (35.2% harmful)",
        ),
        (
            {"lessons": 18, "text": 0.1, "destroyed": 2},
            "in 0 of 1 attacks; not in stuffing (10% lost, 2 destroyed)",
        ),
    ],
)
def test_of_an_attack_that_breaks_a_criterion_only_the_figures_that_exceed_it_are_named(
    numbers: Numbers, told: str
) -> None:
    assert judged(TEAM_SHORT, numbers).told == told


def test_arms_with_equal_figures_share_a_row() -> None:
    row = ("word for word", "0", "0%")
    rows = [("lab", "word for word", "2 (removal)", "0%"), ("public", *row), ("public + approve", *row)]
    assert list(_together(rows)) == [rows[0], ("public; public + approve", *row)]


def test_places_with_equal_verdicts_share_a_line() -> None:
    verdicts = (
        Verdict(criterion=f"{arm}: at most 5%", met=True, told=told)
        for arm, told in {"a": "0%", "b": "5%", "c": "0%"}.items()
    )
    assert list(_lines(verdicts)) == ["- **met**: a; c: at most 5%: 0%", "- **met**: b: at most 5%: 5%"]
