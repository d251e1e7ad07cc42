"""The archive file: records of topics, with everything needed to restore them elsewhere.

The file is gzip. Unpacked it is ``MAGIC``, then frames: one byte for the kind, four bytes of length (big endian), the
body. The frames are the header, the records in the header's order of topics (partitions and offsets rise within
each), the totals, and the SHA-256 of all bytes before that last frame. docs/reference/archive.md describes the format
for people and other programs.
"""

import struct
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from combee_schemas.base import KIB, Message, Value
from combee_schemas.codec import CodecError
from combee_schemas.errors import FatalError
from combee_schemas.marks import Hash, Name, Word
from combee_schemas.records import Record

MAGIC = b"combee-archive\n"
HEADER, RECORD, TOTALS, DIGEST = b"H", b"R", b"T", b"D"
FRAME = struct.Struct(">cI")
MAX_FRAME_BYTES = 16 * KIB * KIB
"""Maximum frame size. Longer frames are refused unread; the largest record of Kafka's defaults is a sixteenth."""
FORMAT = 3
"""Format number of topics and archives; it rises when older records can no longer be read, or change meaning."""
NONE = -1
"""A length of −1 marks a missing key or value; a position of −1 a group without a committed offset here."""

_RECORD = struct.Struct(">BIqqiiH")
_NAME, _LENGTH = struct.Struct(">H"), struct.Struct(">i")


class ArchiveError(FatalError):
    """The file is not an archive, is incomplete, or was altered."""


class TopicContents(Value):
    """A topic as it was archived."""

    name: Word
    partitions: int = Field(ge=1, le=10_000)
    config: dict[Word, Word] = Field(default_factory=dict)
    """Broker settings that Combee sets, as they stood on the archived topic."""
    ends: tuple[int, ...]
    """Per partition, the offset at which the archive ends; later records are not part of it."""


class GroupPositions(Value):
    """How far a consumer group had committed a topic, by partition."""

    group: Name
    topic: Word
    offsets: tuple[int, ...]


class ArchiveHeader(Message):
    """What the file holds; its version is the format's."""

    type: ClassVar[str] = "archive"
    version_number: ClassVar[int] = FORMAT

    prefix: Name
    playbook: Name = ""
    """The only playbook in the file; empty: all playbooks are in it."""
    topics: tuple[TopicContents, ...]
    positions: tuple[GroupPositions, ...] = ()
    messages: dict[Word, int] = Field(default_factory=dict)
    """Newest version of each message type that the writer knew."""
    cut_at_ms: int
    written_by: Word = ""
    """Version of Combee that wrote the file."""


class ArchiveTotals(Message):
    """Counts that are known only at the end."""

    type: ClassVar[str] = "archive-totals"
    PLAYBOOK: ClassVar[str] = ""

    records: tuple[int, ...]
    """Number of records per topic, in the header's order."""
    firsts: tuple[tuple[int, ...], ...]
    """Per topic and partition, the first offset still retained after all records were read."""


class Restoring(Message):
    """The first record of topic ``restoring``: no service starts under that prefix.

    The topic exists while an archive is being restored into the prefix, and while a prefix whose contents were moved
    is being deleted.
    """

    type: ClassVar[str] = "restoring"
    PLAYBOOK: ClassVar[str] = ""

    archive: Hash
    """SHA-256 of the archive."""
    later_ms: int = 0
    """Milliseconds added to the archived records' timestamps."""
    erased_from: Name = ""
    """The prefix whose contents were copied here after an erasure."""
    moved_to: Name = ""
    """The prefix that holds the complete remaining contents; the prefix with this record is being deleted."""


def frame(kind: bytes, body: bytes) -> bytes:
    """Return a frame.

    Raises
    ------
    ArchiveError
        If the body is longer than readers accept.
    """
    if len(body) > MAX_FRAME_BYTES:
        raise ArchiveError(f"a record of {len(body)} bytes cannot be archived, only up to {MAX_FRAME_BYTES}")
    return FRAME.pack(kind, len(body)) + body


def frame_head(raw: bytes) -> tuple[bytes, int]:
    """Return kind and length of a frame from its first bytes.

    Raises
    ------
    CodecError
        If the bytes do not begin a frame.
    """
    if len(raw) < FRAME.size:
        raise CodecError("it ends within a frame")
    kind, length = FRAME.unpack(raw)
    if kind not in {HEADER, RECORD, TOTALS, DIGEST}:
        raise CodecError(f"there are no frames of kind {kind!r}")
    if length > MAX_FRAME_BYTES:
        raise CodecError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return kind, length


def record_body(topic: int, record: Record) -> bytes:
    """Return a record's frame body; ``topic`` is its topic's number in the header."""
    key, value = record.key, record.value
    parts = [
        _RECORD.pack(
            topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            NONE if key is None else len(key),
            NONE if value is None else len(value),
            len(record.headers),
        ),
        key or b"",
        value or b"",
    ]
    for name, content in record.headers:
        raw = name.encode()
        parts += (
            _NAME.pack(len(raw)),
            raw,
            _LENGTH.pack(NONE if content is None else len(content)),
            content or b"",
        )
    return b"".join(parts)


def read_record(body: bytes, topics: Sequence[str]) -> tuple[int, Record]:
    """Return the number of a record's topic, and the record.

    Raises
    ------
    CodecError
        If the body is not a record.
    """
    fields = _Fields(body)
    topic, partition, offset, timestamp_ms, key_length, value_length, headers = fields.unpack(_RECORD)
    if topic >= len(topics) or offset < 0:
        raise CodecError(f"there is no topic {topic}, or no offset {offset}")
    record = Record(
        topic=topics[topic],
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=fields.content(key_length),
        value=fields.content(value_length),
        headers=tuple(fields.header() for _ in range(headers)),
    )
    if fields.rest:
        raise CodecError(f"{fields.rest} bytes follow a record in its frame")
    return topic, record


class _Fields:
    """Reads a record's bytes from the front."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def rest(self) -> int:
        return len(self._raw) - self._at

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._take(form.size))

    def content(self, length: int) -> bytes | None:
        return None if length == NONE else self._take(length)

    def header(self) -> tuple[str, bytes | None]:
        (length,) = self.unpack(_NAME)
        try:
            name = self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CodecError("the name of a header is no UTF-8") from error
        (length,) = self.unpack(_LENGTH)
        return name, self.content(length)

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= self.rest:
            raise CodecError("a record ends within a field")
        self._at += length
        return self._raw[self._at - length : self._at]
