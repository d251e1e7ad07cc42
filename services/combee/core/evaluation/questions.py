"""Held-out questions: ACE samples, read like the input of ``combee learn``; and the key of a stored score."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from combee.core.formats.ace_protocol import SampleKind
from combee.core.formats.intake import LineError, Sample, read_line

NO_PLAYBOOK = "held-out"
"""Placeholder where items of ``combee learn`` name a playbook: questions belong to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question with its right answer."""

    id: str
    text: str
    """The whole text that an answerer is shown."""
    target: str
    """The right answer; for the scorer ``regex``, a pattern of it."""
    kind: SampleKind = "text"


def read_questions(lines: Iterable[str], on_bad_line: Callable[[int, str], None]) -> list[Question]:
    """Return the questions of a JSON-lines file, each once; lines without one are reported and skipped."""
    questions: dict[str, Question] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = read_line(line, NO_PLAYBOOK)
        except LineError as error:
            on_bad_line(number, str(error))
            continue
        if not isinstance(item, Sample):
            on_bad_line(number, 'no question: expected {"context", "question"?, "target"}')
            continue
        questions[item.trace_id] = Question(
            id=item.trace_id, text=item.question, target=item.target, kind=item.kind
        )
    return list(questions.values())


def asked(parts: Mapping[str, str]) -> str:
    """Return the key of a score: the SHA-256 of all its inputs by name."""
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
