"""A dead letter as data: what is known about it, its body or the head of its bytes; without secrets."""

from typing import Any

from combee.core.redact import redacted, redacted_deep
from combee.ports import Record
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode
from combee_schemas.dead_letter import DeadLetter

HEAD_BYTES = 256


def summary(record: Record) -> dict[str, Any]:
    """Return a dead letter without its value."""
    identity = f"{record.partition}-{record.offset}"
    try:
        letter = decode(record.value, DeadLetter)
    except CodecError as error:
        letter = DeadLetter(
            origin_topic=record.topic,
            origin_partition=record.partition,
            origin_offset=record.offset,
            service="",
            reason=f"this dead letter itself cannot be read: {error}",
            value=record.value,
            size=len(record.value or b""),
            at_ms=record.timestamp_ms,
        )
    return {
        "id": identity,
        "origin": {
            "topic": letter.origin_topic,
            "partition": letter.origin_partition,
            "offset": letter.origin_offset,
        },
        "service": letter.service,
        "reason": redacted(letter.reason),
        "attempts": letter.attempts,
        "record_id": redacted(letter.record_id),
        "playbook": letter.playbook,
        "size": letter.size,
        "sha256": letter.sha256,
        "truncated": letter.truncated,
        "at_ms": letter.at_ms,
    }


def in_full(record: Record) -> dict[str, Any]:
    """Return a dead letter with its body decoded, or the head of its bytes."""
    shown = summary(record)
    try:
        letter = decode(record.value, DeadLetter)
    except CodecError:
        return {**shown, "key": None, "body": None, "head_hex": _head(record.value)}
    body = _body(letter)
    return {
        **shown,
        "key": redacted((letter.key or b"").decode(errors="replace")),
        "body": body,
        "head_hex": None if body is not None else _head(letter.value),
    }


def _body(letter: DeadLetter) -> object:
    kind = next((one.message for one in topics.TOPICS if one.name == letter.origin_topic), None)
    if kind is None or letter.truncated:
        return None
    try:
        return redacted_deep(decode(letter.value, kind).model_dump(mode="json"))
    except CodecError:
        return None


def _head(value: bytes | None) -> str:
    """Return the first bytes in hex; a secret in them would be as readable there as anywhere."""
    hidden = redacted((value or b"").decode("latin-1"))
    return hidden.encode("latin-1")[:HEAD_BYTES].hex(" ")
