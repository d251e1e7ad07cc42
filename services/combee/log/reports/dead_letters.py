"""A dead letter with its body, or its payload as text and first bytes, and its decision; no secrets; pure."""

from typing import Any

from combee.core.log.dead_letters.subject import message_in
from combee.core.text.redact import redacted, redacted_deep
from combee_schemas import topics
from combee_schemas.base import Value
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution

HEAD_BYTES = 256
TEXT_CHARS = 4_000


class Place(Value):
    """A record's place in the log."""

    topic: str
    partition: int
    offset: int

    @property
    def text(self) -> str:
        """The same for people."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def _origin(record: DeadLetter | Resolution) -> Place:
    return Place(topic=record.origin_topic, partition=record.origin_partition, offset=record.origin_offset)


class ResolutionReport(Value):
    """A decision; ``attempt`` and ``to`` are set for a retried record alone."""

    decision: str
    note: str
    at_ms: int
    attempt: int = 0
    to: Place | None = None


def _decision(resolution: Resolution) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "decision": resolution.decision,
        "note": redacted(resolution.note),
        "at_ms": resolution.at_ms,
    }
    if resolution.decision == "retried":
        retried = {"partition": resolution.retry_partition, "offset": resolution.retry_offset}
        shown |= {"attempt": resolution.attempt, "to": _origin(resolution).model_copy(update=retried)}
    return shown


class _Named(Value):
    id: str
    record_id: str
    playbook: str
    origin: Place


class DecidedReport(ResolutionReport, _Named):
    """A decision with its dead letter."""


def decided_report(resolution: Resolution) -> DecidedReport:
    """Return the report on a decision."""
    return DecidedReport(
        id=str(resolution.letter),
        record_id=redacted(resolution.record_id),
        playbook=resolution.playbook,
        origin=_origin(resolution),
        **_decision(resolution),
    )


class LetterReport(Value):
    """A dead letter without its value."""

    id: str
    state: str
    """open, retried or dropped."""
    origin: Place
    service: str
    reason: str
    attempts: int
    record_id: str
    playbook: str
    size: int
    sha256: str
    truncated: bool
    at_ms: int
    resolution: ResolutionReport | None


class LetterInFull(LetterReport):
    """A dead letter with its body decoded, or else the head of its bytes."""

    key: str | None
    body: Any
    text: str | None
    head_hex: str | None


def letter_report(identity: LetterId, letter: DeadLetter, resolution: Resolution | None) -> LetterReport:
    """Return the report on a dead letter."""
    return LetterReport(
        id=str(identity),
        state=resolution.decision if resolution else "open",
        origin=_origin(letter),
        service=letter.service,
        reason=redacted(letter.reason),
        attempts=letter.attempts,
        record_id=redacted(letter.record_id),
        playbook=letter.playbook,
        size=letter.size,
        sha256=letter.sha256,
        truncated=letter.truncated,
        at_ms=letter.at_ms,
        resolution=ResolutionReport(**_decision(resolution)) if resolution else None,
    )


def letter_in_full(
    identity: LetterId, letter: DeadLetter, resolution: Resolution | None, *, is_read: bool
) -> LetterInFull:
    """Return the report on a dead letter with its body; ``is_read``: the letter itself could be read."""
    body = _body(letter) if is_read else None
    text, head_hex = (None, None) if body is not None else _head(letter.value)
    return LetterInFull(
        **dict(letter_report(identity, letter, resolution)),
        key=redacted((letter.key or b"").decode(errors="replace")) if is_read else None,
        body=body,
        text=text,
        head_hex=head_hex,
    )


def _body(letter: DeadLetter) -> object:
    kind = next((topic.message for topic in topics.TOPICS if topic.name == letter.origin_topic), None)
    message = message_in(letter, kind)
    return redacted_deep(message.model_dump(mode="json")) if message else None


def _head(value: bytes | None) -> tuple[str, str]:
    """Return a payload that is no message as text, and its first bytes in hex, with secrets redacted."""
    hidden = redacted((value or b"").decode("latin-1"))
    text = redacted((value or b"").decode(errors="replace"))
    return text[:TEXT_CHARS], hidden.encode("latin-1")[:HEAD_BYTES].hex(" ")
