"""Cleaning of texts that models propose, and people write, import or decide on."""

from collections.abc import Iterable

from combee.core.text.forms import clean
from combee_schemas.command import Command
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Operation

UNNAMED = "unnamed"
"""Id of an entry whose own has no visible character."""


def clean_command(command: Command) -> Command:
    """Return a command with clean texts; the same object if they were clean."""
    return command.model_copy(
        update={
            "entries": _entries(command.entries),
            "sections": _sections(command.sections),
            "operations": clean_operations(command.operations),
            "reason": clean(command.reason),
            "issued_by": clean(command.issued_by),
        }
    )


def clean_operations(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations with clean texts."""
    return tuple(
        operation.model_copy(
            update={"content": clean(operation.content), "section": clean(operation.section)}
        )
        for operation in operations
    )


def clean_playbook(playbook: Playbook) -> Playbook:
    """Return a user's playbook with clean texts."""
    return playbook.model_copy(
        update={"entries": _entries(playbook.entries), "sections": _sections(playbook.sections)}
    )


def _entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(
        entry.model_copy(
            update={
                "id": clean(entry.id) or UNNAMED,
                "section": clean(entry.section),
                "content": clean(entry.content),
            }
        )
        for entry in entries
    )


def _sections(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(clean, names)))
