"""Command: what an operator asks of shuffle (flush) and publish (the rest)."""

from typing import ClassVar, Literal

from combee_schemas.base import Holds, Id, Message, PlaybookName
from combee_schemas.playbook import Entry
from combee_schemas.scan import Operation

CommandKind = Literal["flush", "import", "edit", "promote", "rollback", "revoke"]


class Command(Message):
    """Idempotent by id; key: playbook.

    flush: close windows until everything at or below ``through_offset`` of ``reflections`` is in a batch.
    import: ``entries``, ``sections``, ``counters``, ``holds`` replace the content. edit: ``operations`` are applied.
    promote: ``label`` moves to ``version``. rollback: a new version equal to ``version``.
    revoke: ``reflection_ids`` no longer count, now or later.
    """

    type: ClassVar[str] = "command"

    command_id: Id
    playbook: PlaybookName
    kind: CommandKind
    through_offset: int = -1
    entries: tuple[Entry, ...] = ()
    sections: tuple[str, ...] = ()
    counters: bool = True
    holds: Holds = "entries"
    operations: tuple[Operation, ...] = ()
    version: int = 0
    label: str = ""
    reflection_ids: tuple[str, ...] = ()
    issued_at_ms: int = 0
