"""The ACE method: entries and operations (ACE: arXiv 2510.04618; the combine step is the paper's).

A curator's prompt begins with the part shared by all calls of a batch (schema, instructions, playbook, budget); the
task of a group's call or a combine, and its items, come last. So a server reads the long part once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from combee.core.formats.render import ace_entry, ace_id, ace_lines, ace_lines_by_age
from combee.core.methods.method import DEFAULTS, NO_NAMES, Answer, Sources
from combee.core.playbook import operations as ops
from combee.core.playbook.budget import tokens_by_entry
from combee.core.playbook.derived import once_per_version
from combee.core.playbook.results.clusters import mostly_harmful
from combee.core.playbook.shown import shown
from combee.core.text.forms import clean
from combee.core.text.prompt import (
    FENCE_WARNING,
    STRING,
    as_fields,
    as_items,
    cache_key,
    fence,
    list_of,
    object_of,
)
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.base import Holds, is_blank
from combee_schemas.model import Prompt
from combee_schemas.plan import PlanSettings, Prompts
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.reflection import LESSON_FIELDS, BulletTag, Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace

HOLDS: Holds = "entries"
REBASES = True
TAKES_SETTINGS = True
MAX_FIELD_CHARS = 8_000
"""Maximum characters of each text field: a reflection's five texts stay well below the record's cap."""
MAX_TAGS = 20
"""Maximum number of bullet tags passed to the curator per reflection."""
MAX_HARMFUL = 20
"""Maximum number of mostly harmful entries named to the curator."""
TAGS = frozenset({"helpful", "harmful", "neutral"})
DATA_WARNING = FENCE_WARNING

REFLECTION_SHAPE = """Answer with one JSON object: {"reasoning": "...", "error_identification": "...",
"root_cause_analysis": "...", "correct_approach": "...", "key_insight": "...",
"bullet_tags": [{"id": "...", "tag": "helpful"}]}
"reasoning": your analysis, with its calculations. "error_identification": what went wrong, or that nothing did.
"root_cause_analysis": why. "correct_approach": what to do instead. "key_insight": the one strategy, formula or rule
to remember. "bullet_tags": the "id" of each playbook entry below, with its "tag": "helpful" if it led towards the
right answer, "harmful" if it led away from it, "neutral" (or no tag) if neither."""

REFLECT = f"""You are the reflector. You read what one agent run left behind and say what can be learned from it.
Compare the answer with the feedback and the right answer ("target"), as far as they are told, and look for the cause
rather than the symptom: a concept misunderstood, a figure miscalculated, an entry misapplied, or what made it right.
The key insight is to help the next agent with tasks of this kind: specific, reusable, without the particular numbers
of this one task unless they are the rule. The right answer will not be available later: say how to get there, not
what it was.
{DATA_WARNING}
{REFLECTION_SHAPE}"""

EXAMPLE = "For opened parcels subtract a restocking fee of 15 % from the price."
"""The lesson in the worked examples; a model that repeats it has learned nothing."""
REFLECT_SMALL = f"""Read what one agent run left behind. Say what the next agent should do in tasks of this kind.
Rules: be specific. State the rule, not this task's numbers. The right answer ("target") will not be available later:
say how to get there.
{DATA_WARNING}
{REFLECTION_SHAPE}
Example. The run: "task: Refund 80 €, the parcel was opened. answer: 80 target: 68". A good answer:
{{"reasoning": "68 is 80 less 15 %.", "error_identification": "No fee was subtracted.", "root_cause_analysis": "The
agent did not ask whether the parcel was opened.", "correct_approach": "Check the parcel, then subtract the fee.",
"key_insight": "{EXAMPLE}", "bullet_tags": []}}"""

SECTIONS = f"""Sections: use one of the playbook's own headers (##), spelt as it is there, or one of these:
{"; ".join(ACE_SECTIONS)}. Begin a new one only where none fits. What was
added last stands at the playbook's end, so a header may come again."""

CURATE = f"""You are the curator of a playbook: short entries that help agents with their next tasks. You get numbered
items and turn them into operations on the playbook.
Keep every distinct lesson, one entry for each; leave out what the playbook already says and what is vague. Agents
read an entry without the items behind it and without the right answers: say what to do and when, so that they can act
on it. Keep figures with their units, conditions, exceptions and negations.
Answer with one JSON object: {{"reasoning": "...", "operations": [{{"type": "ADD", "section": "...",
"content": "...", "entry_ids": [], "sources": [1]}}], "dropped": [2], "known": [{{"n": 3, "entry_id": "..."}}]}}
"reasoning": which items say the same, and what is new. The "type" of an operation: ADD a new entry
("section", "content"); UPDATE an entry that became wrong or too vague ("entry_ids" with its id, "content"); MERGE
entries that say the same ("entry_ids", "content"); REMOVE an entry that is wrong ("entry_ids"). "content" is the text
alone, without an id. Where an item already says a lesson as the entry should, write "as item 3" for its content, with
that item's number: its "key_insight", or a proposal's "content", is then taken word for word. "sources": the numbers
of the items that an operation rests on. "dropped": the numbers of items that are too vague to help anybody. "known":
each item ("n") whose lesson an entry ("entry_id") has already; it counts as evidence for the entry. Any list may be
empty.
"tags" and "counters" tell how often runs found an entry helpful or harmful: UPDATE or REMOVE what harms. Where little
is left of the playbook's budget, UPDATE and MERGE rather than ADD.
{SECTIONS}
{DATA_WARNING}"""

CURATE_SMALL = f"""You keep a playbook: short entries that help agents with their next tasks. You get numbered items.
Write one ADD for each different lesson in them. Rules: items that say the same share one ADD. Say what to do and
when. Keep figures, conditions and negations. "reasoning": which items say the same. "operations": the ADDs; "type" is
ADD, "section" a header, "content" the lesson alone, without an id, "sources" the numbers of the items that the ADD
rests on. "known": the items that the playbook already says, each by its number "n" with the "entry_id" of the entry
that says it. "dropped": the numbers of vague items.
{SECTIONS}
{DATA_WARNING}
Example. The playbook: "[misc-00007] Look up the order first." The items: "item 1: opened parcels cost a fee of 15 %",
"item 2: take 15 % off when it was opened", "item 3: be careful", "item 4: begin with the order". A good answer:
{{"reasoning": "1 and 2 say the same; 3 is vague; misc-00007 says 4.", "operations": [{{"type": "ADD",
"section": "OTHERS", "content": "{EXAMPLE}",
"sources": [1, 2]}}], "dropped": [3], "known": [{{"n": 4, "entry_id": "misc-00007"}}]}}"""

AGGREGATE = "These items are reflections on agent runs. Turn them into operations."
COMBINE = """These items are operations that several curators proposed, each after other reflections of one batch.
Combine them into one list: merge those that overlap into one more specific entry, drop what the playbook already
says and what is vague, and keep complementary ones apart. "support" tells how many reflections a proposal rests on,
and of how many producers where they are known. Where two conflict, the one of more producers holds, then the one with
more reflections, then the more specific one, then the later one: the items with least support come first, and of
equals those with the oldest evidence."""

TAG_SCHEMA = object_of(id=STRING, tag={"type": "string", "enum": ["helpful", "harmful", "neutral"]})
REFLECTION_SCHEMA = object_of(**dict.fromkeys(LESSON_FIELDS, STRING), bullet_tags=list_of(TAG_SCHEMA))
_NUMBERS = list_of({"type": "integer"})


def _operations_schema(kinds: Sequence[str], **more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a curator's reply; ``more``: properties in addition to an ADD's."""
    kind = {"type": "string", "enum": list(kinds)}
    operation = object_of(type=kind, section=STRING, content=STRING, **more, sources=_NUMBERS)
    return object_of(
        reasoning=STRING,
        operations=list_of(operation),
        dropped=_NUMBERS,
        known=list_of(object_of(n={"type": "integer"}, entry_id=STRING)),
    )


OPERATIONS_SCHEMA = _operations_schema(["ADD", "UPDATE", "MERGE", "REMOVE"], entry_ids=list_of(STRING))
WORDING: Mapping[Prompts, tuple[str, str, dict[str, Any]]] = {
    "full": (REFLECT, CURATE, OPERATIONS_SCHEMA),
    "small": (REFLECT_SMALL, CURATE_SMALL, _operations_schema(["ADD"])),
}
"""Instructions for the reflector and for the curator, and the curator's schema."""


def reflect_prompt(trace: Trace, shown: Sequence[Entry], /, *, settings: PlanSettings = DEFAULTS) -> Prompt:
    """Ask the reflector about one trace and the playbook entries of its agent."""
    instructions, *_ = WORDING[settings.prompts]
    fields = {"task", "trajectory", "answer", "feedback", "target"}
    run = {name: value for name, value in trace.model_dump(include=fields).items() if value}
    entries = [fence("entries", (ace_entry(entry, counters=False) for entry in shown))] if shown else []
    return Prompt(
        system=instructions,
        user="\n".join([*entries, fence("trace", as_fields(run))]),
        reply_name="reflection",
        reply_schema=REFLECTION_SCHEMA,
    )


def read_reflection(
    trace: Trace, shown: Sequence[Entry], body: Mapping[str, Any], /, *, settings: PlanSettings = DEFAULTS
) -> dict[str, Any]:
    """Return the reflector's fields; tags of entries that were not shown are left out.

    Raises
    ------
    ValueError
        If the reply holds no insight, or a small model repeated the worked example.
    """
    del trace
    texts = {name: _text(body.get(name)) for name in LESSON_FIELDS}
    if is_blank(texts.values()):
        raise ValueError("the reflector's reply is empty")
    if settings.prompts == "small" and _is_example(texts["key_insight"]):
        raise ValueError("the reflector's reply is the prompt's worked example")
    return {**texts, "bullet_tags": _tags(body.get("bullet_tags"), {entry.id for entry in shown})}


def _text(value: object) -> str:
    """Return a model's text, clean and cut."""
    return clean(str(value or "")[: 2 * MAX_FIELD_CHARS])[:MAX_FIELD_CHARS]


def _tags(value: object, shown: set[str]) -> tuple[BulletTag, ...]:
    items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    tags = {str(item.get("id")): str(item.get("tag")).lower() for item in items}
    return tuple(
        BulletTag.model_validate({"id": entry_id, "tag": tag})
        for entry_id, tag in tags.items()
        if entry_id in shown and tag in TAGS
    )


def aggregate_prompt(
    base: Playbook, reflections: Sequence[Reflection], /, *, settings: PlanSettings = DEFAULTS
) -> Prompt:
    """Ask for operations that one group of reflections supports; items are numbered from 1."""
    entries = {entry.id: entry for entry in base.entries}
    items = [dict(_fields_of(reflection, entries)) for reflection in reflections]
    return _curate(base, settings, f"{AGGREGATE}\n{fence('reflections', as_items(items))}")


def _fields_of(reflection: Reflection, entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    """Yield a reflection's fields for a curator; another method's reflections have that method's fields.

    Its reasoning is left out where it came to an approach and an insight: it is long, and all copies pay for it.
    """
    said = {name: text for name in LESSON_FIELDS if (text := getattr(reflection, name))}
    if said.keys() >= {"correct_approach", "key_insight"}:
        said.pop("reasoning", None)
    if reflection.task_excerpt:
        yield "task", reflection.task_excerpt
    yield from (said or reflection.side_info).items()
    tagged = (tag for tag in reflection.bullet_tags if tag.id in entries)
    tags = [f"{_counted(entries[tag.id])}, here {tag.tag}" for tag in tagged]
    if tags:
        yield "tags", "; ".join(tags[:MAX_TAGS])


def combine_prompt(
    base: Playbook,
    proposals: Sequence[Operation],
    names: Mapping[str, str] = NO_NAMES,
    /,
    *,
    settings: PlanSettings = DEFAULTS,
) -> Prompt:
    """Ask to combine the children's operations; items are numbered from 1."""
    entries = {entry.id: entry for entry in base.entries}
    items = [dict(_proposed(operation, entries, names)) for operation in proposals]
    return _curate(base, settings, f"{COMBINE}\n{fence('proposals', as_items(items))}")


def _proposed(
    operation: Operation, entries: Mapping[str, Entry], names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield a proposal's fields for a curator; of its evidence, which code tracks, only how much there is."""
    yield "type", operation.kind.value
    if operation.section:
        yield "section", operation.section
    if operation.content:
        yield "content", operation.content
    if operation.entry_ids:
        yield "entry_ids", ", ".join(map(ace_id, operation.entry_ids))
    counters = [_counted(entries[entry_id]) for entry_id in operation.entry_ids if entry_id in entries]
    if counters:
        yield "counters", "; ".join(counters)
    producers, reflections = ops.support(operation, names)
    if reflections:
        behind = f"{reflections} reflection{'s' if reflections > 1 else ''}"
        # Without any name nobody can tell how many there are.
        whose = f" of {producers} producer{'s' if producers > 1 else ''}" if names else ""
        yield "support", behind + whose


def _counted(entry: Entry) -> str:
    return f"{ace_id(entry.id)} so far {entry.helpful} helpful, {entry.harmful} harmful"


def read(
    base: Playbook, body: Mapping[str, Any], sources: Sources, /, *, settings: PlanSettings = DEFAULTS
) -> Answer:
    """Read a curator's reply; see `combee.core.playbook.operations.read_operations`."""
    del base
    items = body.get("operations")
    if not isinstance(items, list):
        return ops.read_operations(body, sources)
    kept = [item for item in items if settings.prompts == "full" or _is_addition(item)]
    answer = ops.read_operations({**body, "operations": kept}, sources)
    return replace(answer, unusable=answer.unusable + len(items) - len(kept))


def _is_addition(item: object) -> bool:
    """Return whether a small model returned a requested operation, and not the worked example."""
    if not isinstance(item, dict):
        return False
    is_example = _is_example(str(item.get("content") or ""))
    return str(item.get("type")).upper() == OperationKind.ADD and not is_example


def _is_example(text: str) -> bool:
    return same_lesson(text, EXAMPLE)


def merge(base: Playbook, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations with repeats merged; code can do no more without a model."""
    del base
    return ops.merge(operations)


def _curate(base: Playbook, settings: PlanSettings, items: str) -> Prompt:
    _, _, schema = WORDING[settings.prompts]
    beginning, key = _beginning(base, settings)
    return Prompt(
        system=beginning,
        user=items,
        reply_name="operations",
        reply_schema=schema,
        optional=frozenset({"reasoning", "dropped", "known"}),
        cache_key=key,
    )


def _beginning(base: Playbook, settings: PlanSettings) -> tuple[str, str]:
    """Return the common beginning of all calls on a version, and its cache key."""
    texts, shape = _beginnings(base), (settings.prompts, settings.playbook_tokens, settings.salt)
    if shape not in texts:
        _, instructions, *_ = WORDING[settings.prompts]
        owner, active = f"{base.name} {settings.salt}", shown(base)
        parts = [
            instructions,
            fence("playbook", ace_lines_by_age(active), owner=owner),
            *_unsupported(base, owner),
            *_harmful(active, settings.prompts),
            _standing(active, settings.playbook_tokens),
        ]
        texts[shape] = "\n".join(parts), cache_key(instructions, owner)
    return texts[shape]


@once_per_version
def _beginnings(_base: Playbook) -> dict[tuple[Prompts, int, str], tuple[str, str]]:
    """Return the cached beginnings of a version with their cache keys, by the settings that shape them."""
    return {}


PROPOSED = """Agents are not shown these entries until more items support them: name each item that says what one of
them says as "known"."""


def _unsupported(base: Playbook, owner: str) -> Iterator[str]:
    """Yield a curator's description of proposed entries; nothing if there are none."""
    proposed = tuple(entry for entry in base.entries if not entry.is_active)
    if proposed:
        yield PROPOSED
        yield fence("proposed", (ace_entry(entry, counters=False) for entry in proposed), owner=owner)


def _harmful(playbook: Playbook, prompts: Prompts) -> Iterator[str]:
    """Yield the entries proposed for removal; a small model only adds."""
    ids = [ace_id(entry.id) for entry in playbook.entries if mostly_harmful(entry)][:MAX_HARMFUL]
    if ids and prompts == "full":
        listed = ", ".join(ids)
        yield f"Runs found these entries mostly harmful: {listed}. REMOVE or UPDATE each, unless an item needs it."


def _standing(active: Playbook, budget_tokens: int) -> str:
    """Return the size of what agents are shown and the remaining budget in words for the model."""
    tokens = sum(tokens_by_entry(active.entries, active.sections).values())
    size = f"The playbook has {len(active.entries)} entries of about {tokens} tokens together"
    if not budget_tokens:
        return f"{size}."
    return f"{size}; its budget is {budget_tokens}, so {max(0, budget_tokens - tokens)} are left."


ANSWER = """You are an agent. Answer the question; the playbook holds what earlier runs have learned.
Answer with one JSON object: {"reasoning": "...", "bullet_ids": ["..."], "final_answer": "..."}
"reasoning": your steps. "bullet_ids": the ids of the playbook's lines that helped you, such as calc-00003 of a line
that begins with [calc-00003]; none if none did. "final_answer": the answer alone."""
ANSWER_SCHEMA = object_of(reasoning=STRING, bullet_ids=list_of(STRING), final_answer=STRING)


def answer_prompt(playbook: Playbook, question: str) -> Prompt:
    """Ask an agent (ACE: generator) one question with the playbook in the prompt."""
    lines = ace_lines(shown(playbook), counters=False)
    return Prompt(
        system=f"{ANSWER}\n{fence('playbook', lines, owner=playbook.name)}",
        user=fence("task", [question]),
        reply_name="answer",
        reply_schema=ANSWER_SCHEMA,
    )
