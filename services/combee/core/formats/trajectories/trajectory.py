"""A recorded run of any format, and its conversion to a trace."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from combee.core.formats.intake import LineError, lines_of
from combee.core.names.identity import content_id
from combee.core.text.condensing import Step, condensed, cut_end
from combee.core.text.forms import writable
from combee.core.text.shortening import cut, size
from combee_schemas.base import Source
from combee_schemas.trace import Trace

PATH_BYTES = 1_000

Files = Mapping[str, str]
"""The texts of a run's files by their paths below its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One recorded run."""

    task: str
    steps: tuple[Step, ...]
    answer: str = ""
    feedback: str = ""
    success: bool | None = None
    """None: the format does not record it."""
    score: Mapping[str, float] = field(default_factory=dict)
    agent: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFormat:
    """Where a format's files are, and how those of one run are read."""

    name: str
    marks: tuple[str, ...]
    """Patterns of files below the folder; each matching file is a run, or marks one."""
    up: int
    """Number of folders from the mark up to the run's own folder; 0: the mark is the whole run."""
    beside: tuple[str, ...] = ()
    """Patterns of the run's other files, below its folder."""
    read: Callable[[Files, str], Trajectory | None]
    """Reads the files, given the mark's path. None: no run, such as a summary of many; raises LineError."""


def trace_of(
    run: Trajectory, playbook: str, *, source: str, place: str, trace_bytes: int, redact: Callable[[str], str]
) -> Trace:
    """Return a run as a trace with texts of at most ``trace_bytes``; the same content has the same id.

    ``source``: the format's name; ``place``: the run's path below the given folder; ``redact``: applied to every text
    before it is cut. JSON may hold halves of surrogate pairs, which no record can: they are replaced.
    """
    share = trace_bytes // 8
    task, answer = cut(redact(run.task), share), cut(redact(run.answer), share)
    feedback = cut(redact(run.feedback), share)
    steps = [replace(step, text=redact(step.text)) for step in run.steps]
    trajectory = condensed(steps, trace_bytes - size(task) - size(answer) - size(feedback))
    original = sum(size(step.text) for step in steps)
    fields: dict[str, Any] = {
        "task": writable(task),
        "trajectory": writable(trajectory),
        "answer": writable(answer),
        "feedback": writable(feedback),
        "success": run.success,
        "score": {writable(name): value for name, value in run.score.items()},
    }
    return Trace(
        trace_id=content_id("t", playbook, json.dumps(fields, sort_keys=True, ensure_ascii=False)),
        playbook=playbook,
        agent=writable(run.agent),
        source=Source(name=source),
        metadata={
            name: writable(text)
            for name, text in {"path": redact(cut_end(place, PATH_BYTES)), **run.metadata}.items()
        },
        original_bytes=original if original > size(trajectory) else None,
        **fields,
    )


# ---- shared by the readers


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return a file's JSON object.

    Raises
    ------
    LineError
        If the file does not hold one.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"{what}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LineError(f"{what}: expected an object")
    return value


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; broken and half-written lines are skipped."""
    for line in lines_of(text):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def text_of(content: Any) -> str:
    """Return the text of content in parts; other parts are only named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    parts = (
        str(part.get("text") or f"[{part.get('type', 'part')}]") if isinstance(part, dict) else str(part)
        for part in content
    )
    return "\n".join(parts)


def call_text(name: Any, arguments: Any) -> str:
    """Return a tool's call; the single text argument that most calls have is unquoted."""
    if (
        isinstance(arguments, dict)
        and len(arguments) == 1
        and isinstance(value := next(iter(arguments.values())), str)
    ):
        return f"{name}: {value}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{name} {text}"


def verdict_text(*parts: str) -> str:
    """Return feedback composed of the available parts."""
    return "\n".join(part.strip() for part in parts if part and part.strip())
