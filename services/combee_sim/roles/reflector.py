"""The stand-in as reflector: it infers the rule behind one run by code."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from combee_sim.family.insights import insight
from combee_sim.family.knowledge import Knowledge
from combee_sim.family.lessons import key, subject
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.failing import Failing
from combee_sim.roles.reading import Reading

_FAILED = re.compile(r"\b(wrong|incorrect|fail\w*|errors?|not (correct|right))\b", re.IGNORECASE)
_PASSED = re.compile(r"\b(right|correct|pass(ed)?|success\w*|solved)\b", re.IGNORECASE)
_EXCERPT_CHARS = 240


def reflect(reading: Reading, knowledge: Knowledge, seed: int = 0, modes: Modes = NO_MODES) -> dict[str, Any]:
    """Return the ACE reflector's fields for the run in the prompt; its lesson may use the data row behind it."""
    run = _run(reading)
    task, answer = str(run.get("task", "")), str(run.get("answer", ""))
    target = run.get("target")
    wanted = target if isinstance(target, str) else None
    lesson = insight(knowledge.statement(task), answer, wanted, str(run.get("feedback", "")))
    lesson = Failing(modes, (seed, task, answer, str(target))).reflected(lesson, seed)
    correct = _was_right(run)
    return {
        **_prose(run, lesson, correct=correct),
        "key_insight": lesson,
        "bullet_tags": list(_tags(reading, lesson, correct=correct)),
    }


def _run(reading: Reading) -> Mapping[str, Any]:
    runs = [value for value in reading.objects if "task" in value]
    return runs[-1] if runs else {"task": reading.last_user_text}


def _was_right(run: Mapping[str, Any]) -> bool:
    """Return the feedback's verdict if it has one; otherwise compare answer and target."""
    feedback, target = str(run.get("feedback", "")), run.get("target")
    if _FAILED.search(feedback):
        return False
    if _PASSED.search(feedback) or not isinstance(target, str):
        return True
    return str(run.get("answer", "")).strip() == target.strip()


def _prose(run: Mapping[str, Any], lesson: str, *, correct: bool) -> dict[str, str]:
    """Return the fields that a real reflector fills at length, with a few hundred tokens."""
    task = " ".join(str(run.get("task", "")).split())[-_EXCERPT_CHARS:]
    answer = " ".join(str(run.get("answer", "")).split())[:_EXCERPT_CHARS] or "nothing"
    target = " ".join(str(run.get("target") or "not known").split())[:_EXCERPT_CHARS]
    verdict = "was right" if correct else "was not what was wanted"
    return {
        "reasoning": (
            f"The run was given this: {task} It answered {answer}; the reference is {target}, so the answer "
            f"{verdict}. Working back from the reference with the figures and words of the task shows which "
            "rule leads there, and it can be stated without the particular figures of this run."
        ),
        "error_identification": (
            "No error: the rule was followed through to the end."
            if correct
            else f"The answer {answer} does not agree with {target}, although the task was understood."
        ),
        "root_cause_analysis": (
            "The run relied on knowledge that fits this kind of task and applied it as it stands."
            if correct
            else "The run followed the most common reading of the task and did not know the rule in force here."
        ),
        "correct_approach": f"Look the rule up before computing, then apply it step by step. {lesson}",
    }


def _tags(reading: Reading, lesson: str, *, correct: bool) -> Iterator[dict[str, str]]:
    """Judge the shown entries that concern this run; others get no tag."""
    about = subject(lesson)
    for entry in reading.entries:
        same_subject = about is not None and subject(entry.content) == about
        if same_subject or key(entry.content) == key(lesson):
            yield {"id": entry.id, "tag": "helpful" if correct else "harmful"}
