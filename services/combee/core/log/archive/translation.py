"""Translation: rewrites an archived record with the new places of all records it names; pure.

Each field of a message with an offset or a partition has a mark, or is listed in ``OWN_WAY``. Nothing else changes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from combee.core.log.archive.cut import read
from combee.core.log.archive.places import Places
from combee.core.log.dead_letters.resending import planned_in
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution, letter_id
from combee_schemas.marks import PLACES, is_marked, rewritten
from combee_schemas.records import LETTER_HEADER, Outgoing, Record
from combee_schemas.topics import AnyTopic

OWN_WAY: Mapping[str, frozenset[str]] = {
    "Batch": frozenset({"oldest_beyond_offset", "oldest_unpublished_offset"}),
    "DeadLetter": frozenset({"origin_partition", "origin_offset"}),
    "LetterId": frozenset({"partition", "offset"}),
    "Resolution": frozenset({"origin_partition", "origin_offset", "retry_partition", "retry_offset"}),
}
"""Per model, places outside the message's playbook, each translated individually; a test compares this list."""
LETTERS = (DeadLetter, Resolution)
NAMED = (topics.HISTORY, topics.REFLECTIONS, topics.BATCHES, topics.COMMANDS, topics.DEAD_LETTERS)
"""The topics of those places, which every archive has."""

M = TypeVar("M", bound=Message)


class Translator:
    """Rewrites records; ``in_flight``: new offsets of manifests without a version, by new partition, sorted."""

    def __init__(
        self, places: Places, in_flight: Mapping[int, Sequence[int]], *, later_ms: int, now_ms: int
    ) -> None:
        self._places = places
        self._in_flight = in_flight
        self._later_ms = later_ms
        self._now_ms = now_ms

    def outgoing(self, topic: AnyTopic, record: Record, partition: int) -> Outgoing:
        """Return the record to write to its new partition."""
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
        if record.value is None or not any(is_marked(kind, PLACES) or kind in LETTERS for kind in kinds):
            return record.value
        message = read(topic, record)
        place = self._places.exact(record.topic, record.partition, record.offset)
        if message is None or place is None:
            return record.value
        moved = self._message(message, place[1])
        return record.value if moved is message else encode(moved)

    def _header(self, name: str, value: bytes | None) -> bytes | None:
        letter = (
            letter_id((value or b"").decode("ascii", errors="replace")) if name == LETTER_HEADER else None
        )
        return value if letter is None else str(self._letter_id(letter)).encode()

    # ---- messages; ``at`` is the record's own new offset

    def _message(self, message: Message, at: int) -> Message:
        match message:
            case Batch():
                return self._moved(self._batch(message, at))
            case DeadLetter():
                return self._letter(message)
            case Resolution():
                return self._resolution(message)
        return self._moved(message)

    def _moved(self, message: M) -> M:
        """Return a message with the new places in its playbook."""
        places = self._places
        ways = {"at": places.of_playbook, "through": places.through, "first": places.first}
        rewrites = {
            mark: partial(ways[mark.way], topics.BY_NAME[mark.topic], message.playbook_name)
            for mark in PLACES
        }
        return rewritten(message, rewrites)

    def _batch(self, batch: Batch, at: int) -> Batch:
        partition = self._places.home(topics.BATCHES, batch.plan.playbook)
        in_flight = self._in_flight.get(partition, ())
        return batch.model_copy(
            update={
                # Other playbooks share this partition now; batches with a version need not be looked for.
                "oldest_unpublished_offset": in_flight[0] if in_flight and in_flight[0] < at else -1,
                # All manifests are checked until the next one says where to begin.
                "oldest_beyond_offset": min(batch.oldest_beyond_offset, 0),
            }
        )

    # ---- dead letters

    def _place(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        known = self._places.exact(topic, partition, offset)
        return known or (partition, self._places.gone(topic, partition, offset))

    def _letter_id(self, letter: LetterId) -> LetterId:
        partition, offset = self._place(topics.DEAD_LETTERS.name, letter.partition, letter.offset)
        return LetterId(partition=partition, offset=offset)

    def _origin(self, message: DeadLetter | Resolution) -> dict[str, Any]:
        topic = message.origin_topic
        partition, offset = self._place(topic, message.origin_partition, message.origin_offset)
        return {"origin_partition": partition, "origin_offset": offset}

    def _letter(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter that can still be resent: records of the scan inside it name the manifest's new place."""
        update = self._origin(letter)
        if (message := planned_in(letter)) is not None:
            value = encode(self._moved(message))
            update |= {"value": value, "size": len(value), "sha256": sha256(value).hexdigest()}
        return letter.model_copy(update=update)

    def _resolution(self, resolution: Resolution) -> Resolution:
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
