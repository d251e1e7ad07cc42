"""The stand-in's lessons from one run: a rule found by code in the task, the answer and the target."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from combee.core.formats.ace_protocol import FORMULA_NAME, TAGGING
from combee_sim.family import desk
from combee_sim.family.conventions import infer
from combee_sim.family.family import read_question

_FORMULA_TEXT = re.compile(r"formula: (?P<text>.{1,400}?),? explanation:", re.IGNORECASE | re.DOTALL)
_TIMES_HUNDRED = re.compile(r"[×*x]\s*100\b")
_PLACES = re.compile(r"(\d) decimal", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_EQUATION = re.compile(r"(?P<left>\d{1,12}(?: \? \d{1,12}){1,20}) = (?P<right>-?\d{1,24})")
_OPERATOR = re.compile(r" ([-+*/]) ")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+")
_TARGET = re.compile(
    r"(?:the )?right answer(?: is|:) (?P<target>.{1,400}?)\.?$|wrong, (?P<wanted>.{1,400}) was wanted",
    re.IGNORECASE | re.MULTILINE,
)
_VERDICT = re.compile(
    r"^\W*(?:the answer (?:is|was) )?(?:half |partly |not )?(?:right|correct|wrong|incorrect)\b\W*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][\w'-]{2,}")
_FEWEST_WORDS = 4
_MOST_CASE_CHARS = 200
_FAR = 10
PERCENT, PLAIN = "a bare percentage number, not a fraction", "the plain value, not a percentage"
_OPERATOR_NAMES = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}


def insight(task: str, answer: str, target: str | None, feedback: str = "") -> str:
    """Return the lesson of one run, empty if it has none.

    A rule behind task and target comes first: it gives the same sentence for all numbers. Next is the reason in the
    feedback, last the case itself.
    """
    if target:
        for reader in (_of_desk, _of_family, _of_formula, _of_equation, _of_tagging):
            if lesson := reader(task, answer, target):
                return lesson
    return _of_feedback(feedback) or _of_case(task, target or "")


def of_record(record: Mapping[str, Any]) -> str:
    """Return the lesson of a run as GEPA records it, whose feedback may contain the right answer."""
    feedback = str(record.get("Feedback", ""))
    match = _TARGET.search(feedback)
    task, output = str(record.get("Inputs", "")), str(record.get("Generated Outputs", ""))
    target = (match["target"] or match["wanted"]).strip() if match else None
    return insight(task, output.strip().rpartition("\n")[2], target, feedback)


def needed(task: str, target: str) -> tuple[str, ...]:
    """Return the lessons needed for a ticket, a question of the family, a Formula or a FiNER row: one per place."""
    if TAGGING.search(task):
        return tuple(_tag_lesson(tag.strip()) for tag in target.split(","))
    rule = _of_desk(task, "", target) or _of_family(task, "", target) or _of_formula(task, "", target)
    return (rule,) if rule else ()


Reader = Callable[[str, str, str], str | None]


def _of_desk(task: str, answer: str, target: str) -> str | None:
    del answer
    rule = desk.asked(task)
    return rule.wordings[0] if rule and target.strip() == rule.answer else None


def _of_family(task: str, answer: str, target: str) -> str | None:
    del answer
    asked = read_question(task)
    convention = infer(asked.quantity, asked.operands, target) if asked else None
    return convention.sentence() if convention else None


def _of_formula(task: str, answer: str, target: str) -> str | None:
    del answer
    named, text = FORMULA_NAME.search(task), _FORMULA_TEXT.search(task)
    if named is None or text is None or not _NUMBER.fullmatch(target.strip()):
        return None
    shape = shape_of(text["text"])
    places = match[1] if (match := _PLACES.search(task)) else "2"
    return f"{named['name']}: compute it with {text['text'].strip()} and give {shape}, to {places} decimals."


def shape_of(formula: str) -> str:
    """Return how a formula's value is given; a target of 0.2 is a fraction or a fifth of a per cent."""
    return PERCENT if _TIMES_HUNDRED.search(formula) else PLAIN


def _of_equation(task: str, answer: str, target: str) -> str | None:
    del answer
    equation = _EQUATION.search(task)
    used = sorted(set(_OPERATOR.findall(target.partition("=")[0])))
    if equation is None or not used:
        return None
    numbers = [int(number) for number in equation["left"].split(" ? ")]
    names = " and ".join(_OPERATOR_NAMES[operator] for operator in used)
    size = _size(int(equation["right"]), numbers)
    return f"When the result of an equation is {size}, try {names} for the missing operators."


def _size(result: int, numbers: Sequence[int]) -> str:
    if result < 0:
        return "far below zero" if -result > sum(numbers) else "below zero"
    if result <= max(numbers):
        return "no larger than the largest number"
    if result <= sum(numbers):
        return "at most the sum of the numbers"
    return "far above the sum of the numbers" if result > _FAR * sum(numbers) else "above their sum"


def _of_tagging(task: str, answer: str, target: str) -> str | None:
    if TAGGING.search(task) is None:
        return None
    wanted = [tag.strip() for tag in target.split(",")]
    given = [tag.strip() for tag in answer.split(",")]
    missed = [tag for n, tag in enumerate(wanted) if n >= len(given) or given[n] != tag]
    return _tag_lesson((missed or wanted)[0])


def _tag_lesson(tag: str) -> str:
    meaning = " ".join(word if word.isupper() else word.lower() for word in _CAMEL.findall(tag))
    return f"Use the tag {tag} for the entity in a sentence that states the {meaning}."


def _of_feedback(feedback: str) -> str:
    """Return the feedback's text other than a verdict and a right answer."""
    reason = _VERDICT.sub("", " ".join(_TARGET.sub("", feedback).split()))
    return reason[:1].upper() + reason[1:] if len(_WORD.findall(reason)) >= _FEWEST_WORDS else ""


def _of_case(task: str, target: str) -> str:
    case = " ".join(task.split())[:_MOST_CASE_CHARS]
    if not case:
        return ""
    if target:
        return f"Asked “{case}”, answer {target}."
    return (
        f"Asked “{case}”, find out whether the answer was right: this run got neither feedback nor a target."
    )
