"""Lines of JSON that people already have, read as traces, samples or reflections."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from combee.core.cutting import cut, size
from combee.core.identity import content_id
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

ACE_REFLECTION = {"key_insight", "correct_approach", "root_cause_analysis", "error_identification"}
GEPA_RECORD = ("Inputs", "Generated Outputs")
TRACE_NAMES = {"trajectory", "output", "answer", "feedback", "trace_id"}
MAX_TRACE_BYTES = 400 * 1024
SHAPES = (
    'a trace {"task", "trajectory"|"output", "answer", "feedback"?, "target"?},'
    ' an ACE sample {"context", "question"?, "target"}, a reflection {"key_insight", …}'
    ' or a GEPA record {"Inputs", "Generated Outputs", "Feedback"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A question with its right answer: an agent has to answer it before there is a trace."""

    trace_id: str
    playbook: str
    question: str
    target: str


Item = Trace | Sample | Reflection


class LineError(ValueError):
    """A line that is none of the shapes; the message says what was expected."""


def read_line(text: str, playbook: str) -> Item:
    """Return what one line holds. Without an id of its own, the same content gets the same id.

    Raises
    ------
    LineError
        If the line cannot be used.
    """
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise LineError(f"expected an object: {SHAPES}")
    fields = {name: value for name, value in fields.items() if value is not None}
    digest = json.dumps(fields, sort_keys=True, ensure_ascii=False)
    try:
        return _read(fields, playbook, digest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise LineError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _read(fields: dict[str, Any], playbook: str, digest: str) -> Item:
    if ACE_REFLECTION & fields.keys():
        identity = {"reflection_id": fields.get("reflection_id") or content_id("r", playbook, digest)}
        return Reflection.model_validate({**fields, **identity, "playbook": playbook})
    if fields.keys() >= set(GEPA_RECORD):
        record = {name: _text(fields[name]) for name in (*GEPA_RECORD, "Feedback") if name in fields}
        reflection_id = content_id("r", playbook, digest)
        return Reflection(reflection_id=reflection_id, playbook=playbook, side_info=record)
    if TRACE_NAMES & fields.keys():
        return _trace(fields, playbook, digest)
    if "target" in fields and ({"context", "question"} & fields.keys()):
        question = "\n\n".join(str(fields[name]) for name in ("context", "question") if fields.get(name))
        trace_id = content_id("t", playbook, digest)
        return Sample(trace_id=trace_id, playbook=playbook, question=question, target=str(fields["target"]))
    raise LineError(f"unknown fields {', '.join(sorted(fields)) or '(none)'}: expected {SHAPES}")


def _trace(fields: dict[str, Any], playbook: str, digest: str) -> Trace:
    known = {name: value for name, value in fields.items() if name in Trace.model_fields}
    task = fields.get("prompt") or fields.get("task") or fields.get("question")
    if not task:
        raise LineError(f"a trace needs a task: expected {SHAPES}")
    target = fields.get("target")
    answer = str(fields.get("answer", ""))
    derived = {
        "trace_id": str(fields.get("trace_id") or content_id("t", playbook, digest)),
        "playbook": playbook,
        "task": str(task),
        "trajectory": _text(fields.get("trajectory", fields.get("output", ""))),
        "answer": answer,
        "target": None if target is None else str(target),
        "feedback": str(fields.get("feedback") or verdict(answer, target)),
    }
    return fit(Trace.model_validate(known | derived))


def fit(trace: Trace, max_bytes: int = MAX_TRACE_BYTES) -> Trace:
    """Return the trace with its trajectory cut in the middle if it is too long for a record."""
    original = size(trace.trajectory)
    if original <= max_bytes:
        return trace
    cut_trajectory = cut(trace.trajectory, max_bytes)
    return trace.model_copy(update={"trajectory": cut_trajectory, "original_bytes": original})


def _text(value: object) -> str:
    """Return a trajectory as text; a list of turns becomes one turn a line."""
    if isinstance(value, str):
        return value
    turns = value if isinstance(value, list) else [value]
    return "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in turns)


def verdict(answer: str, target: object) -> str:
    """Return feedback for an answer whose right value is known; empty where it is not."""
    if target is None:
        return ""
    if is_right(answer, str(target)):
        return "The answer is right."
    return f"The answer is wrong; the right answer is {target}."


def is_right(answer: str, target: str) -> bool:
    """Return whether an answer equals the target: as numbers where both are, else as text."""
    mine, theirs = _number(answer), _number(target)
    if mine is not None and theirs is not None:
        return mine == theirs
    return " ".join(answer.split()).casefold() == " ".join(target.split()).casefold()


def _number(text: str) -> float | None:
    try:
        return float(text.strip().replace(",", "").removeprefix("$").removesuffix("%"))
    except ValueError:
        return None
