"""How the stand-in reads a chat request: its texts, data, playbook and role.

Data are lines of JSON, or fields (``name: text``) between a marked fence; ``roles/fences.py`` reads the latter.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice, takewhile
from typing import Any, Literal

from combee.core.text.prompt import estimate_tokens
from combee_schemas.digests import digest
from combee_sim.family.insights import of_record
from combee_sim.family.lessons import Item, ShownEntry, entries_in
from combee_sim.roles.fences import unfenced

Role = Literal["agent", "reflector", "aggregator", "summariser", "writer", "judge", "checker"]
_ASKS_FOR: tuple[tuple[str, Role], ...] = (
    ("operations", "aggregator"),
    ("key_insight", "reflector"),
    ("final_answer", "agent"),
    ("summary_lines", "summariser"),
    ("is_right", "judge"),
    ("covered", "checker"),
)


_FENCES = re.compile(r"\b(within|inside|between|in) ```")
_CURRENT = re.compile(r"\s*<curr_param(?: [0-9a-f]+)?>\s*")
_CURRENT_ENDS = re.compile(r"\s*</curr_param(?: [0-9a-f]+)?>\s*")
_HARMFUL = re.compile(
    r"(?<![^\s;])(?P<id>[^\s;]+) so far (?P<helpful>\d{1,9}) helpful, (?P<harmful>\d{1,9}) harmful, here harmful"
)
_SUPPORT = re.compile(r"(?P<reflections>\d{1,9}) reflections?(?: of (?P<producers>\d{1,9}) producers?)?")

NO_RULES = "Do the task as it is given."
"""The stand-in's text while it knows no rule; it is no lesson."""


class NotAChatError(ValueError):
    """The body is not a chat-completions request; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The content of one prompt for a reader who knows nothing but its text."""

    role: Role
    prompt_hash: str
    tokens: int
    entries: tuple[ShownEntry, ...]
    objects: tuple[Mapping[str, Any], ...]
    """The data: every line that is a JSON object, and every item of a marked fence, in order."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """All the other lines."""
    text: str = field(default="", repr=False)
    """These lines as one."""
    last_user_text: str = field(repr=False)

    def says(self, words: str) -> bool:
        """Return whether the instructions have these words."""
        return words in self.text

    def items(self) -> tuple[Item, ...]:
        """Return the reflections, records or proposals with lessons, by their number."""
        counted = self.says('"support"')
        return tuple(item for n, value in self._numbered() for item in _items(n, value, counted=counted))

    def accused(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each item that speaks against an entry, and the entry's id.

        It proposes a REMOVE, or it found an entry harmful that more runs found harmful than helpful.
        """
        for n, value in self._numbered():
            if str(value.get("type", "")).upper() == "REMOVE":
                yield from ((n, entry_id) for entry_id in _entry_ids(value))
            for tag in _HARMFUL.finditer(str(value.get("tags", ""))):
                if int(tag["harmful"]) + 1 > int(tag["helpful"]):
                    yield n, tag["id"]

    def _numbered(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        values = (value for value in self.objects if not _is_entry(value))
        for position, value in enumerate(values, 1):
            number = value.get("n")
            yield number if isinstance(number, int) else position, value

    def current_text(self) -> tuple[str, ...]:
        """Return the lines of the text to be rewritten."""
        current = dropwhile(lambda line: not _CURRENT.fullmatch(line), self.lines)
        return tuple(takewhile(lambda line: not _CURRENT_ENDS.fullmatch(line), islice(current, 1, None)))


def read(body: Mapping[str, Any]) -> Reading:
    """Read a chat-completions request.

    Raises
    ------
    NotAChatError
        If it has no messages with text.
    """
    messages = _messages(body)
    plain: list[str] = []
    objects: list[Mapping[str, Any]] = []
    for speaker, text in messages:
        # The model's own earlier replies in a re-ask are not material.
        for part in unfenced(text.splitlines()) if speaker != "assistant" else ():
            value = _json_object(part) if isinstance(part, str) else part
            if isinstance(part, str) and value is None:
                plain.append(part)
            elif value is not None:
                objects.append(value)
    texts = [text for _, text in messages]
    users = [text for role, text in messages if role == "user"]
    return Reading(
        role=_role(body, plain, objects),
        prompt_hash=digest("prompt", *texts).hex(),
        tokens=sum(estimate_tokens(text) for text in texts),
        entries=(*entries_in(plain), *_entries_as_json(objects)),
        objects=tuple(objects),
        lines=tuple(plain),
        text=" ".join(" ".join(plain).split()),
        last_user_text=users[-1] if users else texts[-1],
    )


def _messages(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise NotAChatError("'messages' must be a non-empty list")
    read_all = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise NotAChatError("every message must be an object with 'role' and 'content'")
        read_all.append((str(message.get("role", "")), _text(message.get("content"))))
    return read_all


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _json_object(line: str) -> dict[str, Any] | None:
    stripped = line.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _role(body: Mapping[str, Any], plain: Sequence[str], objects: Sequence[Mapping[str, Any]]) -> Role:
    """Return the role, derived from the keys of the reply: the schema's, otherwise those in the instructions."""
    properties = _schema_properties(body)
    instructions = "\n".join(line for line in plain if not line.startswith(("[", "## ")))
    if not properties and _FENCES.search(instructions):
        return "writer"
    examples = {name for value in objects for name in value}
    for asked, role in _ASKS_FOR:
        if asked in properties:
            return role
    for asked, role in _ASKS_FOR:
        if f'"{asked}"' in instructions or asked in examples:
            return role
    return next((role for asked, role in _ASKS_FOR if asked in instructions), "agent")


def _schema_properties(body: Mapping[str, Any]) -> Mapping[str, Any]:
    part: Any = body
    for step in ("response_format", "json_schema", "schema", "properties"):
        part = part.get(step) if isinstance(part, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _is_entry(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("id"), str) and isinstance(value.get("content"), str) and "n" not in value


def _entries_as_json(objects: Sequence[Mapping[str, Any]]) -> Iterator[ShownEntry]:
    return (ShownEntry(id=v["id"], content=v["content"]) for v in objects if _is_entry(v))


def _items(n: int, value: Mapping[str, Any], *, counted: bool) -> Iterator[Item]:
    support = _SUPPORT.fullmatch(str(value.get("support", ""))) if counted else None
    for lesson in _lessons(value):
        yield Item(
            n=n,
            lesson=lesson,
            kind=str(value.get("type", "ADD")).upper(),
            entry_ids=_entry_ids(value),
            producers=int(support["producers"] or 1) if support else 1,
            reflections=int(support["reflections"]) if support else 1,
        )


def _entry_ids(value: Mapping[str, Any]) -> tuple[str, ...]:
    ids = value.get("entry_ids")
    return tuple(i for i in ids if isinstance(i, str)) if isinstance(ids, list) else ()


def _lessons(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lessons of a reflection, proposal or record, or each line of a whole text."""
    said = value.get("key_insight", value.get("content"))
    if isinstance(version := value.get("version"), str):
        lessons = tuple(line.strip() for line in version.splitlines() if line.strip() != NO_RULES)
    elif isinstance(said, str):
        lessons = (said,)
    else:
        lessons = (of_record(value),) if "Inputs" in value else ()
    return tuple(lesson for lesson in lessons if any(character.isalnum() for character in lesson))
