"""The verdict of held-out questions: what is worse, or lower by more than the margin, is rejected."""

import pytest

from combee.core.evaluation.scoring import Points
from combee.core.gate.evaluate import verdict
from combee.core.gate.gate import Gate
from combee_schemas.gate import Verdict
from combee_schemas.playbook import Label
from support.rows import each_row

NAME = "support/refunds"
GATE = Gate(
    production=Label(playbook=NAME, label="production", version=4, gate=("evaluate",)),
    candidate=Label(playbook=NAME, label="candidate", version=5),
)


def scores(right: int, of: int) -> dict[str, Points]:
    return {f"q-{number}": Points(right=float(number < right)) for number in range(of)}


def said(candidate: dict[str, Points], production: dict[str, Points], margin: float = 0.05) -> Verdict:
    return verdict(GATE, candidate, production, margin=margin, judged_by="me", now_ms=7)


@each_row(
    ("right", "before", "of", "accepts", "word"),
    [
        (60, 60, 100, True, "not worse"),
        (70, 60, 100, True, "not worse"),
        (57, 60, 100, True, "not worse"),
        (54, 60, 100, False, "worse (95 %)"),
        (40, 60, 100, False, "worse (95 %)"),
        (1, 2, 3, False, "lower by more than 0.05"),
    ],
)
def test_what_a_difference_means(right: int, before: int, of: int, accepts: bool, word: str) -> None:  # noqa: FBT001
    found = said(scores(right, of), scores(before, of))
    assert found.accepts == accepts
    assert found.reason.startswith(f"{word}: ")


def test_a_verdict_says_what_it_is_about_and_rests_on() -> None:
    found = said(scores(60, 100), scores(50, 100))
    assert (found.candidate, found.production, found.judge, found.judged_at_ms) == (5, 4, "evaluate", 7)
    assert found.figures["n"] == 100
    assert (found.figures["candidate"], found.figures["production"]) == (0.6, 0.5)
    assert found.figures["low"] < found.figures["difference"] == 0.1 < found.figures["high"]


def test_a_wider_margin_lets_more_pass() -> None:
    assert said(scores(1, 3), scores(2, 3), margin=0.5).accepts


def test_where_nothing_is_judged_there_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="no candidate"):
        verdict(Gate(production=GATE.production), {}, {}, margin=0, judged_by="", now_ms=0)
