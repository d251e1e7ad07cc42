"""Wrap a record that cannot be used, its bytes untouched."""

from hashlib import sha256

from combee.ports import Clock, Outgoing, Record
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import HEAD_BYTES, DeadLetter

WRAPPABLE_BYTES = 800 * 1024
"""A larger value is kept as its head: wrapped whole it would not fit into a record again."""

MAX_REASON = 500


def dead_letter(
    record: Record, *, service: str, reason: str, clock: Clock, record_id: str = "", playbook: str = ""
) -> Outgoing:
    """Return the dead letter of a record."""
    value = record.value
    truncated = value is not None and len(value) > WRAPPABLE_BYTES
    letter = DeadLetter(
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        key=record.key,
        value=value[:HEAD_BYTES] if value is not None and truncated else value,
        size=len(value or b""),
        sha256=sha256(value or b"").hexdigest(),
        truncated=truncated,
        service=service,
        reason=reason[:MAX_REASON],
        record_id=record_id,
        playbook=playbook,
        at_ms=clock.now_ms(),
    )
    return Outgoing(topic=topics.DEAD_LETTERS.name, key=record.topic.encode(), value=encode(letter))
