"""What a broker's data directory holds: raw bytes of its files, and records of segments, decompressed."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from combee.adapters.kafka.inflation import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    HEADER_BYTES,
    INFLATE,
    LENGTH_AT,
    NAMES,
    OVERHEAD_BYTES,
)


def named(folder: Path, needle: bytes, prefix: str) -> set[tuple[str, str]]:
    """Return the topics whose files hold a text, whatever its case, each with the codec that hides it.

    Looked at are the broker's own topics and those whose prefix begins so: other tests have theirs beside them.
    """
    return {
        (_topic(file), codec)
        for file in _files(folder)
        if _topic(file).startswith((prefix, "__"))
        for codec, raw in contents(file)
        if needle.lower() in raw.lower()
    }


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files; a directory that the broker deletes meanwhile is passed over, as ``rglob`` does not."""
    return (Path(inside, name) for inside, _, names in os.walk(folder) for name in names)


def _topic(file: Path) -> str:
    """Return the topic whose partition a file is of; directories that wait for their deletion keep its name."""
    return file.parent.name


def contents(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield a file's bytes, and those of each compressed batch in it, each with the codec that hid them."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:  # the broker deleted it meanwhile
        return
    yield "none", raw
    if ".log" in file.name and "-" in file.parent.name:
        yield from _batches(raw)


def _batches(raw: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at + HEADER_BYTES <= len(raw):
        (length,) = struct.unpack_from(">i", raw, at + LENGTH_AT)
        end = at + OVERHEAD_BYTES + length
        if length <= 0 or end > len(raw):
            return  # preallocated room
        number = raw[at + ATTRIBUTES_AT] & CODEC_BITS
        if number in INFLATE:
            yield NAMES[number], bytes(INFLATE[number](raw[at + HEADER_BYTES : end]))
        at = end
