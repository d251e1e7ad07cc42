"""A playbook as text: writing and reading ACE lines and Markdown, and the entries that an answer cites."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from combee.core.formats import text
from combee.core.formats.lines import Parsed, Reading, is_header, unexpected
from combee.core.playbook.sections import section_order
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.trace import Trace

COUNT = "[0-9]{1,15}"
ACE_COUNTERS = rf"helpful=(?P<helpful>{COUNT}) harmful=(?P<harmful>{COUNT}) ::(?: |$)"
ACE_ENTRY = re.compile(rf"\[(?P<id>[^\]\x00-\x20\x7f]+)\] (?:{ACE_COUNTERS})?(?P<content>[^\n]*)")
ACE_UNSAFE = re.compile(r"[\]\x00-\x20\x7f]")

TITLE = re.compile(r"# (?P<name>.*?)(?: \(version (?P<version>[0-9]{1,15})\))?\s*")
MARKDOWN_COUNTERS = rf"\(\+(?P<helpful>{COUNT}) -(?P<harmful>{COUNT})\)(?: |$)"
MARKDOWN_ENTRY = re.compile(rf"- `(?P<id>[^`\x00-\x1f\x7f]+)` (?:{MARKDOWN_COUNTERS})?(?P<content>[^\n]*)")
MARKDOWN_UNSAFE = re.compile(r"[`\x00-\x1f\x7f]")
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_BETWEEN = re.compile(r"[\s,;]+")
_QUOTES = "\"'`*_"
INDENT = "  "
SETTLED_AFTER = 16
LINES_REMEMBERED = 8_192


def _header(section: str) -> str:
    return "## " + (" ".join(text.split_lines(section)).strip() or ACE_SECTIONS[-1])


# ---- ACE


def ace_lines(playbook: Playbook, *, counters: bool | None = None) -> Iterator[str]:
    """Yield the ACE text line by line; ``counters`` overrides the playbook's own variant."""
    shown = playbook.counters if counters is None else counters
    for section in section_order(playbook.sections, playbook.entries):
        yield _header(section)
        for entry in playbook.entries:
            if entry.section == section:
                yield ace_entry(entry, counters=shown)
        yield ""


def ace_lines_by_age(playbook: Playbook) -> Iterator[str]:
    """Yield the ACE text without counters; the last versions' additions are at its end, with repeated headers.

    Everything before an addition stays in a server's prompt cache. Repeated headers cost tokens, so every
    ``SETTLED_AFTER`` versions all entries take their places in their sections. Sections without entries are named at
    the end.
    """
    order = section_order(playbook.sections, playbook.entries)
    places = {section: place for place, section in enumerate(order)}
    settled = playbook.version - playbook.version % SETTLED_AFTER
    by_age = sorted(
        playbook.entries, key=lambda entry: (max(0, entry.created_version - settled), places[entry.section])
    )
    for section, entries in groupby(by_age, key=lambda entry: entry.section):
        yield _header(section)
        yield from (ace_entry(entry, counters=False) for entry in entries)
    used = {entry.section for entry in by_age}
    yield from (_header(section) for section in order if section not in used)


def ace_id(entry_id: str) -> str:
    """Return an entry's id in ACE text: one word."""
    return text.encode_id(entry_id, ACE_UNSAFE)


def ace_entry(entry: Entry, *, counters: bool) -> str:
    """Return an entry's line, with continuation lines if its content has several."""
    if not counters:
        return _ace_line(entry.id, entry.content)
    content = text.written(entry.content, indent="", is_special=_is_ace)
    return f"[{ace_id(entry.id)}] helpful={entry.helpful} harmful={entry.harmful} :: {content}"


@lru_cache(LINES_REMEMBERED)
def _ace_line(entry_id: str, content: str) -> str:
    """Return a line without counters, which mostly stays the same from version to version."""
    shown = text.guarded(text.written(content, indent="", is_special=_is_ace), _is_ace_count)
    return f"[{ace_id(entry_id)}] {shown}"


def _is_ace(line: str) -> bool:
    return is_header(line) or ACE_ENTRY.fullmatch(line) is not None


def _is_ace_count(content: str) -> bool:
    return re.match(ACE_COUNTERS, content, re.MULTILINE) is not None


def ace_text(playbook: Playbook) -> str:
    """Return the playbook in ACE's format."""
    return "\n".join(ace_lines(playbook)).rstrip("\n") + "\n"


def parse_ace(source: str) -> Parsed:
    """Read ACE text, with or without counters: sections in order, entries in order, the variant.

    A line that is neither header nor entry continues the entry above it.

    Raises
    ------
    ValueError
        If there is a line before the first header or entry, or two entries have one id.
    """
    reading = Reading()
    for number, line in text.numbered(source):
        if is_header(line):
            reading.header(line)
        elif match := ACE_ENTRY.fullmatch(line):
            reading.entry(number, _fields(match, _is_ace_count))
        elif text.is_blank(line):
            reading.blank(line)
        elif not reading.more(line, _is_ace):
            raise unexpected(number, line, ("'## SECTION'", "'[id-00001] …'"))
    return reading.parsed()


def _fields(match: re.Match[str], is_count: text.IsSpecial) -> dict[str, str | None]:
    fields = match.groupdict()
    if fields["helpful"] is None:
        fields["content"] = text.unguarded(fields["content"], is_count)
    return fields


# ---- Markdown


def markdown_text(playbook: Playbook) -> str:
    """Return the playbook for people: a title, sections, one bullet an entry with its id and counters."""
    lines = [f"# {playbook.name} (version {playbook.version})", ""]
    for section in section_order(playbook.sections, playbook.entries):
        lines += [_header(section), ""]
        lines += [_bullet(e, counters=playbook.counters) for e in playbook.entries if e.section == section]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _bullet(entry: Entry, *, counters: bool) -> str:
    content = text.written(entry.content, indent=INDENT, is_special=_is_never)
    count = f"(+{entry.helpful} -{entry.harmful}) " if counters else ""
    shown = content if counters else text.guarded(content, _is_markdown_count)
    return f"- `{text.encode_id(entry.id, MARKDOWN_UNSAFE)}` {count}{shown}"


def _is_never(_line: str) -> bool:
    return False  # only the indent tells content from layout


def _is_markdown_count(content: str) -> bool:
    return re.match(MARKDOWN_COUNTERS, content, re.MULTILINE) is not None


def parse_markdown(source: str) -> Parsed:
    """Read what ``markdown_text`` wrote (and people edited); see ``parse_ace``.

    Raises
    ------
    ValueError
        As ``parse_ace`` does.
    """
    reading = Reading()
    for number, line in text.numbered(source):
        if is_header(line):
            reading.header(line)
        elif match := MARKDOWN_ENTRY.fullmatch(line):
            reading.entry(number, _fields(match, _is_markdown_count))
        elif text.is_blank(line):
            reading.blank(line)
        elif reading.is_empty and TITLE.fullmatch(line):
            continue
        elif not reading.more(line.removeprefix(INDENT), _is_never):
            raise unexpected(number, line, ("'# name'", "'## SECTION'", "'- `id-00001` …'"))
    return reading.parsed()


def markdown_title(source: str) -> tuple[str, int]:
    """Return name and version in a Markdown text's title; empty and 0 where there is none."""
    for _, line in text.numbered(source):
        if title := TITLE.fullmatch(line):
            return title["name"].strip(), int(title["version"] or 0)
        if not text.is_blank(line):
            break
    return "", 0


# ---- entries that an answer names, as in ``[calc-00003]``


def cited(text: str, entry_ids: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``entry_ids`` that a text cites in brackets, alone or in a list, in the order of the text."""
    known = {ace_id(entry_id): entry_id for entry_id in entry_ids}
    words = (word.strip(_QUOTES) for part in _BRACKETS.findall(text) for word in _BETWEEN.split(part))
    return tuple(dict.fromkeys(known[word] for word in words if word in known))


def with_citations(trace: Trace, newest: Iterable[Entry]) -> Trace:
    """Return a trace that names the entries which its answer cites, unless its agent reports them itself.

    Entries that the agent was not shown are not counted. Without a report of what it was shown, those of the newest
    version are.
    """
    if trace.bullet_ids or not trace.answer:
        return trace
    shown = trace.shown.entry_ids if trace.shown else (entry.id for entry in newest)
    return trace.model_copy(update={"bullet_ids": cited(trace.answer, shown)})
