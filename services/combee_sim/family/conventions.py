"""Conventions as sentences: writing one, reading one back, and computing with it (no eval anywhere)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

from combee_sim.family.wordings import plain

Form = Literal["quotient", "complement", "change", "share"]
UNITS = {"fractions of one": 1, "percent": 100, "per mille": 1_000, "basis points": 10_000}
MAX_DECIMALS = 6

_PHRASES: dict[Form, str] = {
    "share": "{0} divided by the sum of {0} and {1}",
    "change": "the excess of {0} over {1} divided by {1}",
    "complement": "one minus {0} divided by {1}",
    "quotient": "{0} divided by {1}",
}
_FORMS: dict[Form, re.Pattern[str]] = {
    "share": re.compile(r"(.{1,100}) divided by the sum of \1 and (.{1,100})"),
    "change": re.compile(r"the excess of (.{1,100}) over (.{1,100}) divided by \2"),
    "complement": re.compile(r"one minus (.{1,100}) divided by (.{1,100})"),
    "quotient": re.compile(r"(.{1,100}) divided by (.{1,100})"),
}
_SENTENCE = re.compile(
    r"report the (?P<quantity>[^,.]{1,80}?) in (?P<unit>" + "|".join(UNITS) + r") "
    r"with (?P<decimals>no|\d) decimals?,? computed as (?P<form>[^,.;]{1,240})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How one quantity is to be reported: operands, unit and decimals."""

    quantity: str
    form: Form
    first: str
    second: str
    unit: str
    decimals: int

    def sentence(self) -> str:
        """Return the lesson: one natural sentence that names quantity and convention."""
        places = {0: "no decimals", 1: "1 decimal"}.get(self.decimals, f"{self.decimals} decimals")
        how = _PHRASES[self.form].format(self.first, self.second)
        return f"Report the {self.quantity} in {self.unit} with {places}, computed as {how}."

    def answer(self, operands: dict[str, float]) -> str | None:
        """Return the figure as text, or None when an operand is missing or the divisor is zero."""
        first, second = operands.get(self.first), operands.get(self.second)
        if first is None or second is None:
            return None
        divisor = first + second if self.form == "share" else second
        if divisor == 0:
            return None
        return f"{_value(self.form, first, second) * UNITS[self.unit]:.{self.decimals}f}"


def _value(form: Form, first: float, second: float) -> float:
    match form:
        case "quotient":
            return first / second
        case "complement":
            return 1 - first / second
        case "change":
            return (first - second) / second
        case "share":
            return first / (first + second)


@lru_cache(maxsize=20_000)
def read_convention(text: str) -> Convention | None:
    """Return the convention that a text states: in one of its sentences, or as a whole in another wording."""
    # Cheap tests come first: playbooks of a real model hold thousands of other sentences.
    if "computed as" not in text.casefold() and "computed as" not in (text := plain(text)):
        return None
    match = _SENTENCE.search(" ".join(text.split()))
    if match is None:
        return None
    how = match["form"].strip().casefold()
    for form, pattern in _FORMS.items():
        if operands := pattern.fullmatch(how):
            return Convention(
                quantity=match["quantity"].casefold(),
                form=form,
                first=operands[1],
                second=operands[2],
                unit=match["unit"].casefold(),
                decimals=0 if match["decimals"].casefold() == "no" else int(match["decimals"]),
            )
    return None


def possible(quantity: str, labels: Sequence[str], decimals: int) -> Iterator[Convention]:
    """Yield every convention the operands and a number of decimals allow, in a fixed order."""
    first, second = labels
    orders = ((first, second), (second, first))
    for form, unit, (first, second) in product(_PHRASES, UNITS, orders):
        yield Convention(
            quantity=quantity, form=form, first=first, second=second, unit=unit, decimals=decimals
        )


def decimals_of(number: str) -> int:
    """Return how many digits follow the point of a number written as text."""
    return len(number.strip().partition(".")[2])


def infer(quantity: str, operands: dict[str, float], target: str) -> Convention | None:
    """Return the first convention that turns the operands into the target, as a reader of both would."""
    decimals = decimals_of(target)
    if len(operands) != 2 or decimals > MAX_DECIMALS:  # noqa: PLR2004  (a quantity has two operands)
        return None
    candidates = possible(quantity, tuple(operands), decimals)
    return next((candidate for candidate in candidates if candidate.answer(operands) == target.strip()), None)
