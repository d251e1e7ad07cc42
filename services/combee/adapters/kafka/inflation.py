"""Bounded decompression: compressed batches are inflated here and nowhere else (docs/design/adr/0012).

aiokafka inflates whatever it fetches, however large it becomes, and fails again and again at a batch it cannot read.
Here such a batch becomes one record that holds its raw bytes, and reading goes on with the next batch.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from mmap import mmap
from typing import Any

from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from combee_schemas.records import UNREAD_HEADER

MAX_INFLATED_BYTES = 8 * 1024 * 1024
"""Maximum inflated bytes of one batch, and of a fetched partition in one go."""

# Offsets in Kafka's record batch format, the same in all versions up to the magic byte.
LENGTH_AT, MAGIC_AT, OLD_ATTRIBUTES_AT, ATTRIBUTES_AT, HEADER_BYTES = 8, 16, 17, 22, 61
OVERHEAD_BYTES = 12
CODEC_BITS = 0x07
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16

# cramjam's only error derives from Exception alone.
CODEC_ERRORS: tuple[type[Exception], ...] = (codec.cramjam.DecompressionError,) if codec.cramjam else ()
UNREADABLE = (CorruptRecordException, ValueError, IndexError, EOFError, OSError, zlib.error, struct.error)


class InflationError(ValueError):
    """A batch is refused before it is inflated whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """One record in place of a batch, at the batch's last offset; it holds the batch's raw bytes."""

    offset: int
    timestamp: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_type: int = 0
    key: None = None
    checksum: None = None


class BoundedRecords:
    """aiokafka's ``MemoryRecords``: the batches fetched of one partition."""

    def __init__(self, raw: bytes) -> None:
        self._raw = memoryview(raw)
        self._batches = MemoryRecords(raw)
        self._at = 0
        self.inflated_bytes = 0

    def size_in_bytes(self) -> int:
        """Return the number of fetched bytes."""
        return len(self._raw)

    def has_next(self) -> bool:
        """Return whether there is a batch; batches beyond the bound are fetched again."""
        return self.inflated_bytes < MAX_INFLATED_BYTES and bool(self._batches.has_next())

    def next_batch(self) -> "BoundedBatch":
        """Return the next batch, not inflated yet."""
        batch = self._batches.next_batch()
        (length,) = struct.unpack_from(">i", self._raw, self._at + LENGTH_AT)
        begin, self._at = self._at, self._at + OVERHEAD_BYTES + length
        return BoundedBatch(batch, self._raw[begin : self._at], self)


class BoundedBatch:
    """One of aiokafka's batches, with bounded decompression of its records."""

    def __init__(self, batch: Any, raw: memoryview, records: BoundedRecords) -> None:
        self._batch = batch
        self._raw = raw
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # the marker of a control batch

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._readable()
        except (*UNREADABLE, *CODEC_ERRORS) as error:
            yield self._unread(error)

    def _readable(self) -> Any:
        old = self._raw[MAGIC_AT] < 2  # noqa: PLR2004 - Kafka's number for the format since 0.11
        number = self._raw[OLD_ATTRIBUTES_AT if old else ATTRIBUTES_AT] & CODEC_BITS
        if number not in INFLATE or (number > 1 and not codec.cramjam):
            return self._batch  # aiokafka names the missing library
        if old:
            raise InflationError("compressed in a format older than Kafka 0.11")
        inflated = INFLATE[number](bytes(self._raw[HEADER_BYTES:]))
        self._records.inflated_bytes += len(inflated)
        header = bytearray(self._raw[:HEADER_BYTES])
        header[ATTRIBUTES_AT] &= ~CODEC_BITS
        return DefaultRecordBatch(b"".join((header, inflated)))

    def _unread(self, error: Exception) -> Unread:
        reason = f"{len(self._raw)} bytes of batch cannot be read: {type(error).__name__}: {error}"
        return Unread(
            offset=self._batch.next_offset - 1,
            timestamp=getattr(self._batch, "max_timestamp", 0),
            value=bytes(self._raw),
            headers=((UNREAD_HEADER, reason.encode(errors="replace")),),
        )


def _gzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        inflated = file.read(MAX_INFLATED_BYTES + 1)
    if len(inflated) > MAX_INFLATED_BYTES:
        raise _too_large("gzip")
    return inflated


def _snappy(data: bytes) -> bytes:
    blocks = list(_blocks(data))
    if sum(map(codec.cramjam.snappy.decompress_raw_len, blocks)) > MAX_INFLATED_BYTES:
        raise _too_large("snappy")
    return b"".join(bytes(codec.cramjam.snappy.decompress_raw(block)) for block in blocks)


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the raw blocks of snappy data: one, or as Java's library frames them."""
    if not data.startswith(XERIAL):
        yield data
        return
    at = XERIAL_HEADER_BYTES
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _into(name: str) -> Callable[[bytes], memoryview]:
    """Return the inflating function of ``name``; its buffer costs memory only for written parts."""

    def inflate(data: bytes) -> memoryview:
        room = memoryview(mmap(-1, MAX_INFLATED_BYTES))
        try:
            size: int = getattr(codec.cramjam, name).decompress_into(data, room)
        except CODEC_ERRORS as error:
            if "whole buffer" in str(error):
                raise _too_large(name) from error
            raise
        return room[:size]

    return inflate


def _too_large(name: str) -> InflationError:
    return InflationError(f"{name} inflates it beyond {MAX_INFLATED_BYTES} bytes")


INFLATE: Mapping[int, Callable[[bytes], bytes | memoryview]] = {
    1: _gzip,
    2: _snappy,
    3: _into("lz4"),
    4: _into("zstd"),
}
"""Inflating functions of Kafka's codecs, by number."""


def bound_inflation() -> None:
    """Bound decompression in every aiokafka consumer of this process, Faust's too."""
    fetcher.MemoryRecords = BoundedRecords
