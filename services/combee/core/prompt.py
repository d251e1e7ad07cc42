"""Prompts as data: the unchanging part first, untrusted text fenced as JSON that cannot leave its fence."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from combee_schemas.playbook import Entry

CHARS_PER_TOKEN = 4
"""A rough measure, good enough to bound prompts before a tokenizer has seen them."""
LAYOUT = 4
"""Characters of an entry's line beside its id and content."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode


def estimate_tokens(text: str) -> int:
    """Return about how many tokens ``text`` is."""
    return -(-len(text) // CHARS_PER_TOKEN)


def entry_tokens(entry: Entry) -> int:
    """Return about how many tokens an entry's line is: what it counts against a token budget."""
    return -(-(len(entry.id) + len(entry.content) + LAYOUT) // CHARS_PER_TOKEN)


def as_line(value: Mapping[str, Any]) -> str:
    """Return one line of JSON in which no angle bracket survives, so no data closes a fence."""
    return _encode(value).replace("<", "\\u003c").replace(">", "\\u003e")


def fence(name: str, lines: Iterable[str]) -> str:
    """Return ``lines`` between ``<name>`` and ``</name>``, which no line can close early, however it spells it."""
    body = "\n".join(lines)
    if "<" in body:
        body = re.sub(rf"<(\s*/\s*{name})", r"<\\\1", body, flags=re.IGNORECASE)
    return f"<{name}>\n{body}\n</{name}>"
