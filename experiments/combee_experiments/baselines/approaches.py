"""Retrieval at inference, and summaries of one, of many, or level by level, that agents get; with their prompts."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from rapidfuzz import fuzz, process
from rapidfuzz.utils import default_process

from combee.adapters.ports import LanguageModel, PoisonError
from combee.core.methods.ace import DATA_WARNING, MAX_FIELD_CHARS
from combee.core.playbook.operations import MAX_OPERATIONS
from combee.core.playbook.versions import empty
from combee.core.text.forms import clean_line
from combee.core.text.prompt import as_line, fence
from combee_experiments.scoring.exam import Given
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import LESSON_FIELDS, Reflection

QUERY_CHARS = 2_000
"""A question's end is compared: FiNER questions begin with pages of options that all share."""
MAX_ENTRY_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What an approach leaves behind."""

    kept: tuple[str, ...]
    """All that is stored."""
    given: Given
    """What of it an agent gets with its question."""
    usage: Usage = field(default_factory=Usage)
    """What learning it cost; reflecting not counted, which all approaches need."""


def as_playbook(texts: Sequence[str]) -> Playbook:
    """Return texts as an agent's prompt shows them: entries."""
    entries = (
        Entry(id=f"line-{n:05d}", section="NOTES", content=clean_line(text, MAX_ENTRY_CHARS))
        for n, text in enumerate(texts, 1)
    )
    return empty("baseline").model_copy(update={"entries": tuple(entries)})


def whole(texts: Sequence[str], usage: Usage) -> Learned:
    """Give every agent everything."""
    book = as_playbook(texts)
    return Learned(kept=tuple(texts), given=lambda _: book, usage=usage)


def retrieval(reflections: Sequence[Reflection], k: int) -> Learned:
    """Keep the raw reflections; an agent gets the k whose insight is most like its question (no model call)."""
    insights = [default_process(reflection.key_insight) for reflection in reflections]
    # Each field is a line of its own, since the stand-in's agents know a lesson by its line.
    raw = [[text for name in LESSON_FIELDS if (text := getattr(one, name))] for one in reflections]

    def given(question: str) -> Playbook:
        query = default_process(question[-QUERY_CHARS:])
        found = process.extract(query, insights, scorer=fuzz.token_set_ratio, limit=k)
        return as_playbook([text for _, _, index in found for text in raw[index]])

    return Learned(kept=tuple(map("\n".join, raw)), given=given)


def batches(reflections: Sequence[Reflection], size: int) -> Iterator[Sequence[Reflection]]:
    """Yield the reflections a batch at a time."""
    return (reflections[start : start + size] for start in range(0, len(reflections), size))


class Summariser:
    """Asks one model for summaries and counts what it cost."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.usage = Usage()

    async def flat(self, batch: Sequence[Reflection]) -> tuple[str, ...]:
        """Summarise a batch in one call."""
        return await self._ask(summarise_reflections(batch))

    async def rewritten(self, batch: Sequence[Reflection], before: Sequence[str]) -> tuple[str, ...]:
        """Summarise a batch together with the summary so far, which is replaced."""
        return await self._ask(summarise_reflections(batch, before)) or tuple(before)

    async def tree(self, batch: Sequence[Reflection]) -> tuple[str, ...]:
        """Summarise ⌊√n⌋ groups, then their summaries."""
        groups = isqrt(len(batch))
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(self.flat(batch[start::groups])) for start in range(groups)]
        lines = [line for part in parts for line in part.result()]
        return await self._ask(summarise_lines(lines)) if groups > 1 and lines else tuple(lines)

    async def _ask(self, prompt: Prompt) -> tuple[str, ...]:
        try:
            reply = await self._model.ask(prompt)
        except PoisonError as error:  # nobody splits a baseline's prompt that is too long
            self.usage += error.usage
            return ()
        self.usage += reply.usage
        return read_summary(reply.body)


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
    texts = [reflection.model_dump(include=set(LESSON_FIELDS)) for reflection in reflections]
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
    cleaned = (clean_line(line, MAX_FIELD_CHARS) for line in lines if isinstance(line, str))
    return tuple(line for line in cleaned if line)
