"""Wrap a record that cannot be used, its bytes untouched."""

from hashlib import sha256

from combee.ports import Clock, Outgoing, Record
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import HEAD_BYTES, DeadLetter

WRAPPABLE_BYTES = 800 * 1024
"""Of a larger record key and value are kept as their heads: wrapped whole they would not fit again."""

MAX_REASON = 500
MAX_ID = 200


def dead_letter(
    record: Record, *, service: str, reason: str, clock: Clock, record_id: str = "", playbook: str = ""
) -> Outgoing:
    """Return the dead letter of a record."""
    key, value = record.key, record.value
    truncated = len(key or b"") + len(value or b"") > WRAPPABLE_BYTES
    head = HEAD_BYTES if truncated else None
    letter = DeadLetter(
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        key=None if key is None else key[:head],
        value=None if value is None else value[:head],
        size=len(value or b""),
        sha256=sha256(value or b"").hexdigest(),
        truncated=truncated,
        service=service,
        reason=reason[:MAX_REASON],
        record_id=record_id[:MAX_ID],
        playbook=playbook,
        at_ms=clock.now_ms(),
    )
    return Outgoing(topic=topics.DEAD_LETTERS.name, key=record.topic.encode(), value=encode(letter))
