"""Records of the log: as they are read, and as they are to be written."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from combee_schemas.base import Message

UNREAD_HEADER = "combee-unread"
"""On what a log hands over in the place of records that it could not read: why not."""

PROOF_HEADER = "combee-source-proof"
"""On a trace, a reflection or an outcome: what proves the name of its source."""

IDENTITY_HEADER = "combee-identity"
"""On a reflection that is copied for a replay: the id under which it counted where it was verified."""

ATTEMPT_HEADER, LETTER_HEADER = "combee-attempt", "combee-dead-letter"
"""On a record that is sent again: which attempt it is (0 is the first), and the dead letter it was taken from."""

OURS = (PROOF_HEADER, IDENTITY_HEADER, ATTEMPT_HEADER, LETTER_HEADER, UNREAD_HEADER)
MAX_HEADERS, MAX_HEADER_BYTES, MAX_KEY_BYTES = 16, 1_024, 1_024
"""Of a record that is copied. A compressed record may have a key, a value and headers that fit in no other one."""

Headers = Collection[tuple[str, bytes | None]]
"""Kafka knows headers without a value, and several of one name."""


def header(headers: Headers, name: str) -> bytes | None:
    """Return the value of a header, of several of one name that of the last, as Kafka's own clients do.

    None: there is none, or it has no value.
    """
    return dict(headers).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """One partition of a topic, by its name without prefix."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def source(self) -> TopicPartition:
        """Where it was read from."""
        return TopicPartition(topic=self.topic, partition=self.partition)

    @property
    def size(self) -> int:
        """How many bytes key, value and headers have."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def unread(self) -> str:
        """Why the log could not read what was written here; empty if it could."""
        return (header(self.headers, UNREAD_HEADER) or b"").decode(errors="replace")

    @property
    def headers_to_copy(self) -> tuple[tuple[str, bytes | None], ...]:
        """What is written again with a copy of it: ours first, each as it counts, and none that is large."""
        counting = dict(self.headers)
        names = (*(name for name in OURS if name in counting), *(n for n in counting if n not in OURS))
        small = (
            (name, counting[name])
            for name in names
            if len(name.encode()) + len(counting[name] or b"") <= MAX_HEADER_BYTES
        )
        return tuple(small)[:MAX_HEADERS]

    @property
    def to_copy(self) -> "Record":
        """What of it fits in a record again: no message of ours has a longer key or value.

        A longer key is cut: by it nobody finds anything. A longer value is of no use, and neither is an empty one.
        """
        is_long = len(self.value or b"") > Message.max_bytes
        key = None if self.key is None else self.key[:MAX_KEY_BYTES]
        return replace(self, key=key, value=b"" if is_long else self.value, headers=self.headers_to_copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One record to write; without ``partition`` the key decides (``topics.partition_of``)."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """When it was written first, of a record that is copied; None: now."""
