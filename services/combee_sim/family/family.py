"""The simulated task family: questions about invented quantities, each with a latent convention to learn."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from combee_schemas.digests import spread
from combee_sim.family.conventions import Convention, possible
from combee_sim.family.quantities import QUANTITIES, Quantity

PLACES = ("Aldra", "Brenth", "Corvay", "Dunmere", "Eskell", "Farrow", "Gilden", "Hathe")
_DECIMALS = {"fractions of one": (3, 4), "percent": (1, 2), "per mille": (0, 1), "basis points": (0, 1)}
_OPERAND = re.compile(r"([A-Za-z][A-Za-z' -]{0,60}): (\d[\d,]{0,20}(?:\.\d{1,9})?)")
_ASKED = re.compile(r"what is the ([^?.]{1,80})\?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One task of the family; ``target`` follows the quantity's latent convention."""

    quantity: str
    text: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The content of a question: the quantity and its operands by label, in the given order."""

    quantity: str
    operands: dict[str, float]

    def naive(self) -> str | None:
        """Return what an agent without the lesson answers: first over second, two decimals."""
        if len(self.operands) != 2:  # noqa: PLR2004  (a quantity has two operands)
            return None
        first, second = self.operands.values()
        return f"{first / second:.2f}" if second else None


@cache
def latent(quantity: Quantity) -> Convention:
    """Return a quantity's convention: fixed for ever by its name, never shown in a question."""
    unit = tuple(_DECIMALS)[spread(f"unit {quantity.name}", len(_DECIMALS))]
    decimals = _DECIMALS[unit][spread(f"decimals {quantity.name}", len(_DECIMALS[unit]))]
    choices = [
        c for c in possible(quantity.name, (quantity.first, quantity.second), decimals) if c.unit == unit
    ]
    return choices[spread(f"form {quantity.name}", len(choices))]


def lessons(quantities: Sequence[Quantity] = QUANTITIES) -> tuple[str, ...]:
    """Return every lesson there is to learn, one per quantity."""
    return tuple(latent(quantity).sentence() for quantity in quantities)


def questions(rng: Random, quantities: Sequence[Quantity] = QUANTITIES) -> Iterator[Question]:
    """Yield questions for ever, with quantities drawn uniformly."""
    while True:
        yield ask(rng.choice(quantities), rng)


def one_each(rng: Random, quantities: Sequence[Quantity] = QUANTITIES) -> tuple[Question, ...]:
    """Return one question per quantity: an exam in which accuracy is the share of lessons known."""
    return tuple(ask(quantity, rng) for quantity in quantities)


def ask(quantity: Quantity, rng: Random) -> Question:
    """Draw operands until the target reveals the convention to a reader and the naive answer fails."""
    convention = latent(quantity)
    while True:
        place, week = rng.choice(PLACES), rng.randrange(1, 53)
        first, second = rng.sample(range(60, 3_000), 2)
        operands: dict[str, float] = {quantity.first: first, quantity.second: second}
        target = convention.answer(operands)
        asked = Asked(quantity=quantity.name, operands=operands)
        if target is None or target == asked.naive() or _ambiguous(convention, operands, target):
            continue
        stated = f"{quantity.first.capitalize()}: {first:,}; {quantity.second}: {second:,}."
        text = f"Site {place}, week {week}. {stated} What is the {quantity.name}?"
        return Question(quantity=quantity.name, text=text, target=target)


def _ambiguous(convention: Convention, operands: dict[str, float], target: str) -> bool:
    candidates = possible(convention.quantity, tuple(operands), convention.decimals)
    return sum(candidate.answer(operands) == target for candidate in candidates) > 1


def read_question(text: str) -> Asked | None:
    """Return a question's quantity and operands, or None when it is not of this family."""
    asked = _ASKED.search(text)
    operands_found = _OPERAND.findall(text) if asked else []
    if asked is None or len(operands_found) != 2:  # noqa: PLR2004  (a quantity has two operands)
        return None
    operands = {label.strip().casefold(): float(number.replace(",", "")) for label, number in operands_found}
    return Asked(quantity=asked[1].strip().casefold(), operands=operands)


def right(answer: str, target: str) -> bool:
    """Say whether an answer is right: decimals are part of a convention, so the text must agree."""
    return answer.strip() == target.strip()
