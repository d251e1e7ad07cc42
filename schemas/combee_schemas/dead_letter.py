"""DeadLetter: a record that could not be used, its bytes untouched, and why; and what was done about it."""

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
    """Whether it is a batch of records that could not be read, such as one that is too large once decompressed."""
    service: Word
    reason: Text
    attempts: int = 1
    """How often it has failed; sent again, the record is that attempt (they count from 0)."""
    record_id: Name = ""
    """The reflection or trace id inside, where it could be read."""
    playbook: Name = ""
    proof: bytes | None = None
    """The header that proves the record's source; sent again, it has it again."""
    identity: Name = ""
    """Of a reflection that was copied for a replay, the id that it counted under; sent again, it says so again."""
    at_ms: int = 0


class LetterId(Value):
    """Where a dead letter stands in its topic; people write it ``0-17``."""

    partition: int
    offset: int

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.partition}-{self.offset}"


def letter_id(text: str) -> LetterId | None:
    """Return the id in a text such as ``0-17``; None if it is none."""
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,18})", text)
    return LetterId(partition=int(match[1]), offset=int(match[2])) if match else None


class Resolution(Message):
    """An operator's decision about a dead letter, in the same topic under the same key; the first one holds.

    It names the record that the letter was about, so that it can be understood without the letter.
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
    """Of ``retried``: which attempt the record is now."""
    retry_partition: int = -1
    retry_offset: int = -1
    """Of ``retried``: where in ``origin_topic`` the record stands again."""
    note: Text = ""
    at_ms: int = 0


class HeldBack(Message):
    """A service holds a playbook's records back for a while, because of too many dead letters; key: its type."""

    type: ClassVar[str] = "held-back"

    service: Word
    playbook: Name = ""
    """Empty: records of which nobody can read whose they are."""
    until_ms: int = 0
    at_ms: int = 0


def origin_of(said: DeadLetter | Resolution) -> tuple[str, int, int]:
    """Return topic, partition and offset of the record that a dead letter, or a decision on one, is about."""
    return said.origin_topic, said.origin_partition, said.origin_offset


class Attempt(Value):
    """What a record's headers claim: it is sent again, for so many times, because of this dead letter."""

    number: int
    letter: LetterId


def attempt_headers(attempt: Attempt) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record that is sent again."""
    return (
        (ATTEMPT_HEADER, str(attempt.number).encode()),
        (LETTER_HEADER, str(attempt.letter).encode()),
    )


def claimed_attempt(headers: Headers) -> Attempt | None:
    """Return what headers claim; None for a first attempt, and for claims that cannot be read."""
    number = re.fullmatch(r"[1-9][0-9]{0,3}", _text(headers, ATTEMPT_HEADER))
    letter = letter_id(_text(headers, LETTER_HEADER))
    return Attempt(number=int(number[0]), letter=letter) if number and letter else None


def _text(headers: Headers, name: str) -> str:
    return (header(headers, name) or b"").decode("ascii", errors="replace")
