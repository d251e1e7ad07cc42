"""Records of the log: as they are read, and as they are to be written."""

from dataclasses import dataclass

UNREAD_HEADER = "combee-unread"
"""On what a log hands over in the place of records that it could not read: why not."""

PROOF_HEADER = "combee-source-proof"
"""On a trace, a reflection or an outcome: what proves the name of its source."""

IDENTITY_HEADER = "combee-identity"
"""On a reflection that is copied for a replay: the id under which it counted where it was verified."""

MAX_HEADERS, MAX_HEADER_BYTES = 16, 1_024
"""Of a record that is copied: a compressed record may have headers that fit in no other one."""


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
    def unread(self) -> str:
        """Why the log could not read what was written here; empty if it could."""
        return (dict(self.headers).get(UNREAD_HEADER) or b"").decode(errors="replace")

    @property
    def headers_to_copy(self) -> tuple[tuple[str, bytes | None], ...]:
        """What is written again with a copy of it: headers too large for ours could make the copy too large."""
        return tuple(
            (name, value)
            for name, value in self.headers[:MAX_HEADERS]
            if len(name) + len(value or b"") <= MAX_HEADER_BYTES
        )


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
