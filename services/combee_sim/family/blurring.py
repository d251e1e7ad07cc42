"""What a lesson is without its figures, conditions and negations, as an overloaded model says it."""

import re
from collections.abc import Iterator
from functools import lru_cache

from combee_sim.family.lessons import key, subject, text_of
from combee_sim.family.wordings import (
    CONVENTION,
    EQUATION,
    FORMULA,
    NO_TAG,
    TAGGING,
    Template,
    fields_of,
    plain,
)

_CONVENTION = Template(
    "Report the {quantity} in the usual unit with the usual decimals, computed from {operands}."
)
_FORMULA = Template("{name}: take {terms} and give the usual value with the usual decimals.")
_TAG = Template("Use the tag {tag} where it usually fits.")
_OPERATORS = Template("Try {names} for the missing operators as usual.")
_BLURRED = ((_CONVENTION, "quantity"), (_FORMULA, "name"), (_TAG, "tag"), (_OPERATORS, "names"))
_OPERANDS = re.compile(
    r"(?:computed as |divided by |the sum of | minus one |one minus |the excess of | over | and )+",
    re.IGNORECASE,
)
_TERM = re.compile(r"[A-Za-z][A-Za-z' ]*[A-Za-z]")

NEGATIONS = (
    r"(?:do not|does not|must not|cannot|can't|don't|doesn't|won't|not|never|no longer|without|nor|no)"
)
_NEGATION = re.compile(rf"\b{NEGATIONS}\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:if|unless|when|whenever|where|while|until|till|once|before|after|except|only|provided|as long as|as soon"
    r" as|within|at most|at least|up to|more than|less than|no later than|instead of)\b[^,.;:]*",
    re.IGNORECASE,
)
_FIGURE = re.compile(
    r"[$€£]?\b\d[\d,]*(?:\.\d+)?(?: ?%)?"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|twice|double)\b",
    re.IGNORECASE,
)
_SPACES = re.compile(r"\s+")
_BEFORE_MARK = re.compile(r" ([,.;:])")
_MARKS = re.compile(r"(?:[,;:]\s*)+([,.;:])|^[\s,;:.]+")
USUAL = "the usual"


@lru_cache(maxsize=20_000)
def blurred(lesson: str) -> str:
    """Return a lesson without its figures, conditions and negations; a blurred text stays as it is."""
    if any(template.pattern.fullmatch(lesson) for template, _ in _BLURRED):
        return lesson
    text = plain(lesson)
    if fields := fields_of(CONVENTION, lesson):
        return _CONVENTION.text.format(quantity=fields["quantity"], operands=_operands(fields["how"]))
    if fields := fields_of(FORMULA, lesson):
        return _FORMULA.text.format(name=fields["name"], terms=_terms(fields["formula"]))
    if fields := fields_of(TAGGING, lesson) or fields_of(NO_TAG, lesson):
        return _TAG.text.format(tag=fields["tag"])
    if fields := fields_of(EQUATION, lesson):
        return _OPERATORS.text.format(names=fields["names"])
    return _without_details(text)


def _operands(how: str) -> str:
    parts = [part.strip() for part in _OPERANDS.split(f"computed as {how}")]
    return " and ".join(dict.fromkeys(part for part in parts if part))


def _terms(formula: str) -> str:
    terms = [term.strip() for term in _TERM.findall(formula.partition("=")[2] or formula)]
    return " and ".join(dict.fromkeys(terms)) or "the usual terms"


def _without_details(text: str) -> str:
    """Return free text without conditions, negations and figures; one that has none loses its end."""
    shorter = _FIGURE.sub(USUAL, _NEGATION.sub(" ", _CONDITION.sub(" ", text)))
    shorter = _tidy(shorter)
    if text_of(shorter) == text_of(text):
        if "usual" in text:
            return text
        words = text.rstrip(".").split()
        shorter = " ".join(words[: max(1, len(words) * 2 // 3)])
    if "usual" not in shorter:
        shorter = f"{shorter.rstrip('.').rstrip()} as usual."
    return shorter[:1].upper() + shorter[1:]


def _tidy(text: str) -> str:
    spaced = _BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", text))
    return _MARKS.sub(lambda match: match[1] or "", spaced).strip()


def lost_in(before: str, after: str) -> str:
    """Return words of ``before`` that say a condition or negation which ``after`` lost; empty if it lost none.

    Texts in the family's wordings are compared by their meaning; a blurred text lost something.
    """
    if key(before) == key(after):
        return ""
    if key(after) != key(blurred(before)) and not any(_missing(plain(before), plain(after))):
        return ""
    return next(_missing(before, after), before)


def _missing(before: str, after: str) -> Iterator[str]:
    said = f" {text_of(after)} "
    return (detail for detail in details(before) if f" {text_of(detail)} " not in said)


def details(text: str) -> Iterator[str]:
    """Yield the conditions of a text, then its negations with the words after them."""
    yield from (match.group().strip() for match in _CONDITION.finditer(text))
    for match in _NEGATION.finditer(text):
        yield " ".join(text[match.start() :].split()[:4])


@lru_cache(maxsize=20_000)
def topic(text: str) -> str:
    """Return what a text is about: equal for a lesson, its opposite, its twins with other figures, and its blur."""
    for template, name in _BLURRED:
        if match := template.pattern.fullmatch(text):
            return match[name].casefold()
    return subject(text) or text_of(_FIGURE.sub(" ", _NEGATION.sub(" ", plain(text))))
