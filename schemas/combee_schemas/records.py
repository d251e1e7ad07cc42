"""Records of the log, as they are read and as they are written."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from combee_schemas.base import Message

UNREAD_HEADER = "combee-unread"
"""Header of a placeholder for records that the log could not read: the reason."""

PROOF_HEADER = "combee-source-proof"
"""Header of a trace, a reflection or an outcome: proof of its source's name."""

IDENTITY_HEADER = "combee-identity"
"""Header of a reflection copied for a replay: the id under which the verified original counted."""

ATTEMPT_HEADER, LETTER_HEADER = "combee-attempt", "combee-dead-letter"
"""Headers of a resent record: its attempt (0 is the first), and the dead letter that held it."""

OURS = (PROOF_HEADER, IDENTITY_HEADER, ATTEMPT_HEADER, LETTER_HEADER, UNREAD_HEADER)
MAX_HEADERS, MAX_HEADER_BYTES, MAX_KEY_BYTES = 16, 1_024, 1_024
"""Limits of a copied record. A compressed record may have a key, a value and headers that fit in no other record."""

Headers = Collection[tuple[str, bytes | None]]
"""Kafka allows headers without a value, and several with one name."""


def header(headers: Headers, name: str) -> bytes | None:
    """Return the value of a header, or of the last one if several have the name, like Kafka's own clients.

    None: there is no such header, or it has no value.
    """
    return dict(headers).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """One partition of a topic, by its name without prefix."""

    topic: str
    partition: int


OBJECT_BYTES = 200
"""Approximate memory of a record in addition to its key, value and headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def source(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(topic=self.topic, partition=self.partition)

    @property
    def size(self) -> int:
        """Size of key, value and headers in bytes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def memory(self) -> int:
        """Approximate bytes of the record in memory; an empty record takes some, too."""
        return OBJECT_BYTES + self.size

    @property
    def unread(self) -> str:
        """Why the log could not read the record; empty if it could."""
        return (header(self.headers, UNREAD_HEADER) or b"").decode(errors="replace")

    @property
    def headers_to_copy(self) -> tuple[tuple[str, bytes | None], ...]:
        """Headers to write again with a copy: Combee's own first, with their effective values; no large ones."""
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
        """Key and value to write again with a copy: Combee's messages have no longer ones.

        A longer key is cut, because nothing is looked up by it. Too long and empty values are left out.
        """
        is_long = len(self.value or b"") > Message.max_bytes
        key = None if self.key is None else self.key[:MAX_KEY_BYTES]
        return replace(self, key=key, value=b"" if is_long else self.value, headers=self.headers_to_copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to write; without ``partition`` the key decides (``topics.partition_of``)."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """Original timestamp of a copied record; None: now."""
