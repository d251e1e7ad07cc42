"""The GEPA method: a playbook of components, whole texts that are rewritten (GEPA: arXiv 2507.19457).

A group's call reads the current text and the group's records and writes a full new text; a combine reads the current
text and the children's texts and writes one. So texts compete rather than lessons.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from combee.core.methods.method import NO_NAMES, Answer, Sources
from combee.core.playbook.operations import union
from combee.core.text.forms import clean
from combee.core.text.prompt import FENCE_WARNING, STRING, as_items, cache_key, fence, object_of
from combee_schemas.base import Holds
from combee_schemas.model import CHARS_PER_TOKEN, Prompt
from combee_schemas.playbook import MAX_BUDGET_TOKENS, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace

HOLDS: Holds = "components"
REBASES = False
"""A text written for one version lacks the next one's changes: applied to it, it would undo a whole batch."""
COMPONENT = "instruction"
"""Name of the component of a playbook without any."""
MAX_FIELD_CHARS = 8_000
"""Maximum characters of each text: a record's three texts stay well below a reflection's cap of 256 KiB."""
MAX_TEXT_CHARS = MAX_BUDGET_TOKENS * CHARS_PER_TOKEN
"""Maximum characters of a new text, as many as the largest token budget; longer texts are refused, never cut."""
CURR_PARAM, SIDE_INFO = "<curr_param>", "<side_info>"
"""Placeholders of the current text and the data, as in GEPA's own templates."""

SHARED = f"""You improve a text that an assistant is given before each task, such as an instruction. You see the
current text and what was learned where it was used, and you write one new text. Keep what the current text says and
nothing below contradicts.
Answer with the full new text between ``` fences, the first and the last on lines of their own. Nothing
outside the fences is kept, and the text replaces the current one as a whole.
{FENCE_WARNING}

The current text:
{CURR_PARAM}
"""
"""The shared beginning of both prompts, so that a server reads it once for all calls of a batch."""

REWRITE = f"""These are records of runs in which the current text was used: the inputs, what the assistant produced,
and feedback on that. Write a better text. Find out from the records what the tasks are, what their inputs look like
and how they are to be done. State every rule, every fact of the domain, however narrow, and every way of working that
would have helped, each crisply and in general, without the particular numbers of one task unless they are the rule.
Neither the records nor the right answers will be available later: say how to get there.

The records:
{SIDE_INFO}
"""

COMBINE = f"""Several writers saw different records of the same batch of runs, and each wrote a new version of the
current text. Write one text that says everything worth keeping of all of them: every rule and fact once, those that
complement each other side by side, and where two conflict the one that more versions say, then the more specific one,
then the later one: the versions that rest on the fewest records come first, and of equals those with the oldest
records. Keep all relevant details, even those that one version alone has: steps, formats, names, figures, conditions,
exceptions and examples. Leave out nothing but repeats.

The versions:
{SIDE_INFO}
"""

NOTHING_YET = "(there is none yet)"
ANSWER = """You are an agent. Do the task as the text between the tags tells you; it was learned from earlier runs.
Answer with one JSON object: {"reasoning": "...", "final_answer": "..."}
"reasoning": your steps. "final_answer": the answer alone."""
ANSWER_SCHEMA = object_of(reasoning=STRING, final_answer=STRING)

_FENCE = re.compile(r"^[ \t]*`{3,}|(?<!`)`{3,}[ \t]*$", re.MULTILINE)
_LANGUAGE = re.compile(r"[\w+#.-]*[ \t]*\n")
_TAG = r"<\s*+(?:/\s*+)?(?:(?:curr_param|side_info)\b|version\s+[0-9a-f]{8}\s*>)"
_OUR_TAGS = re.compile(_TAG, re.IGNORECASE)
_ECHO = re.compile(rf"^[^\S\n]*{_TAG}(?:[^\S\n]|[0-9a-f])*(?:>[^\S\n]*)?$", re.IGNORECASE | re.MULTILINE)


# ---- records


def reflect_prompt(trace: Trace, shown: Sequence[Entry]) -> None:
    """Ask nothing: code makes the record, and the writers judge it themselves."""
    del trace, shown


def read_reflection(trace: Trace, shown: Sequence[Entry], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run as a reflective record in GEPA's shape, each text within bounds.

    Raises
    ------
    ValueError
        If the record would be empty.
    """
    del shown, body
    is_known = trace.target is None or trace.target in trace.feedback
    record = {
        "Inputs": cut(trace.task),
        "Generated Outputs": cut(_lines(trace.trajectory, trace.answer)),
        "Feedback": cut(_lines(trace.feedback, "" if is_known else f"The right answer: {trace.target}")),
    }
    if not any(text.strip() for text in record.values()):
        raise ValueError("the trace has neither task nor output nor feedback")
    return {"side_info": record}


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def cut(text: str) -> str:
    """Return a text without its middle if it is too long: the task is at the beginning, the answer at the end."""
    if len(text) <= MAX_FIELD_CHARS:
        return text
    half = MAX_FIELD_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters cut …]\n{text[-half:]}"


def _record(reflection: Reflection) -> dict[str, str]:
    """Return a reflection's record; text of another method's reflector counts as feedback."""
    said = (reflection.error_identification, reflection.root_cause_analysis, reflection.correct_approach)
    return reflection.side_info or {"Feedback": _lines(*said, reflection.key_insight)}


# ---- prompts


def component(base: Playbook) -> tuple[str, Entry | None]:
    """Return the component that the batch on this version rewrites: components take turns, as in GEPA."""
    if not base.entries:
        return COMPONENT, None
    entry = base.entries[base.batch_sequence % len(base.entries)]
    return entry.section, entry


def aggregate_prompt(base: Playbook, reflections: Sequence[Reflection]) -> Prompt:
    """Ask for a full new text that one group's records support."""
    return _write(REWRITE, base, as_items(map(_record, reflections)))


def combine_prompt(
    base: Playbook, proposals: Sequence[Operation], names: Mapping[str, str] = NO_NAMES
) -> Prompt:
    """Ask for one full new text from the children's texts."""
    del names  # a version's support says nothing about one of its rules
    return _write(COMBINE, base, (fence("version", [proposal.content]) for proposal in proposals))


def _write(task: str, base: Playbook, data: Iterable[str]) -> Prompt:
    """Fill the templates: up to the task they are the same for all nodes of a batch."""
    _, entry = component(base)
    current = entry.content if entry else NOTHING_YET
    return Prompt(
        system=SHARED.replace(CURR_PARAM, fence("curr_param", [current], owner=base.name)).rstrip(),
        user=task.replace(SIDE_INFO, fence("side_info", data)).rstrip(),
        reply_name="text",
        cache_key=cache_key(SHARED, base.name),
        check=problem,
    )


def answer_prompt(playbook: Playbook, question: str) -> Prompt:
    """Ask an agent one question with the playbook's components in the prompt."""
    several = len(playbook.entries) > 1
    texts = (
        f"## {entry.section}\n{entry.content}\n" if several else entry.content for entry in playbook.entries
    )
    return Prompt(
        system=f"{ANSWER}\n{fence(COMPONENT, texts, owner=playbook.name)}",
        user=fence("task", [question]),
        reply_name="answer",
        reply_schema=ANSWER_SCHEMA,
    )


# ---- replies


def problem(reply: str) -> str | None:
    """Return why a reply holds no text that may be adopted, in words for the model; None if it does."""
    too_long = "the text is far too long; write a much shorter one"
    if len(reply) > 2 * MAX_TEXT_CHARS:
        return too_long
    fences = len(_FENCE.findall(reply))
    if fences == 0:
        return "the new text must stand between ``` fences"
    if fences % 2:
        # GEPA accepts the text behind it. But an open fence is the one sign of truncation that every server gives.
        return "a ``` fence was not closed: the text seems to be cut off"
    text = _between(reply)
    if not any(character.isalnum() for character in text):
        return "there was no text between the fences"
    if len(text) > MAX_TEXT_CHARS:
        return too_long
    if _OUR_TAGS.search(text) or _ECHO.search(reply):
        # A current text may hold fences: if the prompt is repeated, the text between them is not new.
        return "it repeated the data instead of writing a new text"
    return None


def _between(reply: str) -> str:
    """Return the text between the first fence and the last, as GEPA does: a text may hold fences itself."""
    marks = list(_FENCE.finditer(reply))
    inside = reply[marks[0].end() : marks[-1].start()]
    tag = _LANGUAGE.match(inside)
    return inside[tag.end() if tag else 0 :].strip()


def read(base: Playbook, body: Mapping[str, Any], sources: Sources) -> Answer:
    """Return the new text as one operation that rests on everything read; a reply without a text is unusable."""
    reply = clean(str(body.get("text") or ""))
    if problem(reply) is not None:
        return Answer(operations=(), unusable=1)
    name, entry = component(base)
    operation = Operation(
        kind=OperationKind.UPDATE if entry else OperationKind.ADD,
        section=name,
        content=_between(reply),
        entry_ids=(entry.id,) if entry else (),
        evidence=union(*sources),
    )
    return Answer(operations=(operation,))


def merge(base: Playbook, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return one text per component: the one that rests on most reflections, among equals the last.

    Code cannot merge texts: joined, they would grow from batch to batch and repeat everything. The winner keeps only
    its own evidence, so the other texts' lessons count as omitted.
    """
    del base
    best: dict[str, Operation] = {}
    for operation in operations:
        held = best.get(operation.section)
        if held is None or len(operation.evidence) >= len(held.evidence):
            best[operation.section] = operation
    return tuple(best.values())
