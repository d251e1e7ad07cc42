"""Asking a model to summarise reflections or summaries; the reflections read as an aggregator reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from combee.core.methods.ace import DATA_WARNING, MAX_FIELD_CHARS
from combee.core.playbook.operations import MAX_OPERATIONS, clean
from combee.core.prompt import as_line, fence
from combee_schemas.model import Prompt
from combee_schemas.reflection import LESSON_FIELDS, Reflection

SUMMARISE = f"""You summarise what many agent runs have taught, for the agents that come next.
Write one line per distinct lesson: specific, reusable. Say the same thing once; leave out what is vague.
{DATA_WARNING}
Answer with one JSON object: {{"reasoning": "...", "summary_lines": ["..."]}}"""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "summary_lines": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["reasoning", "summary_lines"],
    "additionalProperties": False,
}


def summarise_reflections(reflections: Sequence[Reflection], before: Sequence[str] = ()) -> Prompt:
    """Ask for one summary of reflections, and of the lines of an earlier summary if there is one."""
    texts = [one.model_dump(include=set(LESSON_FIELDS)) for one in reflections]
    told = [{name: text for name, text in one.items() if text} for one in texts]
    return _ask([{"content": line} for line in before] + told)


def summarise_lines(lines: Sequence[str]) -> Prompt:
    """Ask for one summary of the lines of several."""
    return _ask([{"content": line} for line in lines])


def _ask(items: Sequence[Mapping[str, Any]]) -> Prompt:
    numbered = (as_line({"n": n} | dict(item)) for n, item in enumerate(items, 1))
    return Prompt(
        system=SUMMARISE,
        user=fence("material", numbered),
        reply_name="summary",
        reply_schema=SCHEMA,
        optional=frozenset({"reasoning"}),
    )


def read_summary(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a summary's lines; what is no text is left out."""
    found = body.get("summary_lines")
    lines = found[:MAX_OPERATIONS] if isinstance(found, list) else []
    cleaned = (clean(line, MAX_FIELD_CHARS) for line in lines if isinstance(line, str))
    return tuple(line for line in cleaned if line)
