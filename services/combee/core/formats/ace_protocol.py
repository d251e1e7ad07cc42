"""ACE's protocol for its Formula and FiNER data: the question put to an agent, and the scoring of its answer.

It follows the authors' released code (ace-agent/ace, ``finance/data_processor.py``), without evaluating any text.
Samples of any other shape are asked as they are.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

SampleKind = Literal["formula", "finer", "text"]
"""How a sample is asked and scored; ``text`` is every sample that is not ACE's."""

FORMULA_NAME = re.compile(r"use formula (?P<name>.{1,120}?) to answer", re.IGNORECASE)
"""Matches a Formula row's formula name, which is in a part that agents are not shown."""
NUMBER_INSTRUCTION = (
    " Your answer should be a plain floating point number, round to the nearest hundredth if necessary. Do the"
    " necessary conversions, for example 5 million should be 5000000.0."
)
_QUESTION, _ANSWER = "Question:", "Answer:"
TAGGING = re.compile(r"best tag for entity", re.IGNORECASE)
"""Matches the question of every FiNER row."""
_LABEL = re.compile(r"\s*[A-Za-z]\S*\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A sample in the form that an agent gets."""

    question: str
    kind: SampleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Right places of an answer, and their number: one, or one per label."""

    right: int
    asked: int

    def __add__(self, other: "Score") -> "Score":
        return Score(right=self.right + other.right, asked=self.asked + other.asked)

    @property
    def share(self) -> float:
        """Share of right places; 0 if there are none."""
        return self.right / self.asked if self.asked else 0.0


def asked(context: str, question: str, target: str) -> Asked:
    """Return the question for an agent; a Formula row's formula name and explanation are left out.

    If there is a separate question, the context is material of any shape.
    """
    if not question and (formula := _formula_question(context)):
        return Asked(question=formula + NUMBER_INSTRUCTION, kind="formula")
    if not question and (text := _instruction_and_input(context)):
        labels = all(_LABEL.fullmatch(label) for label in target.split(","))
        return Asked(question=text, kind="finer" if labels else "text")
    whole = "\n\n".join(part for part in (context, question) if part)
    return Asked(question=whole, kind="finer" if TAGGING.search(whole) else "text")


def _formula_question(context: str) -> str:
    """Return the text between ``Question:`` and the closing ``Answer:``, unquoted; empty if there is none."""
    hidden, mark, rest = context.partition(_QUESTION)
    shown = rest.rstrip()
    if not (mark and shown.endswith(_ANSWER) and FORMULA_NAME.search(hidden)):
        return ""
    question = shown.removesuffix(_ANSWER).rstrip().removesuffix(".").strip()
    if len(question) > 1 and question[0] == question[-1] == '"':
        question = question[1:-1].strip()
    return question


def _instruction_and_input(context: str) -> str:
    """Return the input, then the instruction, of ``Instruction: … Input: … Answer:``; empty for other texts."""
    before, mark, rest = context.partition("Input:")
    start, named, instruction = before.partition("Instruction:")
    given = rest.rstrip()
    if not (mark and named and given.endswith(_ANSWER)) or start.strip():
        return ""
    parts = (given.removesuffix(_ANSWER).strip(), instruction.strip())
    return "\n\n".join(parts) if all(parts) else ""


def score(kind: SampleKind, answer: str, target: str) -> Score:
    """Score an answer by the rules of its data."""
    return _SCORERS[kind](answer, target)


def _score_formula(answer: str, target: str) -> Score:
    """Compare as numbers, exactly, after removing commas: 5 is 5.0, but 20% is not 20. Otherwise compare as text."""
    mine, theirs = answer.replace(",", ""), target.replace(",", "")
    try:
        return _whole(right=float(mine) == float(theirs))
    except ValueError:
        return _whole(right=mine.strip() == theirs.strip())


def _score_finer(answer: str, target: str) -> Score:
    """Compare label by label in lower case; missing labels are wrong, additional ones are ignored."""
    given, wanted = ([label.strip().lower() for label in text.split(",")] for text in (answer, target))
    right = sum(answered == expected != "" for answered, expected in zip(given, wanted, strict=False))
    return Score(right=right, asked=len(wanted))


def _score_text(answer: str, target: str) -> Score:
    """Compare as numbers if both are, without currency and percent signs; otherwise as text."""
    mine, theirs = _number(answer), _number(target)
    if mine is not None and theirs is not None:
        return _whole(right=mine == theirs)
    return _whole(right=" ".join(answer.split()).casefold() == " ".join(target.split()).casefold())


def _number(text: str) -> float | None:
    try:
        return float(text.strip().replace(",", "").removeprefix("$").removesuffix("%"))
    except ValueError:
        return None


def _whole(*, right: bool) -> Score:
    return Score(right=int(right), asked=1)


_SCORERS: Mapping[SampleKind, Callable[[str, str], Score]] = {
    "formula": _score_formula,
    "finer": _score_finer,
    "text": _score_text,
}
