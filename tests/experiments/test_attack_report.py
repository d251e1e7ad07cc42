"""The verdicts of ``attacks``: a figure that equals its bound meets it."""

import pytest

from combee_experiments.attacks.producers import LESSONS
from combee_experiments.attacks.protections import TEAM
from combee_experiments.attacks.report import verdicts
from combee_experiments.running.cells import Cell, Measured


@pytest.mark.parametrize(("shown", "met"), [(len(LESSONS), True), (19, True), (18, False)])
def test_one_lost_lesson_of_twenty_is_at_most_five_percent(shown: int, *, met: bool) -> None:
    assert len(LESSONS) == 20
    numbers = {"lessons": shown, "text": 0.5, "destroyed": 0}
    cell = Cell.of(TEAM, 0, attack="stuffing", wordings=1)

    (verdict,) = verdicts(Measured({cell: numbers}))

    assert verdict.met is met
