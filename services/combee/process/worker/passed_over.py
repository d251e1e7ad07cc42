"""Records of paused playbooks: a consume loop passes them over, and reads them again when their playbook goes on.

Per partition and playbook only the offset of the first such record is kept; the loop reads again from that offset.
The group's committed offset stays at the lowest of these offsets, so that no record is lost. The commit's metadata, a
note, says how far the loop itself has come, so that a restart does not read everything again.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from combee.adapters.ports import CombeeError, TopicPartition

NOTE_BYTES = 4_000
"""Maximum length of a note (Kafka: 4,096 bytes). Without one a restart reads on from the first record passed over."""


class PassOverError(CombeeError):
    """A record of a paused playbook: it is read again when the playbook goes on."""

    def __init__(self, playbook: str) -> None:
        super().__init__(f"{playbook} is paused")
        self.playbook = playbook


@dataclass(frozen=True, slots=True)
class Note:
    """How far a loop has come in a partition, and the first record passed over of each playbook."""

    next: int
    passed: dict[str, int] = field(default_factory=dict)


_NOTE = TypeAdapter(Note)


def note_text(note: Note) -> str:
    """Return a note as text; empty if nothing is passed over, or if the text is longer than `NOTE_BYTES`."""
    text = _NOTE.dump_json(note).decode() if note.passed else ""
    return text if len(text.encode()) <= NOTE_BYTES else ""


def note_from(text: str, committed: int) -> Note:
    """Return the note in a text; an unreadable or old one becomes a note that the loop is at the committed offset."""
    try:
        note = _NOTE.validate_json(text) if text else Note(committed)
    except ValidationError:
        return Note(committed)
    return note if note.next >= committed else Note(committed)


def never(_playbook: str) -> bool:
    """Return False: no playbook is paused."""
    return False


async def nothing(_playbook: str, _starts: Mapping[TopicPartition, int]) -> None:
    """Do nothing before a playbook is read again."""


class PassedOver:
    """The first records passed over, by partition and playbook.

    ``is_paused`` tells which playbooks are paused, ``prepare`` is awaited before one is read again.
    """

    def __init__(
        self,
        is_paused: Callable[[str], bool] = never,
        prepare: Callable[[str, Mapping[TopicPartition, int]], Awaitable[None]] = nothing,
    ) -> None:
        self.is_paused = is_paused
        self.prepare = prepare
        self._firsts: dict[TopicPartition, dict[str, int]] = {}
        self._since: set[tuple[TopicPartition, str]] = set()
        """Partitions and playbooks of which a record was passed over since `begin`."""

    def add(self, source: TopicPartition, playbook: str, offset: int) -> bool:
        """Pass a record over; return whether it is the playbook's first in the partition."""
        firsts = self._firsts.setdefault(source, {})
        is_first = playbook not in firsts
        firsts[playbook] = min(offset, firsts.get(playbook, offset))
        self._since.add((source, playbook))
        return is_first

    def assign(
        self, assigned: Collection[TopicPartition], new: Iterable[tuple[TopicPartition, Note]]
    ) -> None:
        """Forget partitions that others have now, and take over new ones as their notes say."""
        self._firsts = {source: firsts for source, firsts in self._firsts.items() if source in assigned}
        self._firsts |= {source: dict(note.passed) for source, note in new}

    def low(self, source: TopicPartition, low: int) -> int:
        """Return the offset to commit; ``low`` is the loop's own."""
        return min([low, *self._firsts.get(source, {}).values()])

    def note(self, source: TopicPartition, low: int) -> str:
        """Return the note to commit with that offset, as text."""
        return note_text(Note(low, self._firsts.get(source, {})))

    def due(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the playbooks that go on, each with the partitions and offsets to read from."""
        due: dict[str, dict[TopicPartition, int]] = {}
        for source, firsts in self._firsts.items():
            for playbook, first in firsts.items():
                if not self.is_paused(playbook):
                    due.setdefault(playbook, {})[source] = first
        return due

    def begin(self, source: TopicPartition, playbook: str) -> None:
        """Begin to read a partition again: records passed over from now on lie beyond what is read."""
        self._since.discard((source, playbook))

    def reached(self, source: TopicPartition, playbook: str, offset: int) -> None:
        """Record that everything of a playbook below an offset is finished."""
        if playbook in self._firsts.get(source, {}):
            self._firsts[source][playbook] = offset

    def end(self, source: TopicPartition, playbook: str, offset: int) -> None:
        """Record that a partition was read again up to an offset; what was passed over meanwhile is still to come."""
        self.reached(source, playbook, offset)
        if (source, playbook) not in self._since:
            self._firsts.get(source, {}).pop(playbook, None)
