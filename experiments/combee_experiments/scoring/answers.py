"""Scoring answers: pure comparison of bounded text; nothing a model wrote is ever evaluated."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from combee.core.formats.intake import is_right
from combee.sim.family.family import right as family_right
from combee_experiments.data.samples import Kind

MAX_ANSWER_CHARS = 4_000
"""A longer answer is wrong unread: the longest right one has a few hundred characters."""
HALF_A_CENT = 0.005
"""Formula targets are rounded to two decimals: what rounds to the same is the same."""
RELATIVE = 1e-6
"""What double arithmetic may lose on targets such as 17.7 trillion."""

_NUMBER = re.compile(
    r"(?:[$€£]|usd|eur)? ?(?P<sign>[-+−]?) ?(?:[$€£])? ?"
    r"(?P<digits>\d[\d,]{0,30}(?:\.\d{0,30})?|\.\d{1,30})(?P<power>e[-+]?\d{1,3})?"
    r" ?(?:%|percent|per cent|x|times|years?|months?|days?|usd|eur|dollars?|euros?|[$€£])?\.?",
    re.IGNORECASE,
)
_AROUND_TAG = " \t\r\n\"'`[](){}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Right places of an answer, and how many there were: one, or one per tag."""

    right: int
    asked: int

    def __add__(self, other: "Score") -> "Score":
        return Score(right=self.right + other.right, asked=self.asked + other.asked)

    @property
    def share(self) -> float:
        """Right places per place asked; 0 when nothing was asked."""
        return self.right / self.asked if self.asked else 0.0


NOTHING = Score(right=0, asked=0)


def score(kind: Kind, answer: str, target: str) -> Score:
    """Judge one answer by the rules of its data."""
    return SCORERS[kind](answer if len(answer) <= MAX_ANSWER_CHARS else "", target)


def score_formula(answer: str, target: str) -> Score:
    """Compare as numbers with two decimals, units stripped: 20 % is 20, not 0.2, as the data want it."""
    mine, theirs = read_number(answer), read_number(target)
    if mine is None or theirs is None:
        return _whole(right=False)
    return _whole(right=math.isclose(mine, theirs, rel_tol=RELATIVE, abs_tol=HALF_A_CENT))


def score_finer(answer: str, target: str) -> Score:
    """Compare tag by tag, position by position; what is missing is wrong, what is too much is ignored."""
    wanted = [_tag(part) for part in target.split(",")]
    given = [_tag(part) for part in answer.split(",")]
    right = sum(one == other != "" for one, other in zip(given, wanted, strict=False))
    return Score(right=right, asked=len(wanted))


def read_number(text: str) -> float | None:
    """Return the number that a text is, currency, thousands and unit left out; None if it is anything else."""
    # One space for many: a pattern that had to share them out would take for ever.
    found = _NUMBER.fullmatch(" ".join(text.split())) if len(text) <= MAX_ANSWER_CHARS else None
    if found is None:
        return None
    digits = found["digits"].replace(",", "") + (found["power"] or "")
    return float(digits) * (-1 if found["sign"] in ("-", "−") else 1)


def _tag(text: str) -> str:
    return text.strip(_AROUND_TAG).casefold()


def _whole(*, right: bool) -> Score:
    return Score(right=int(right), asked=1)


SCORERS: Mapping[Kind, Callable[[str, str], Score]] = {
    "family": lambda answer, target: _whole(right=family_right(answer, target)),
    "formula": score_formula,
    "finer": score_finer,
    "text": lambda answer, target: _whole(right=is_right(answer, target)),
}
"""Kind of data → how an answer is compared with its target."""
