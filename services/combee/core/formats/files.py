"""Playbook files: detecting, reading and writing users' formats.

ACE text, Markdown, JSON, GEPA's candidates, Kayba's skillbooks, skill files.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from combee.core.formats.intake import Unknown, unknown_fields
from combee.core.formats.kayba import kayba_text, parse_kayba
from combee.core.formats.lines import refuse_twins
from combee.core.formats.render import (
    MARKDOWN_ENTRY,
    ace_lines,
    ace_text,
    markdown_text,
    markdown_title,
    parse_ace,
    parse_markdown,
)
from combee.core.formats.skill import is_skill, skill_text, without_front
from combee.core.formats.text import numbered
from combee.core.playbook.sections import clash, id_in, number_of
from combee.core.playbook.shown import shown
from combee_schemas.base import Holds, LineName, PlaybookName
from combee_schemas.playbook import Entry, Playbook

T = TypeVar("T")
Format = Literal["ace", "gepa", "json", "kayba", "md", "skill"]
FORMATS: tuple[Format, ...] = ("ace", "gepa", "json", "kayba", "md", "skill")
CANDIDATE = TypeAdapter(dict[str, str])
"""A candidate in GEPA's sense: component → text."""
OBJECT = TypeAdapter(dict[str, Any])
NAME: TypeAdapter[str] = TypeAdapter(PlaybookName)
LINE: TypeAdapter[str] = TypeAdapter(LineName)
SUFFIXES: Mapping[str, Format] = {".json": "json", ".md": "md", ".markdown": "md"}


def detect(source: str, suffix: str = "") -> Format:
    """Return the format of a text; a distinctive file suffix decides."""
    by_name = SUFFIXES.get(suffix.lower())
    if by_name == "json" or source.removeprefix("\ufeff").lstrip().startswith("{"):
        return _detect_json(source)
    if is_skill(source):
        return "skill"
    if by_name is not None:
        return by_name
    bullets = any(MARKDOWN_ENTRY.fullmatch(line) for _, line in numbered(source))
    return "md" if bullets or source.startswith("# ") else "ace"


def _detect_json(source: str) -> Format:
    if _is_candidate(source):
        return "gepa"
    try:
        fields = OBJECT.validate_json(source.removeprefix("\ufeff"))
    except ValidationError:
        return "json"
    return "kayba" if isinstance(fields.get("skills"), dict) else "json"


def read_playbook(source: str, form: Format, *, name: str) -> Playbook:
    """Return the playbook in a text; ``name`` is used if the text has none.

    Raises
    ------
    ValueError
        If it cannot be read; the message says where.
    """
    if form == "json":
        return _read_json(source, name)
    if form == "gepa":
        return _read_candidate(source, name)
    if form == "kayba":
        return _read_kayba(source, name)
    text = without_front(source) if form == "skill" else source
    sections, entries, counters = parse_ace(text) if form == "ace" else parse_markdown(text)
    title, version = markdown_title(text) if form != "ace" else ("", 0)
    fields = {
        "name": title if is_name(title) else name,
        "version": version,
        "origin": "import",
        "counters": counters,
    }
    shape = {"sections": sections, "entries": entries, "next_id": next_id(entries)}
    return _checked(lambda: Playbook.model_validate({**fields, **shape}))


def ignored_in(source: str, form: Format) -> dict[str, Unknown]:
    """Return the names of ignored fields in a playbook's JSON; other formats define their own fields."""
    if form != "json":
        return {}
    unknown = unknown_fields(Playbook, OBJECT.validate_json(source.removeprefix("\ufeff")))
    return {field.place.rpartition(".")[2]: field for field in unknown}


def _read_json(source: str, name: str) -> Playbook:
    playbook = _checked(lambda: _Named.model_validate_json(source.removeprefix("\ufeff")))
    refuse_twins((f"entries.{at}", entry) for at, entry in enumerate(playbook.entries))
    fields = playbook.model_dump(exclude_unset=True)
    given = {"name": name, "version": 0, "next_id": next_id(playbook.entries)}
    return _checked(lambda: Playbook.model_validate({**given, **fields}))


def _read_kayba(source: str, name: str) -> Playbook:
    fields = _checked(lambda: parse_kayba(source))
    named = {"name": fields["name"] if is_name(fields["name"]) else name, "origin": "import"}
    counted = {"next_id": max(fields["next_id"], next_id(fields["entries"]))}
    return _checked(lambda: Playbook.model_validate({**fields, **named, **counted}))


def _is_candidate(source: str) -> bool:
    """Return whether JSON is component → text, without fields of a playbook's own JSON."""
    try:
        texts = CANDIDATE.validate_json(source.removeprefix("\ufeff"), strict=True)
    except ValidationError:
        return False
    return bool(texts) and not texts.keys() & Playbook.model_fields.keys()


def _read_candidate(source: str, name: str) -> Playbook:
    texts = _checked(lambda: CANDIDATE.validate_json(source.removeprefix("\ufeff"), strict=True))
    entries = tuple(
        Entry(id=id_in(section, n), section=section, content=content)
        for n, (section, content) in enumerate(texts.items(), 1)
    )
    return Playbook(
        name=name,
        version=0,
        sections=tuple(texts),
        entries=entries,
        counters=False,
        next_id=len(entries) + 1,
        origin="import",
        holds="components",
    )


def is_name(text: str, *, line: bool = False) -> bool:
    """Return whether a text is a valid playbook name; with ``line`` a branch's name is valid as well."""
    try:
        (LINE if line else NAME).validate_python(text)
    except ValidationError:
        return False
    return True


class _Named(Playbook):
    """A playbook whose file may omit name and version."""

    name: str = "unnamed"
    version: int = 0


def _checked(read: Callable[[], T]) -> T:
    try:
        return read()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


def next_id(entries: tuple[Entry, ...]) -> int:
    """Return a number larger than any number at the end of an entry's id."""
    return max((number_of(entry.id) for entry in entries), default=0) + 1


def natural_form(playbook: Playbook) -> Format:
    """Return the most readable format for a playbook of its kind."""
    return "md" if playbook.holds == "components" else "ace"


def write_playbook(playbook: Playbook, form: Format, *, everything: bool = False) -> str:
    """Return the playbook as text, without proposed entries unless ``everything`` is set.

    Only JSON marks proposed entries.

    Raises
    ------
    ValueError
        If the format has no room for it: a candidate has one text per component.
    """
    playbook = playbook if everything else shown(playbook)
    match form:
        case "gepa":
            if reason := clash(playbook.entries):
                raise ValueError(reason)
            return CANDIDATE.dump_json(_texts(playbook), indent=2).decode() + "\n"
        case "ace":
            return ace_text(playbook)
        case "md":
            return markdown_text(playbook)
        case "kayba":
            counted = {"next_id": max(playbook.next_id, next_id(playbook.entries))}
            return kayba_text(playbook.model_copy(update=counted))
        case "skill":
            return skill_text(playbook)
        case "json":
            return playbook.model_dump_json(indent=2) + "\n"


def _texts(playbook: Playbook) -> dict[str, str]:
    return {entry.section: entry.content for entry in playbook.entries}


def says_the_same(current: Playbook, given: Playbook, form: Format) -> bool:
    """Return whether a text has the same content as the playbook.

    A text without proposed entries is compared with the content shown to agents.
    """
    current = shown(current) if all(entry.is_active for entry in given.entries) else current
    if form == "json":
        return _content(current) == _content(given)
    if form == "gepa":
        return current.holds == "components" and _texts(current) == _texts(given)
    lines = [list(ace_lines(playbook, counters=given.counters)) for playbook in (current, given)]
    return current.counters == given.counters and lines[0] == lines[1]


def _content(playbook: Playbook) -> tuple[object, ...]:
    bookkeeping = {"created_version": 0, "updated_version": 0, "by_hand": False}
    entries = tuple(entry.model_copy(update=bookkeeping) for entry in playbook.entries)
    return playbook.sections, playbook.counters, playbook.holds, entries


def held_by(current: Playbook, given: Playbook, form: Format) -> Holds:
    """Return what the given playbook holds; most formats do not state it, so the current kind is kept if possible."""
    if form in {"json", "gepa"} or current.holds == "entries":
        return given.holds
    sections = {entry.section for entry in given.entries}
    return "components" if len(sections) == len(given.entries) else "entries"


def carried_over(current: Playbook, given: Playbook, form: Format) -> tuple[Entry, ...]:
    """Return the given entries with the fields missing in their format, if their content is unchanged.

    ACE text and Markdown hold no evidence, and without counters no counts either. Candidates hold texts alone.
    """
    if form == "json":
        return given.entries
    if form == "gepa":
        ids = {entry.section: entry.id for entry in current.entries}
        renamed = (
            entry.model_copy(update={"id": ids.get(entry.section, entry.id)}) for entry in given.entries
        )
        given = given.model_copy(update={"entries": tuple(renamed)})
    known = {entry.id: entry for entry in current.entries}
    kept = {"evidence", "evidence_count", "sources", "recognised", "harmed", "helped"} | (
        set() if given.counters else {"helpful", "harmful"}
    )
    return tuple(
        entry.model_copy(update=known[entry.id].model_dump(include=kept))
        if entry.id in known and known[entry.id].content == entry.content
        else entry
        for entry in given.entries
    )
