"""Translation: a record of an archive as it is written where it is read back, with every place in it a new one; pure.

``PLACES`` names each field of a message that holds an offset or a partition. Nothing else changes.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from combee.core.archive.cut import read
from combee.core.archive.places import Places
from combee.core.dead_letters.resending import PLANNED
from combee.core.dead_letters.subject import message_in
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.canary import CanaryStatistics
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution, letter_id
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.plan import Plan
from combee_schemas.playbook import Label, Playbook
from combee_schemas.records import LETTER_HEADER, Outgoing, Record
from combee_schemas.scan import Group, Partial, Planned, Update
from combee_schemas.topics import AnyTopic

PLACES: Mapping[str, frozenset[str]] = {
    "Asked": frozenset({"offset", "manifest_offset"}),
    "Batch": frozenset({"oldest_beyond_offset", "oldest_unpublished_offset"}),
    "CanaryStatistics": frozenset({"through_offset"}),
    "Command": frozenset({"through_offset", "retained_from"}),
    "DeadLetter": frozenset({"origin_partition", "origin_offset"}),
    "Group": frozenset({"manifest_offset"}),
    "GroupMember": frozenset({"offset"}),
    "Label": frozenset({"command_offset"}),
    "LetterId": frozenset({"partition", "offset"}),
    "Member": frozenset({"offset"}),
    "OutcomeStatistics": frozenset({"through_offset"}),
    "Partial": frozenset({"manifest_offset"}),
    "Plan": frozenset({"through_offset"}),
    "Playbook": frozenset(
        {"through_offset", "counted_offset", "manifest_offset", "history_offset", "command_offset"}
    ),
    "Resolution": frozenset({"origin_partition", "origin_offset", "retry_partition", "retry_offset"}),
    "Revocation": frozenset({"retained_from"}),
    "Seen": frozenset({"offset"}),
    "Update": frozenset({"manifest_offset"}),
}
"""By model: its fields that are places in the log. A test compares them with the schemas."""
NAMED = (topics.HISTORY, topics.REFLECTIONS, topics.BATCHES, topics.COMMANDS, topics.DEAD_LETTERS)
"""The topics that those are in. Every archive has them."""


class Translator:
    """Rewrites records; ``in_flight``: new offsets of manifests without a version, by new partition, sorted."""

    def __init__(
        self, places: Places, in_flight: Mapping[int, Sequence[int]], *, later_ms: int, now_ms: int
    ) -> None:
        self._places = places
        self._in_flight = in_flight
        self._later_ms = later_ms
        self._now_ms = now_ms
        self._rewrite: dict[type[Message], Callable[[Any, int], Message]] = {
            Batch: self._batch,
            CanaryStatistics: self._canary,
            Command: self._command,
            DeadLetter: self._letter,
            Group: self._group,
            Label: self._label,
            OutcomeStatistics: self._statistics,
            Partial: self._result,
            Playbook: self._playbook,
            Resolution: self._resolution,
            Update: self._result,
        }

    def outgoing(self, topic: AnyTopic, record: Record, partition: int) -> Outgoing:
        """Return a record as it is written to its new partition."""
        record = record.to_copy
        return Outgoing(
            topic=record.topic,
            partition=partition,
            key=record.key,
            value=self._value(topic, record),
            headers=tuple((name, self._header(name, value)) for name, value in record.headers),
            timestamp_ms=min(record.timestamp_ms + self._later_ms, self._now_ms),
        )

    def _value(self, topic: AnyTopic, record: Record) -> bytes | None:
        kinds = (topic.message, *topic.beside)
        if record.value is None or not any(kind in self._rewrite for kind in kinds):
            return record.value
        message = read(topic, record)
        rewrite = self._rewrite.get(type(message)) if message is not None else None
        place = self._places.exact(record.topic, record.partition, record.offset)
        return encode(rewrite(message, place[1])) if rewrite and place else record.value

    def _header(self, name: str, value: bytes | None) -> bytes | None:
        letter = (
            letter_id((value or b"").decode("ascii", errors="replace")) if name == LETTER_HEADER else None
        )
        return value if letter is None else str(self._letter_id(letter)).encode()

    # ---- messages; ``at`` is the new offset of the record itself

    def _plan(self, plan: Plan) -> Plan:
        return plan.model_copy(
            update={
                "through_offset": self._places.through(
                    topics.REFLECTIONS, plan.playbook, plan.through_offset
                ),
            }
        )

    def _members(self, playbook: str, members: Sequence[Any]) -> tuple[Any, ...]:
        """Return members, copies or what was seen of them, each with its reflection's new offset."""
        return tuple(
            member.model_copy(
                update={"offset": self._places.of_playbook(topics.REFLECTIONS, playbook, member.offset)}
            )
            for member in members
        )

    def _batch(self, batch: Batch, at: int) -> Batch:
        name = batch.plan.playbook
        partition = self._places.home(topics.BATCHES, name)
        in_flight = self._in_flight.get(partition, ())
        return batch.model_copy(
            update={
                "plan": self._plan(batch.plan),
                "members": self._members(name, batch.members),
                "dropped": self._members(name, batch.dropped),
                # Other playbooks stand on this partition now; those with a version by now need not be looked for.
                "oldest_unpublished_offset": in_flight[0] if in_flight and in_flight[0] < at else -1,
                # All are looked at, until the next manifest says where.
                "oldest_beyond_offset": min(batch.oldest_beyond_offset, 0),
            }
        )

    def _planned(self, record: Planned) -> dict[str, Any]:
        place = self._places.of_playbook(topics.BATCHES, record.plan.playbook, record.manifest_offset)
        return {"plan": self._plan(record.plan), "manifest_offset": place}

    def _group(self, group: Group, _at: int) -> Group:
        members = self._members(group.plan.playbook, group.members)
        return group.model_copy(update=self._planned(group) | {"members": members})

    def _result(self, record: Partial | Update, _at: int) -> Partial | Update:
        seen = self._members(record.plan.playbook, record.result.seen)
        result = record.result.model_copy(update={"seen": seen})
        return record.model_copy(update=self._planned(record) | {"result": result})

    def _playbook(self, playbook: Playbook, _at: int) -> Playbook:
        name, places = playbook.name, self._places
        batch = playbook.batch
        rules = (
            rule.model_copy(
                update={"retained_from": places.first(topics.REFLECTIONS, name, rule.retained_from)}
            )
            for rule in playbook.revocations
        )
        again = (
            asked.model_copy(
                update={
                    "offset": places.of_playbook(topics.REFLECTIONS, name, asked.offset),
                    "manifest_offset": places.of_playbook(topics.BATCHES, name, asked.manifest_offset),
                }
            )
            for asked in playbook.again
        )
        return playbook.model_copy(
            update={
                "again": tuple(again),
                "through_offset": places.through(topics.REFLECTIONS, name, playbook.through_offset),
                "counted_offset": places.through(topics.REFLECTIONS, name, playbook.counted_offset),
                "manifest_offset": places.of_playbook(topics.BATCHES, name, playbook.manifest_offset),
                "history_offset": places.of_playbook(topics.HISTORY, name, playbook.history_offset),
                "command_offset": places.through(topics.COMMANDS, name, playbook.command_offset),
                "revocations": tuple(rules),
                "batch": batch.model_copy(update={"plan": self._plan(batch.plan)}) if batch else None,
            }
        )

    def _label(self, label: Label, _at: int) -> Label:
        offset = self._places.through(topics.COMMANDS, label.playbook, label.command_offset)
        return label.model_copy(update={"command_offset": offset})

    def _statistics(self, statistics: OutcomeStatistics, _at: int) -> OutcomeStatistics:
        offset = self._places.through(topics.OUTCOMES, statistics.line, statistics.through_offset)
        return statistics.model_copy(update={"through_offset": offset})

    def _canary(self, statistics: CanaryStatistics, _at: int) -> CanaryStatistics:
        offset = self._places.through(topics.OUTCOMES, statistics.playbook, statistics.through_offset)
        return statistics.model_copy(update={"through_offset": offset})

    def _command(self, command: Command, _at: int) -> Command:
        name = command.playbook
        return command.model_copy(
            update={
                "through_offset": self._places.through(topics.REFLECTIONS, name, command.through_offset),
                "retained_from": self._places.first(topics.REFLECTIONS, name, command.retained_from),
            }
        )

    # ---- dead letters

    def _place(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        if offset < 0:
            return partition, offset
        known = self._places.exact(topic, partition, offset)
        return known or (partition, self._places.gone(topic, partition, offset))

    def _letter_id(self, letter: LetterId) -> LetterId:
        partition, offset = self._place(topics.DEAD_LETTERS.name, letter.partition, letter.offset)
        return LetterId(partition=partition, offset=offset)

    def _origin(self, message: DeadLetter | Resolution) -> dict[str, Any]:
        topic = message.origin_topic
        partition, offset = self._place(topic, message.origin_partition, message.origin_offset)
        return {"origin_partition": partition, "origin_offset": offset}

    def _letter(self, letter: DeadLetter, _at: int) -> DeadLetter:
        """Return a letter whose record, too, can be sent again where it is now: those of the scan name manifests."""
        update = self._origin(letter)
        kind = PLANNED.get(letter.origin_topic)
        message = message_in(letter, kind)
        if kind is not None and message is not None:
            value = encode(self._rewrite[kind](message, -1))
            update |= {"value": value, "size": len(value), "sha256": sha256(value).hexdigest()}
        return letter.model_copy(update=update)

    def _resolution(self, resolution: Resolution, _at: int) -> Resolution:
        partition, offset = self._place(
            resolution.origin_topic, resolution.retry_partition, resolution.retry_offset
        )
        return resolution.model_copy(
            update=self._origin(resolution)
            | {
                "letter": self._letter_id(resolution.letter),
                "retry_partition": partition,
                "retry_offset": offset,
            }
        )
