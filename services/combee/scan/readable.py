"""What models may read: not the texts that look like instructions to them, where a batch sets these apart; pure."""

from collections.abc import Sequence

from combee.core.playbook.coverage import Lesson, lesson_of, texts_of
from combee.core.text.flags import flags
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, Operation


class Readable:
    """Tells what models may read; ``apart``: texts that look like instructions are proposed word for word, unread."""

    def __init__(self, *, apart: bool) -> None:
        self._apart = apart

    def is_quiet(self, *texts: str) -> bool:
        """Return whether a model that reads these texts might take one for an instruction to itself."""
        return self._apart and any("instruction" in flags(text) for text in texts)

    def lesson(self, member: GroupMember) -> Lesson:
        """Return the lesson of a reflection."""
        reflection = member.reflection
        quiet = self.is_quiet(*texts_of(reflection))
        return Lesson(member=member, text=lesson_of(reflection), is_quiet=quiet)

    def members(self, members: Sequence[GroupMember]) -> tuple[list[GroupMember], list[Lesson]]:
        """Return the reflections that a model may read, and the lessons of the others."""
        lessons = [self.lesson(member) for member in members]
        read = [lesson.member for lesson in lessons if not lesson.is_quiet]
        return read, [lesson for lesson in lessons if lesson.is_quiet]

    def operations(self, operations: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
        """Return the proposals that a model may read, and the others."""
        quiet = [self.is_quiet(operation.content, operation.section) for operation in operations]
        pairs = list(zip(operations, quiet, strict=True))
        return [one for one, is_quiet in pairs if not is_quiet], [one for one, is_quiet in pairs if is_quiet]

    def playbook(self, base: Playbook) -> Playbook:
        """Return a playbook without proposed entries that look like instructions; a person may have kept others."""
        kept = tuple(
            entry
            for entry in base.entries
            if entry.is_active or not self.is_quiet(entry.content, entry.section)
        )
        return base if len(kept) == len(base.entries) else base.model_copy(update={"entries": kept})
