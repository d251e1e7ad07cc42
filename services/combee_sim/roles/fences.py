"""How the stand-in reads data between marked fences (``<name mark>``): as items, as fields, or as one whole text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_OPENS = re.compile(r"<(?P<name>[\w -]+) (?P<mark>[0-9a-f]{6,64})>\s*")
_ITEM = re.compile(r"(?:item|record|reflection|proposal) #?(?P<n>\d{1,6})[.:]?\s*", re.IGNORECASE)
_FIELD = re.compile(r"(?P<name>[A-Za-z][\w ]{0,40}):(?: (?P<text>.*))?")
_NUMBERED_TEXT = re.compile(r"(?P<name>\d{1,6}):(?: (?P<text>.*))?")
_LEARNED = frozenset({"playbook", "entries", "proposed", "curr_param", "instruction"})
"""Fences with learned texts, which are read line by line."""
_WHOLE = frozenset({"task", "question", "right_answer", "given_answer"})
"""Fences with one whole text of any form: questions hold lines such as ``Options: …``."""
_NUMBERED = {"lessons": "lesson", "statements": "statement"}
"""Fences of numbered texts, and the name of one."""
_LISTS = frozenset({"entry_ids"})

Fields = dict[str, Any]


def unfenced(lines: Iterable[str]) -> Iterator[str | Mapping[str, Any]]:
    """Yield the lines of a prompt, with the data in place of marked fences."""
    rest = iter(lines)
    for line in rest:
        opening = _OPENS.fullmatch(line)
        if opening is None or opening["name"] in _LEARNED:
            yield line
        else:
            yield from _data(opening["name"], list(_inside(rest, opening)))


def _inside(rest: Iterator[str], opening: re.Match[str]) -> Iterator[str]:
    closing = f"</{opening['name']} {opening['mark']}>"
    for line in rest:
        if line.strip() == closing:
            return
        yield line


def _data(name: str, lines: Sequence[str]) -> Iterator[str | Mapping[str, Any]]:
    """Yield the items of a fence; a fence that holds neither fences nor fields is one whole text."""
    if name in _WHOLE:
        yield {name: "\n".join(lines)}
        return
    if any(map(_OPENS.fullmatch, lines)):
        yield from unfenced(lines)
        return
    if name in _NUMBERED:
        (texts,) = _items(lines, _NUMBERED_TEXT)
        yield from ({"n": int(n), _NUMBERED[name]: text} for n, text in texts.items())
        return
    items = [fields for fields in _items(lines) if fields.keys() - {"n"}]
    if items:
        yield from items
    elif any(line.lstrip().startswith(("{", "[")) for line in lines):
        yield from lines
    else:
        yield {name: "\n".join(lines)}


def _items(lines: Iterable[str], one: re.Pattern[str] = _FIELD) -> Iterator[Fields]:
    """Yield the fields below each heading; indented lines continue the field above."""
    fields: dict[str, list[str]] = {}
    number: int | None = None
    last = ""
    for line in lines:
        if heading := _ITEM.fullmatch(line):
            yield _read(number, fields)
            number, fields, last = int(heading["n"]), {}, ""
        elif field := one.fullmatch(line):
            last = field["name"]
            fields[last] = [field["text"]] if field["text"] else []
        elif last and (line.startswith(" ") or not line.strip()):
            fields[last].append(line.removeprefix("  "))
    yield _read(number, fields)


def _read(number: int | None, fields: Mapping[str, Sequence[str]]) -> Fields:
    read: Fields = {"n": number} if number is not None else {}
    for name, lines in fields.items():
        text = "\n".join(lines)
        read[name] = [part.strip() for part in text.split(",")] if name in _LISTS else text
    return read
