"""DeadLetter: a record that could not be used, its bytes untouched, and why."""

from typing import ClassVar

from combee_schemas.base import KIB, Message

HEAD_BYTES = 64 * KIB


class DeadLetter(Message):
    """Key: origin topic (without prefix).

    A value too large to wrap is stored as its first 64 KiB; ``sha256`` and ``size`` are of the whole.
    """

    type: ClassVar[str] = "dead-letter"

    origin_topic: str
    origin_partition: int
    origin_offset: int
    key: bytes | None = None
    value: bytes | None = None
    size: int = 0
    sha256: str = ""
    truncated: bool = False
    service: str
    reason: str
    attempts: int = 1
    record_id: str = ""
    """The reflection or trace id inside, where it could be read."""
    playbook: str = ""
    at_ms: int = 0
