"""The cut: which records belong to an archive that is taken while the services run; pure.

A cut holds no effect without its cause, and all effects of what consumer groups have committed. Committed offsets are
looked up first, then the ends of topics in ``ORDER``: effects before their causes. Where two topics follow from each
other no order helps. There a record that names something beyond the cut is left out, as if it had been written a
moment later; so is, in turn, any record that names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.core.log.dead_letters.resending import planned_in
from combee.core.log.dead_letters.subject import reflection_of
from combee_schemas import topics
from combee_schemas.base import Message, playbook_of
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter, Resolution, claimed_attempt, origin_of
from combee_schemas.gate import Decision
from combee_schemas.playbook import PRODUCTION, Label, Playbook
from combee_schemas.records import Record
from combee_schemas.scan import Planned
from combee_schemas.topics import AnyTopic, key_of, partition_of

ORDER: tuple[AnyTopic, ...] = (
    topics.ERASURES,
    topics.EVALUATIONS,
    topics.OUTCOME_STATISTICS,
    topics.BATCH_SIZES,
    topics.LABELS,
    topics.DECISIONS,
    topics.HISTORY,
    topics.UPDATES,
    *reversed(topics.PARTIALS),
    topics.ANSWERS,
    topics.BATCHES,
    # One transaction writes them with manifests and versions, so they are visible whenever those are.
    topics.GROUPS,
    topics.DEAD_LETTERS,
    topics.PLAYBOOKS,
    topics.REFLECTIONS,
    topics.COMMANDS,
    topics.VERDICTS,
    topics.OUTCOMES,
    topics.TRACES,
)
"""Order in which topics' ends are looked up: effects before causes."""

IN_FILE: tuple[AnyTopic, ...] = (
    topics.HISTORY,
    topics.PLAYBOOKS,
    topics.LABELS,
    topics.DECISIONS,
    topics.BATCH_SIZES,
    topics.BATCHES,
    *topics.SCAN,
    topics.UPDATES,
    topics.DEAD_LETTERS,
    topics.REFLECTIONS,
    topics.COMMANDS,
    topics.TRACES,
    topics.ANSWERS,
    topics.EVALUATIONS,
    topics.VERDICTS,
    topics.OUTCOMES,
    topics.OUTCOME_STATISTICS,
    topics.ERASURES,
)
"""Order of topics in the file: topics that decide which records are left out come first."""

Ends = Mapping[str, tuple[int, ...]]
"""Per topic and partition, the first offset beyond the cut."""


def read(topic: AnyTopic, record: Record) -> Message | None:
    """Return the message in a record, of any type of its topic; None if it cannot be read.

    Raises
    ------
    OtherVersionError
        If a service of another release wrote it.
    """
    for kind in (topic.message, *topic.beside):
        try:
            message: Message = topic.decoded(record.value, kind)
        except CodecError:
            continue
        return message
    return None


def line_of(topic: AnyTopic, record: Record, message: Message | None) -> str:
    """Return the playbook or branch of a record; empty if unknown."""
    if message is None:
        return key_of(record) if topic.spread == "playbooks" else ""
    if message.playbook_name or not isinstance(message, DeadLetter):
        return message.playbook_name
    about, inside = reflection_of(message), planned_in(message)
    named = about[0] if about else inside.playbook_name if inside else ""
    return named or (message.key or b"").decode(errors="replace")


@dataclass(slots=True, kw_only=True)
class Newest:
    """A playbook's newest version in the cut."""

    version: int
    batch_sequence: int
    offset: int
    """Its offset in ``history``; −1: only its snapshot is there."""
    is_deleted: bool


@dataclass(slots=True, kw_only=True)
class Cut:
    """Decides on every record below ``ends``; records come in the order of ``IN_FILE``, each partition in order."""

    ends: Ends
    playbook: str = ""
    """The only playbook wanted, with its branches; empty: all."""
    newest: dict[str, Newest] = field(default_factory=dict)
    _beyond: dict[str, int] = field(default_factory=dict)
    """Per playbook, its first manifest that follows from a version beyond the cut; later manifests do as well."""
    _in_flight: dict[str, set[int]] = field(default_factory=dict)
    """Per playbook, offsets of the members of its batches without a version in the cut."""

    _moved_at_ms: dict[str, int] = field(default_factory=dict)
    """Per playbook, the time its label ``production`` last moved, as far as the archive knows."""
    _letters: set[tuple[str, int, int]] = field(default_factory=set)
    """Original records of the wanted playbook's dead letters, for the decisions on them."""

    def holds(self, topic: AnyTopic, record: Record) -> bool:
        """Return whether a record is part of the archive."""
        if not self._needs_reading(topic):
            return not self._is_sent_again_later(record)
        message = read(topic, record)
        if self.playbook and not self._is_wanted(topic, record, message):
            return False
        return not self._is_sent_again_later(record) and self._is_within(record, message)

    def _is_wanted(self, topic: AnyTopic, record: Record, message: Message | None) -> bool:
        """Return whether a record belongs to the wanted playbook or one of its branches."""
        if isinstance(message, Resolution):
            return origin_of(message) in self._letters
        wanted = playbook_of(line_of(topic, record, message)) == self.playbook
        if wanted and isinstance(message, DeadLetter):
            self._letters.add(origin_of(message))
        return wanted

    def _needs_reading(self, topic: AnyTopic) -> bool:
        """Return whether a record must be decoded, because its place alone does not decide."""
        if self.playbook:
            return True
        if topic in topics.SCAN or topic is topics.UPDATES:
            return topic is topics.GROUPS or bool(self._beyond)
        return issubclass(topic.message, Playbook | Batch | DeadLetter | Command | Decision | Label)

    def _is_within(self, record: Record, message: Message | None) -> bool:
        match message:
            case Playbook() if record.topic == topics.HISTORY.name:
                self._take_version(record.offset, message)
            case Playbook():
                return self._is_newest(message)
            case Batch():
                return self._take_manifest(record, message)
            case Planned():
                return self._is_planned(message)
            case DeadLetter():
                return self._is_letter(message)
            case Resolution():
                return self._is_below(message.origin_topic, message.retry_partition, message.retry_offset)
            case Command():
                known = self.newest.get(message.line)
                return max(message.version, message.base_version) <= (known.version if known else 0)
            case Decision():
                return self._is_decided(message)
        return not isinstance(message, Label) or self._is_label(message)

    def _is_label(self, label: Label) -> bool:
        if label.label == PRODUCTION:
            self._moved_at_ms[label.playbook] = label.moved_at_ms
        known = self.newest.get(label.playbook)
        return known is None or not known.is_deleted

    def _is_decided(self, decision: Decision) -> bool:
        """Return whether a decision is in the cut; it is written with a label, and belongs where the label does."""
        name = decision.playbook
        moved_at_ms = self._moved_at_ms.get(name, decision.decided_at_ms)
        newest = max(decision.version, decision.candidate)
        return self._has_version(name, newest) and decision.decided_at_ms <= moved_at_ms

    def _is_below(self, topic: str, partition: int, offset: int) -> bool:
        ends = self.ends.get(topic, ())
        return not 0 <= partition < len(ends) or offset < ends[partition]

    def home(self, topic: AnyTopic, playbook: str) -> int:
        """Return the partition of a playbook."""
        return partition_of(topic.name, playbook.encode(), len(self.ends[topic.name]))

    def _is_sent_again_later(self, record: Record) -> bool:
        """Return whether a record was resent because of a dead letter beyond the cut."""
        claim = claimed_attempt(record.headers)
        return claim is not None and not self._is_below(
            topics.DEAD_LETTERS.name, claim.letter.partition, claim.letter.offset
        )

    def _take_version(self, offset: int, version: Playbook) -> None:
        known = self.newest.get(version.name)
        if known is None or version.version > known.version:
            self.newest[version.name] = Newest(
                version=version.version,
                batch_sequence=version.batch_sequence,
                offset=offset,
                is_deleted=version.origin == "delete",
            )

    def _is_newest(self, snapshot: Playbook) -> bool:
        """Return whether a snapshot is the newest version's, or, if history lost that, any in the cut."""
        known = self.newest.get(snapshot.name)
        if known is not None and known.offset >= 0:
            return snapshot.version == known.version
        home = self.home(topics.HISTORY, snapshot.name)
        if not self._is_below(topics.HISTORY.name, home, snapshot.history_offset):
            return False
        self._take_version(-1, snapshot)
        return True

    def _take_manifest(self, record: Record, batch: Batch) -> bool:
        name, plan = batch.plan.playbook, batch.plan
        if plan.base_version and not self._has_version(name, plan.base_version):
            self._beyond.setdefault(name, record.offset)
        if plan.branch is not None and not self._has_version(plan.branch.of, plan.branch.version):
            self._beyond.setdefault(name, record.offset)
        if record.offset >= self._beyond.get(name, record.offset + 1):
            return False
        known = self.newest.get(name)
        if plan.sequence > (known.batch_sequence if known else 0):
            self._in_flight.setdefault(name, set()).update(member.offset for member in batch.members)
        return True

    def _has_version(self, name: str, version: int) -> bool:
        known = self.newest.get(name)
        return known is not None and version <= known.version

    def _is_planned(self, record: Planned) -> bool:
        name, place = record.plan.playbook, record.manifest_offset
        return place < self._beyond.get(name, place + 1) and self._is_below(
            topics.BATCHES.name, self.home(topics.BATCHES, name), place
        )

    def _is_letter(self, letter: DeadLetter) -> bool:
        if not self._is_below(letter.origin_topic, letter.origin_partition, letter.origin_offset):
            return False
        if letter.origin_topic == topics.REFLECTIONS.name and letter.service == "scan":
            # It was written with the version that had to go without the reflection.
            return letter.origin_offset not in self._in_flight.get(letter.playbook, ())
        message = planned_in(letter)
        return message is None or self._is_planned(message)
