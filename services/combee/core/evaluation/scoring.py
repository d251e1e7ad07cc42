"""Scorers: compare an answer with the right one. Neither is ever evaluated as code."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from combee.core.evaluation.questions import Question
from combee.core.formats import ace_protocol
from combee.core.text.prompt import FENCE_WARNING, STRING, fence, object_of
from combee_schemas.model import Prompt

ScorerName = Literal["ace", "exact", "regex", "judge"]
"""ace: the rules of ACE's data, other questions as numbers or text; exact: the same text; regex: the right answer is
a pattern; judge: a model decides."""
SCORERS: tuple[ScorerName, ...] = get_args(ScorerName)
SHOWN = 80
"""Maximum characters of a pattern in an error."""
MAX_SEARCHED = 2_000
"""Maximum characters of an answer that a pattern searches: a bad pattern takes long on a long text."""

JUDGE = f"""You are the judge of an exam. You get a question, the right answer and the answer that was given. Say
whether the given answer says the same as the right one; how it is worded does not matter, figures and names do.
{FENCE_WARNING}
Answer with one JSON object: {{"reasoning": "...", "is_right": true}}
"reasoning": how the two answers differ, if they do. "is_right": whether they say the same."""
JUDGEMENT_SCHEMA = object_of(reasoning=STRING, is_right={"type": "boolean"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The points for an answer."""

    right: float
    places: int = 1
    """Maximum number of points: one, or one per label."""


def none_of(question: Question) -> Points:
    """Return the points for a missing answer."""
    return Points(right=0, places=len(question.target.split(",")) if question.kind == "finer" else 1)


def bad_pattern(question: Question) -> str:
    """Return why a question's right answer is not a valid pattern; empty if it is."""
    try:
        re.compile(question.target)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{question.target[:SHOWN]!r} is not a regular expression: {error}"
    return ""


def score(scorer: Literal["ace", "exact"], answer: str, question: Question) -> Points:
    """Score an answer with a rule in code."""
    if scorer == "ace":
        judged = ace_protocol.score(question.kind, answer, question.target)
        return Points(right=judged.right, places=judged.asked)
    return Points(right=int(answer.strip() == question.target.strip()))


def judge_prompt(question: Question, answer: str) -> Prompt:
    """Ask a model whether an answer is right."""
    parts = (("question", question.text), ("right_answer", question.target), ("given_answer", answer))
    return Prompt(
        system=JUDGE,
        user="\n".join(fence(name, [text]) for name, text in parts),
        reply_name="judgement",
        reply_schema=JUDGEMENT_SCHEMA,
        optional=frozenset({"reasoning"}),
    )


def read_judgement(body: Mapping[str, Any]) -> Points:
    """Return a judge's decision.

    Raises
    ------
    ValueError
        If it is neither yes nor no.
    """
    is_right = body.get("is_right")
    if not isinstance(is_right, bool):
        raise ValueError("the judge's reply is neither true nor false")  # noqa: TRY004 - a model's text
    return Points(right=int(is_right))
