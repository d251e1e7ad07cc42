"""Entries in line-based text: headers, entries, and continuation lines."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from combee.core.formats.text import IsSpecial, decode_id, is_blank, unguarded
from combee_schemas.playbook import ACE_SECTIONS, Entry

HEADER = re.compile(r"##[ \t]+(?P<section>\S.*?)\s*")
Parsed = tuple[tuple[str, ...], tuple[Entry, ...], bool]
"""Sections in order, entries in order, and whether they show their counters."""


def is_header(line: str) -> bool:
    """Return whether a line begins a section."""
    return HEADER.fullmatch(line) is not None


@dataclass(slots=True)
class _Open:
    """An entry that may be continued."""

    line: int
    fields: dict[str, str]
    content: list[str]


@dataclass(slots=True, kw_only=True)
class Reading:
    """Headers and entries read to date."""

    sections: list[str] = field(default_factory=list)
    _entries: list[_Open] = field(default_factory=list)
    _blanks: list[str] = field(default_factory=list)
    _counted: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been read yet."""
        return not (self.sections or self._entries)

    def header(self, line: str) -> None:
        """Begin a section, or continue a known one."""
        header = HEADER.fullmatch(line)
        if header:
            self.sections.append(header["section"])
            self._blanks.clear()

    def entry(self, line: int, fields: dict[str, str | None]) -> None:
        """Begin an entry: ``id``, ``content`` and perhaps its counters."""
        known = {name: value for name, value in fields.items() if value is not None}
        content = [known.pop("content", "")]
        known["section"] = self.sections[-1] if self.sections else ACE_SECTIONS[-1]
        known["id"] = decode_id(known["id"])
        self._counted = self._counted or "helpful" in known
        self._entries.append(_Open(line, known, content))
        self._blanks.clear()

    def blank(self, line: str) -> None:
        """Keep a blank line until it is known whether the entry continues after it."""
        self._blanks.append(line)

    def more(self, line: str, is_special: IsSpecial) -> bool:
        """Continue the entry above; return False if there is none."""
        if not self._entries:
            return False
        self._entries[-1].content += [
            *self._blanks,
            unguarded(line, lambda text: is_blank(text) or is_special(text)),
        ]
        self._blanks.clear()
        return True

    def parsed(self) -> Parsed:
        """Return the result.

        Raises
        ------
        ValueError
            If an entry is invalid: its id is not unique or too long.
        """
        entries = tuple(_entry(entry) for entry in self._entries)
        refuse_twins((f"line {read.line}", entry) for read, entry in zip(self._entries, entries, strict=True))
        return tuple(dict.fromkeys(self.sections)), entries, self._counted or not entries


def _entry(read: _Open) -> Entry:
    try:
        return Entry.model_validate({**read.fields, "content": "\n".join(read.content)})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"line {read.line}: {where}: {first['msg']}") from error


def refuse_twins(placed: Iterable[tuple[str, Entry]]) -> None:
    """Raise ValueError if two entries have one id."""
    places: dict[str, str] = {}
    for where, entry in placed:
        if entry.id in places:
            raise ValueError(
                f"{where}: the id {entry.id!r} is taken by {places[entry.id]}; give one of them another"
            )
        places[entry.id] = where


def unexpected(number: int, line: str, wanted: Sequence[str]) -> ValueError:
    """Return the error for an unexpected line."""
    return ValueError(f"line {number}: expected {' or '.join(wanted)}, found {line[:60]!r}")
