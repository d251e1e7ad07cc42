"""DeadLetter: a record that could not be used, its bytes unchanged, the reason, and the decision about it."""

import re
from typing import ClassVar, Literal

from combee_schemas.base import KIB, Message, Value
from combee_schemas.marks import Hash, Name, Text, Word
from combee_schemas.records import ATTEMPT_HEADER, LETTER_HEADER, Headers, header

HEAD_BYTES = 64 * KIB


class DeadLetter(Message):
    """Key: origin topic (without prefix).

    A value too large to wrap is stored as its first 64 KiB; ``sha256`` and ``size`` are of the whole.
    """

    type: ClassVar[str] = "dead-letter"

    origin_topic: Word
    origin_partition: int
    origin_offset: int
    key: bytes | None = None
    value: bytes | None = None
    size: int = 0
    sha256: Hash = ""
    truncated: bool = False
    unread: bool = False
    """Whether the value is a batch of records that could not be read, such as one too large once decompressed."""
    service: Word
    reason: Text
    attempts: int = 1
    """Number of failures; a resent record gets this number as its attempt (attempts count from 0)."""
    record_id: Name = ""
    """Id of the reflection or trace inside, if it could be read."""
    playbook: Name = ""
    proof: bytes | None = None
    """The header that proves the record's source; a resent record gets it again."""
    identity: Name = ""
    """For a reflection copied for a replay: the id it was counted under; a resent record gets it again."""
    at_ms: int = 0


class LetterId(Value):
    """A dead letter's place in its topic, written ``0-17``."""

    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the id in its written form."""
        return f"{self.partition}-{self.offset}"


def letter_id(text: str) -> LetterId | None:
    """Return the id in a text such as ``0-17``; None if the text is not one."""
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,18})", text)
    return LetterId(partition=int(match[1]), offset=int(match[2])) if match else None


class Resolution(Message):
    """An operator's decision about a dead letter, in the same topic under the same key; the first decision holds.

    It names the letter's original record, so that it can be understood without the letter.
    """

    type: ClassVar[str] = "resolution"

    letter: LetterId
    decision: Literal["retried", "dropped"]
    origin_topic: Word
    origin_partition: int
    origin_offset: int
    record_id: Name = ""
    playbook: Name = ""
    attempt: int = 0
    """Of ``retried``: the record's new attempt."""
    retry_partition: int = -1
    retry_offset: int = -1
    """Of ``retried``: the record's new offset in ``origin_topic``."""
    note: Text = ""
    at_ms: int = 0


class HeldBack(Message):
    """A service pauses a playbook because of too many dead letters; key: its type."""

    type: ClassVar[str] = "held-back"

    service: Word
    playbook: Name = ""
    """The paused playbook; empty: records whose playbook cannot be read."""
    until_ms: int = 0
    at_ms: int = 0


def origin_of(letter: DeadLetter | Resolution) -> tuple[str, int, int]:
    """Return topic, partition and offset of the original record of a dead letter or a decision."""
    return letter.origin_topic, letter.origin_partition, letter.origin_offset


class Attempt(Value):
    """Resend claimed by a record's headers: the attempt, and the dead letter that caused it."""

    number: int
    letter: LetterId


def attempt_headers(attempt: Attempt) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a resent record."""
    return (
        (ATTEMPT_HEADER, str(attempt.number).encode()),
        (LETTER_HEADER, str(attempt.letter).encode()),
    )


def claimed_attempt(headers: Headers) -> Attempt | None:
    """Return the claim in headers; None for a first attempt, and for unreadable claims."""
    number = re.fullmatch(r"[1-9][0-9]{0,3}", _text(headers, ATTEMPT_HEADER))
    letter = letter_id(_text(headers, LETTER_HEADER))
    return Attempt(number=int(number[0]), letter=letter) if number and letter else None


def _text(headers: Headers, name: str) -> str:
    return (header(headers, name) or b"").decode("ascii", errors="replace")
