"""Users' JSON lines, read as traces, samples or reflections; and problems with their fields."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from combee.core.formats.ace_protocol import SampleKind, asked, score
from combee.core.names.identity import content_id
from combee.core.text.shortening import cut, size
from combee_schemas.base import named_score
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

ACE_REFLECTION = {"key_insight", "correct_approach", "root_cause_analysis", "error_identification"}
GEPA_RECORD = ("Inputs", "Generated Outputs")
TRACE_NAMES = {"trajectory", "output", "answer", "feedback", "trace_id"}
TASK_NAMES = ("prompt", "task", "question")
SAMPLE_NAMES = ("context", "question", "target")
MAX_TRACE_BYTES = 400 * 1024
MAX_NAME = 80
"""Maximum number of characters compared in a field name."""
MAX_LISTED = 20
SHAPES = (
    'a trace {"task", "trajectory"|"output", "answer", "feedback"?, "target"?},'
    ' an ACE sample {"context", "question"?, "target"}, a reflection {"key_insight", …}'
    ' or a GEPA record {"Inputs", "Generated Outputs", "Feedback"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A question with its right answer: an agent must answer it before there is a trace."""

    trace_id: str
    playbook: str
    question: str
    """The whole text that an agent is shown."""
    target: str
    kind: SampleKind = "text"


Item = Trace | Sample | Reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A field that is ignored."""

    place: str
    """Path of the field, such as ``bullet_tags.0.tga``."""
    near: str
    """The most similar known name; empty if there is none."""
    known: tuple[str, ...]

    @property
    def advice(self) -> str:
        """The problem in words for the sender."""
        meant = f"did you mean {self.near}?" if self.near else f"known are {', '.join(self.known)}"
        return f"unknown field; {meant}"

    @classmethod
    def named(
        cls, name: str, known: Iterable[str], place: str = "", *, is_compared: bool = True
    ) -> "Unknown":
        """Return the report on a name that is not among the known ones."""
        names = tuple(known)
        near = get_close_matches(name[:MAX_NAME].lower(), names, n=1) if is_compared else []
        return cls(place=place or name, near=near[0] if near else "", known=names)


def unknown_fields(
    kind: type[BaseModel], given: Mapping[str, Any], below: str = "", *, are_compared: bool = True
) -> Iterator[Unknown]:
    """Yield each field that ``kind``, or a part of it, does not have; comparing it with known names is slow."""
    for name, value in given.items():
        if name not in kind.model_fields:
            yield Unknown.named(name, kind.model_fields, below + name, is_compared=are_compared)
            continue
        part = _part(kind.model_fields[name].annotation)
        items = enumerate(value) if isinstance(value, list) else ((None, value),)
        for at, item in items if part else ():
            if part is not None and isinstance(item, dict):
                place = f"{below}{name}." if at is None else f"{below}{name}.{at}."
                yield from unknown_fields(part, item, place, are_compared=are_compared)


def ignored_text(ignored: Mapping[str, Unknown]) -> str:
    """Return one line about ignored fields, by name; empty if there are none."""
    if not ignored:
        return ""
    names = [
        f"{name} (did you mean {field.near}?)" if field.near else name for name, field in ignored.items()
    ]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"fields that were ignored: {', '.join(names[:MAX_LISTED])}{more}"


def _part(annotation: Any) -> type[BaseModel] | None:
    """Return the model in a field's type: alone, in a list, or in a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((part for arg in get_args(annotation) if (part := _part(arg))), None)


class LineError(ValueError):
    """A line of no known shape; the message says what was expected."""


def read_line(text: str, playbook: str, ignored: dict[str, Unknown] | None = None) -> Item:
    """Return the item in one line. Without an id, the same content gets the same id.

    Names of ignored fields are added to ``ignored``.

    Raises
    ------
    LineError
        If the line cannot be used.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise LineError(f"expected an object: {SHAPES}")
    fields = {name: value for name, value in fields.items() if value is not None}
    digest = json.dumps(fields, sort_keys=True, ensure_ascii=False)
    try:
        item = _read(_named(fields), playbook, digest)
    except ValidationError as error:
        raise LineError(_first_wrong(error)) from error
    if not isinstance(item, Sample) and (lack := item.lack):
        raise LineError(lack)
    if ignored is not None:
        ignored |= {field.place.rpartition(".")[2]: field for field in _ignored(fields, item)}
    return item


def read_outcome(text: str, playbook: str, ignored: dict[str, Unknown]) -> Outcome | None:
    """Return the outcome in a line; None if it is none, as nothing is learned from outcomes.

    Raises
    ------
    LineError
        If the outcome is invalid.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    others = {*TRACE_NAMES, *TASK_NAMES, *ACE_REFLECTION, *GEPA_RECORD, "target"}
    if not isinstance(fields, dict) or "run_id" not in fields or others & fields.keys():
        return None
    fields = {name: value for name, value in fields.items() if value is not None}
    try:
        outcome = Outcome.model_validate({**_named(fields), "playbook": playbook})
    except ValidationError as error:
        raise LineError(_first_wrong(error)) from error
    ignored |= {field.place.rpartition(".")[2]: field for field in unknown_fields(Outcome, fields)}
    return outcome


def _first_wrong(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """Name unnamed values in users' files: a number is a score, a text is a source's name."""
    source = fields.get("source")
    named = {"source": {"name": source}} if isinstance(source, str) else {}
    return fields | named | ({"score": named_score(fields["score"])} if "score" in fields else {})


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
        return _sample(fields, playbook, digest)
    raise LineError(f"unknown fields {', '.join(sorted(fields)) or '(none)'}: expected {SHAPES}")


def _sample(fields: dict[str, Any], playbook: str, digest: str) -> Sample:
    context, question = (str(fields.get(name) or "") for name in ("context", "question"))
    target = str(fields["target"])
    shown = asked(context, question, target)
    return Sample(
        trace_id=content_id("t", playbook, digest),
        playbook=playbook,
        question=shown.question,
        target=target,
        kind=shown.kind,
    )


def _ignored(fields: dict[str, Any], item: Item) -> Iterable[Unknown]:
    """Return the fields of a line that its item does not use."""
    match item:
        case Sample():
            names: tuple[str, ...] = SAMPLE_NAMES
        case Trace():
            names = (*Trace.model_fields, *TASK_NAMES, "output")
        case Reflection() if ACE_REFLECTION & fields.keys():
            return unknown_fields(Reflection, fields)
        case Reflection():
            names = (*GEPA_RECORD, "Feedback")
    return (Unknown.named(name, names) for name in fields if name not in names)


def _trace(fields: dict[str, Any], playbook: str, digest: str) -> Trace:
    known = {name: value for name, value in fields.items() if name in Trace.model_fields}
    task = next((fields[name] for name in TASK_NAMES if fields.get(name)), None)
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


def fit(trace: Trace) -> Trace:
    """Return the trace with its trajectory cut in the middle if it is too long for a record."""
    original = size(trace.trajectory)
    if original <= MAX_TRACE_BYTES:
        return trace
    cut_trajectory = cut(trace.trajectory, MAX_TRACE_BYTES)
    return trace.model_copy(update={"trajectory": cut_trajectory, "original_bytes": original})


def _text(value: object) -> str:
    """Return a trajectory as text, with one line per turn of a list."""
    if isinstance(value, str):
        return value
    turns = value if isinstance(value, list) else [value]
    return "\n".join(
        turn if isinstance(turn, str) else json.dumps(turn, ensure_ascii=False) for turn in turns
    )


def verdict(answer: str, target: object, kind: SampleKind = "text") -> str:
    """Return feedback on an answer with a known right value; empty otherwise."""
    if target is None:
        return ""
    if score(kind, answer, str(target)).share == 1:
        return "The answer is right."
    return f"The answer is wrong; the right answer is {target}."
