"""An archive's file: written completely or not at all; read record by record, with its hash checked at the end."""

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Self

from combee_schemas.archive import (
    DIGEST,
    FORMAT,
    FRAME,
    HEADER,
    MAGIC,
    RECORD,
    TOTALS,
    ArchiveError,
    ArchiveHeader,
    ArchiveTotals,
    frame,
    frame_head,
    read_record,
    record_body,
)
from combee_schemas.codec import CodecError, decode, encode
from combee_schemas.errors import OtherVersionError
from combee_schemas.records import Record

UNREADABLE = (CodecError, EOFError, OSError, zlib.error)
PRIVATE = 0o600


class ArchiveWriter:
    """Writes the frames of one archive."""

    def __init__(self, file: BinaryIO, header: ArchiveHeader) -> None:
        self._file = file
        self._hash = sha256()
        self._numbers = {topic.name: number for number, topic in enumerate(header.topics)}
        self.records = [0] * len(header.topics)
        """Number of records written, by topic."""
        self._put(MAGIC + frame(HEADER, encode(header)))

    def add(self, record: Record) -> None:
        """Write a record, cut to what can be written to a topic again."""
        number = self._numbers[record.topic]
        self._put(frame(RECORD, record_body(number, record.to_copy)))
        self.records[number] += 1

    def finish(self, firsts: tuple[tuple[int, ...], ...]) -> str:
        """Write the totals (``firsts`` as in ``ArchiveTotals``); return the archive's SHA-256."""
        self._put(frame(TOTALS, encode(ArchiveTotals(records=tuple(self.records), firsts=firsts))))
        digest = self._hash.copy()
        self._put(frame(DIGEST, digest.digest()))
        return digest.hexdigest()

    def _put(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._file.write(raw)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a compressed file to write; it is moved to ``path`` when the block ends without an error.

    So no part of a file is ever at ``path``, and the whole file is on disk once it is there.

    Raises
    ------
    ArchiveError
        If there is a file already, or another process is writing it.
    """
    _refuse_present(path)
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArchiveError(f"{path} is being written by another process") from error
        _refuse_present(path)  # again: the lock's former holder may have finished this file
        file.truncate()  # a killed process may have left a part
        try:
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # it has the needed methods of a BinaryIO
            file.flush()
            os.fsync(file.fileno())
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _refuse_present(path: Path) -> None:
    if path.exists():
        raise ArchiveError(f"{path} is there already: choose another name, or remove it first")


class ArchiveReader:
    """Reads an archive once: the header at once, then the records; totals and hash are checked at the end.

    Use it as a context manager. Every defect of the file raises ``ArchiveError``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = sha256()
        try:
            self._file = gzip.open(path, "rb")  # noqa: SIM115 - this class is the context manager
            if self._read(len(MAGIC)) != MAGIC:
                raise CodecError("it does not begin like an archive")
            self.header = decode(self._expect(HEADER), ArchiveHeader)
            self._check_header()
        except OtherVersionError as error:
            raise ArchiveError(
                f"{path} has another format than {FORMAT}, which this release reads: restore it with the release that"
                " wrote it"
            ) from error
        except UNREADABLE as error:
            raise ArchiveError(f"{path} is not an archive of Combee: {_reason(error)}") from error
        self.totals: ArchiveTotals | None = None
        """Set once all records have been read."""
        self.sha256 = ""
        """Set with the totals."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def records(self) -> Iterator[Record]:
        """Yield the records, then check that the archive is complete and unaltered."""
        try:
            yield from self._records()
        except UNREADABLE as error:
            raise ArchiveError(
                f"{self._path} is cut off or was altered: {_reason(error)}. Use another copy of it"
            ) from error

    def _check_header(self) -> None:
        partitions = {topic.name: topic.partitions for topic in self.header.topics}
        if len(partitions) < len(self.header.topics) or len(partitions) > 1 << 8:
            raise CodecError("a topic appears twice, or there are too many topics")
        if any(len(topic.ends) != topic.partitions for topic in self.header.topics):
            raise CodecError("the number of a topic's ends differs from that of its partitions")
        if any(len(group.offsets) != partitions.get(group.topic) for group in self.header.positions):
            raise CodecError("the number of a group's positions differs from that of the topic's partitions")

    def _records(self) -> Iterator[Record]:
        names = [topic.name for topic in self.header.topics]
        counts, last = [0] * len(names), (-1, -1, -1)
        while True:
            kind, body = self._frame()
            if kind != RECORD:
                break
            number, record = read_record(body, names)
            place = (number, record.partition, record.offset)
            if place <= last or record.partition >= self.header.topics[number].partitions:
                raise CodecError(f"a record of {record.topic} is out of order, or on no partition of it")
            last = place
            counts[number] += 1
            yield record
        if kind != TOTALS:
            raise CodecError("the totals are missing")
        totals = decode(body, ArchiveTotals)
        if totals.records != tuple(counts):
            raise CodecError(f"it holds {sum(counts)} records instead of {sum(totals.records)}")
        if [len(firsts) for firsts in totals.firsts] != [topic.partitions for topic in self.header.topics]:
            raise CodecError("the number of a topic's first offsets differs from that of its partitions")
        digest = self._hash.digest()
        if self._expect(DIGEST) != digest:
            raise CodecError("its SHA-256 does not match")
        if self._file.read(1):
            raise CodecError("something follows its end")
        self.totals, self.sha256 = totals, digest.hex()

    def _expect(self, kind: bytes) -> bytes:
        actual, body = self._frame()
        if actual != kind:
            raise CodecError(f"a frame of kind {kind!r} is missing")
        return body

    def _frame(self) -> tuple[bytes, bytes]:
        kind, length = frame_head(self._read(FRAME.size))
        return kind, self._read(length)

    def _read(self, length: int) -> bytes:
        raw = self._file.read(length)
        if len(raw) < length:
            raise CodecError("it ends too early")
        self._hash.update(raw)
        return raw


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
