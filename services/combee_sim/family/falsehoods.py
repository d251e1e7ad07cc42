"""Falsehoods in the simulated world: opposites of its lessons, and lessons about invented things."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from combee_sim.chance import draw
from combee_sim.family import desk
from combee_sim.family.conventions import possible, read_convention
from combee_sim.family.family import latent
from combee_sim.family.insights import PERCENT, PLAIN, shape_of
from combee_sim.family.lessons import key
from combee_sim.family.quantities import QUANTITIES
from combee_sim.family.wordings import FORMULA, NO_TAG, TAGGING, fields_of

_SYLLABLES = (
    "bra",
    "cor",
    "dul",
    "fen",
    "gal",
    "hov",
    "lim",
    "mur",
    "nol",
    "pra",
    "quel",
    "sti",
    "tor",
    "vex",
)
_MEASURES = ("index", "rate", "quota", "ratio", "share", "factor")
_MADE_UP = re.compile(rf"(?:{'|'.join(_SYLLABLES)}){{4}} (?:{'|'.join(_MEASURES)})", re.IGNORECASE)


def opposite(lesson: str) -> str | None:
    """Return the opposite of a lesson in plain words: operands swapped, a fraction for a percentage, no tag."""
    if ruled := desk.rule_in(lesson):
        rule, is_right = ruled
        return rule.opposite if is_right else rule.wordings[0]
    if convention := read_convention(lesson):
        return replace(convention, first=convention.second, second=convention.first).sentence()
    if formula := fields_of(FORMULA, lesson):
        other = PLAIN if formula["shape"] == PERCENT else PERCENT
        return FORMULA.write(FORMULA.templates[0], {**formula, "shape": other})
    for kind, against in ((TAGGING, NO_TAG), (NO_TAG, TAGGING)):
        if tagged := fields_of(kind, lesson):
            return against.write(against.templates[0], tagged)
    return None


def is_opposite(text: str) -> bool:
    """Return whether a text contradicts what is true."""
    if ruled := desk.rule_in(text):
        return not ruled[1]
    if convention := read_convention(text):
        right = _latent().get(convention.quantity)
        return right is not None and key(text) != right
    if formula := fields_of(FORMULA, text):
        return formula["shape"] != shape_of(formula["formula"])
    return fields_of(NO_TAG, text) is not None


def invented(*causes: str | int) -> str:
    """Return a lesson about a quantity that does not exist, fixed by its causes."""

    def pick(choices: tuple[str, ...], *what: str | int) -> str:
        return choices[int(draw("invented", *what, *causes) * len(choices))]

    name = "".join(pick(_SYLLABLES, "syllable", n) for n in range(4))
    quantity = f"{name} {pick(_MEASURES, 'measure')}"
    choices = tuple(possible(quantity, (f"raw {name} units", f"checked {name} units"), 2))
    return choices[int(draw("invented", "form", *causes) * len(choices))].sentence()


def is_invented(text: str) -> bool:
    """Return whether a text is a lesson about a quantity that does not exist."""
    convention = read_convention(text)
    return convention is not None and _MADE_UP.fullmatch(convention.quantity) is not None


@cache
def _latent() -> Mapping[str, str]:
    """Return the key of each quantity's one right convention."""
    return {quantity.name: key(latent(quantity).sentence()) for quantity in QUANTITIES}
