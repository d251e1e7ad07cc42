"""A playbook as text: ACE lines, Markdown; and ACE text back into entries."""

import re
from collections.abc import Iterable, Iterator, Sequence

from combee_schemas.playbook import Entry, Playbook

HEADER = re.compile(r"^## (?P<section>.+?)\s*$")
WITH_COUNTERS = re.compile(
    r"^\[(?P<id>[^\]\s]+)\] helpful=(?P<helpful>\d+) harmful=(?P<harmful>\d+) :: (?P<content>.*)$", re.DOTALL
)
WITHOUT_COUNTERS = re.compile(r"^\[(?P<id>[^\]\s]+)\] (?P<content>.*)$", re.DOTALL)


def section_order(sections: Sequence[str], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return every section once: the listed ones in order, then those only entries name."""
    return tuple(dict.fromkeys([*sections, *(entry.section for entry in entries)]))


def ace_lines(playbook: Playbook, *, counters: bool | None = None) -> Iterator[str]:
    """Yield the ACE text line by line; ``counters`` overrides the playbook's own variant."""
    shown = playbook.counters if counters is None else counters
    for section in section_order(playbook.sections, playbook.entries):
        yield f"## {section}"
        for entry in playbook.entries:
            if entry.section == section:
                yield _ace_entry(entry, counters=shown)
        yield ""


def _ace_entry(entry: Entry, *, counters: bool) -> str:
    count = f"helpful={entry.helpful} harmful={entry.harmful} :: " if counters else ""
    return f"[{entry.id}] {count}{entry.content}"


def ace_text(playbook: Playbook) -> str:
    """Return the playbook as ACE reads it."""
    return "\n".join(ace_lines(playbook)).rstrip("\n") + "\n"


def markdown_text(playbook: Playbook) -> str:
    """Return the playbook for people: a title, sections, one bullet an entry with its id."""
    lines = [f"# {playbook.name} (version {playbook.version})", ""]
    for section in section_order(playbook.sections, playbook.entries):
        lines += [f"## {section}", ""]
        lines += [f"- `{e.id}` {e.content}" for e in playbook.entries if e.section == section]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def parse_ace(text: str) -> tuple[tuple[str, ...], tuple[Entry, ...], bool]:
    """Read ACE text, with or without counters: sections in order, entries in order, the variant.

    A line that is neither header nor entry continues the entry above it.

    Raises
    ------
    ValueError
        If the text holds a line before the first header or entry, or two entries with one id.
    """
    sections: list[str] = []
    entries: list[Entry] = []
    counted = 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            sections.append(header["section"])
        elif found := WITH_COUNTERS.match(line):
            counted += 1
            entries.append(_entry(found.groupdict(), sections))
        elif found := WITHOUT_COUNTERS.match(line):
            entries.append(_entry(found.groupdict(), sections))
        elif line.strip():
            entries[-1:] = [_continued(entries, line, number)]
    _refuse_twins(entries)
    return tuple(dict.fromkeys(sections)), tuple(entries), counted > 0 or not entries


def _entry(fields: dict[str, str], sections: Sequence[str]) -> Entry:
    section = sections[-1] if sections else "OTHERS"
    return Entry.model_validate({**fields, "section": section})


def _continued(entries: Sequence[Entry], line: str, number: int) -> Entry:
    if not entries:
        raise ValueError(f"line {number}: expected '## SECTION' or '[id-00001] …', found {line[:60]!r}")
    last = entries[-1]
    return last.model_copy(update={"content": f"{last.content}\n{line}"})


def _refuse_twins(entries: Sequence[Entry]) -> None:
    known: set[str] = set()
    for entry in entries:
        if entry.id in known:
            raise ValueError(f"two entries have the id {entry.id!r}; give one of them another")
        known.add(entry.id)
