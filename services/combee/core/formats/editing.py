"""Editing a playbook as Markdown: the text for a person, and the operations of their changes."""

from collections.abc import Iterator

from combee.core.formats.lines import Parsed
from combee.core.formats.render import MARKDOWN_ENTRY, markdown_text, markdown_title, parse_markdown
from combee.core.formats.text import numbered
from combee.core.playbook.shown import shown
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Operation, OperationKind

HOW = """\
# Change contents; delete a line to remove its entry; "- text" without an id adds one; further lines of an
# entry are indented by two. Order and counts are not edited. Leave the file as it is to change nothing.
"""
UNNAMED = "new entry "


def editable(playbook: Playbook) -> str:
    """Return the text for editing; its title names its version."""
    title, _, rest = markdown_text(shown(playbook).model_copy(update={"counters": False})).partition("\n")
    return f"{title}\n{HOW}{rest}"


def edited_version(source: str) -> int:
    """Return the version of an edited text; 0 if its title does not name one."""
    return markdown_title(source)[1]


def edit_operations(base: Playbook, source: str) -> tuple[Operation, ...]:
    """Return the operations that turn ``base``, as agents are shown it, into the edited text.

    Raises
    ------
    ValueError
        If the text cannot be read; the message says where.
    """
    _, edited, _ = _parsed(source)
    before = {entry.id: entry for entry in shown(base).entries}
    kept = {entry.id: entry for entry in edited if entry.content.strip()}
    dropped = [
        entry
        for entry_id, entry in before.items()
        if entry_id not in kept or _has_moved(entry, kept[entry_id])
    ]
    removals = (Operation(kind=OperationKind.REMOVE, section=e.section, entry_ids=(e.id,)) for e in dropped)
    return *removals, *(
        operation for entry in kept.values() for operation in _said(entry, before.get(entry.id))
    )


def _parsed(source: str) -> Parsed:
    """Read Markdown in which a bullet may lack an id."""
    lines = []
    for number, line in numbered(source):
        unnamed = line.startswith("- ") and MARKDOWN_ENTRY.fullmatch(line) is None
        lines.append(f"- `{UNNAMED}{number}` {line[2:]}" if unnamed else line)
    return parse_markdown("\n".join(lines))


def _has_moved(before: Entry, after: Entry) -> bool:
    return before.section != after.section


def _said(entry: Entry, known: Entry | None) -> Iterator[Operation]:
    """Yield the operations for one entry of the edited text; an entry that moved keeps its evidence, not its id."""
    if known is None or _has_moved(known, entry):
        evidence = known.evidence if known else ()
        yield Operation(
            kind=OperationKind.ADD, section=entry.section, content=entry.content, evidence=evidence
        )
    elif known.content != entry.content:
        yield Operation(
            kind=OperationKind.UPDATE, section=entry.section, content=entry.content, entry_ids=(entry.id,)
        )
