"""Dead letters: an unusable record is wrapped with its bytes unchanged."""

from hashlib import sha256

import structlog

from combee.adapters.ports import Clock, Outgoing, Record
from combee.core.names.identity import given_identity
from combee.core.text.forms import writable
from combee_schemas import topics
from combee_schemas.dead_letter import HEAD_BYTES, DeadLetter, HeldBack, claimed_attempt
from combee_schemas.records import PROOF_HEADER, header
from combee_schemas.topics import key_of

logger = structlog.get_logger()

WRAPPABLE_BYTES = 800 * 1024
"""Maximum bytes of a record wrapped whole; of a larger one the first bytes of key and value are kept."""

MAX_REASON = 500
MAX_ID = 200


def log_dead_letter(record: Record, *, service: str, reason: str, playbook: str | None = None) -> None:
    """Log which record becomes a dead letter, and why; give ``playbook`` if the key is not the playbook's name."""
    logger.error(
        "dead_letter",
        service=service,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        playbook=key_of(record)[:MAX_ID] if playbook is None else playbook,
        reason=reason,
    )


def dead_letter(
    record: Record,
    *,
    service: str,
    reason: str,
    clock: Clock,
    record_id: str = "",
    playbook: str = "",
    attempt: int | None = None,
) -> Outgoing:
    """Return the dead letter of a record; ``attempt`` is its proven number, which replaces its headers' claim."""
    claim = claimed_attempt(record.headers)
    claimed = claim.number if claim else 0
    key, value = record.key, record.value
    truncated = len(key or b"") + len(value or b"") > WRAPPABLE_BYTES
    head = HEAD_BYTES if truncated else None
    small = record.headers_to_copy  # a longer one could make the dead letter too large to be written
    letter = DeadLetter(
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        key=None if key is None else key[:head],
        value=None if value is None else value[:head],
        size=len(value or b""),
        sha256=sha256(value or b"").hexdigest(),
        truncated=truncated,
        unread=bool(record.unread),
        service=service,
        # Texts from a server or a model may hold characters that UTF-8 cannot encode.
        reason=writable(record.unread or reason)[:MAX_REASON],
        attempts=(claimed if attempt is None else attempt) + 1,
        record_id=record_id[:MAX_ID],
        playbook=playbook,
        proof=header(small, PROOF_HEADER),
        identity=given_identity(small),
        at_ms=clock.now_ms(),
    )
    return topics.DEAD_LETTERS.record(letter)


def held_back(service: str, playbook: str, seconds: float, clock: Clock) -> Outgoing:
    """Return the record that announces a pause."""
    now_ms = clock.now_ms()
    pause = HeldBack(service=service, playbook=playbook, until_ms=now_ms + int(seconds * 1000), at_ms=now_ms)
    return topics.HELD_BACK.record(pause)
