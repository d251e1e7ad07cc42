"""A dead letter as data, with its body, or its payload as text and its first bytes; without secrets."""

from collections.abc import Mapping
from typing import Any

from combee.core.log.dead_letters.subject import message_in
from combee.core.text.redact import redacted, redacted_deep
from combee.log.inspection.dead_letters import StoredLetter
from combee_schemas import topics
from combee_schemas.dead_letter import DeadLetter, Resolution

HEAD_BYTES = 256
TEXT_CHARS = 4_000


def summary(stored: StoredLetter, resolution: Resolution | None) -> dict[str, Any]:
    """Return a dead letter without its value."""
    letter = stored.letter or _unreadable(stored)
    return {
        "id": str(stored.id),
        "state": resolution.decision if resolution else "open",
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
        "resolution": decision(resolution) if resolution else None,
    }


def decision(resolution: Resolution) -> dict[str, Any]:
    """Return a decision, its time, and the place of a retried record."""
    shown: dict[str, Any] = {
        "decision": resolution.decision,
        "note": redacted(resolution.note),
        "at_ms": resolution.at_ms,
    }
    if resolution.decision == "retried":
        shown["attempt"] = resolution.attempt
        shown["to"] = {
            "topic": resolution.origin_topic,
            "partition": resolution.retry_partition,
            "offset": resolution.retry_offset,
        }
    return shown


def place_text(place: Mapping[str, Any]) -> str:
    """Return a place in the log for people."""
    return f"{place['topic']}[{place['partition']}]@{place['offset']}"


def _unreadable(stored: StoredLetter) -> DeadLetter:
    record = stored.record
    return DeadLetter(
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        service="",
        reason="this dead letter itself cannot be read",
        value=record.value,
        size=len(record.value or b""),
        at_ms=record.timestamp_ms,
    )


def in_full(stored: StoredLetter, resolution: Resolution | None) -> dict[str, Any]:
    """Return a dead letter with its body decoded, or the head of its bytes."""
    shown = summary(stored, resolution)
    letter = stored.letter
    if letter is None:
        return {**shown, "key": None, "body": None, **_head(stored.record.value)}
    body = _body(letter)
    return {
        **shown,
        "key": redacted((letter.key or b"").decode(errors="replace")),
        "body": body,
        **({"text": None, "head_hex": None} if body is not None else _head(letter.value)),
    }


def _body(letter: DeadLetter) -> object:
    kind = next((topic.message for topic in topics.TOPICS if topic.name == letter.origin_topic), None)
    message = message_in(letter, kind)
    return redacted_deep(message.model_dump(mode="json")) if message else None


def _head(value: bytes | None) -> dict[str, str]:
    """Return a payload that is no message as text, and its first bytes in hex, with secrets redacted."""
    hidden = redacted((value or b"").decode("latin-1"))
    text = redacted((value or b"").decode(errors="replace"))
    return {"text": text[:TEXT_CHARS], "head_hex": hidden.encode("latin-1")[:HEAD_BYTES].hex(" ")}
