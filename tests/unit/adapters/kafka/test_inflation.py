"""The one place where compressed batches are inflated: up to a bound, and what cannot be read becomes a record."""

import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from combee.adapters.kafka import KafkaLog, inflation
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.inflation import MAX_INFLATED_BYTES, BoundedRecords, Unread
from combee_schemas.records import UNREAD_HEADER
from support.rows import each_row

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MIB = 1024 * 1024
GOOD = b"the next good one"


def batch(*values: bytes, codec: int = 0, first: int = 0, header: str = "h") -> bytes:
    """Return a record batch as a broker stores it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)  # noqa: FBT003 - aiokafka's
    for number, value in enumerate(values):
        assert builder.append(number, 1_000, b"k", value, [(header, b"v")]) is not None
    return first.to_bytes(8, "big") + bytes(builder.build())[8:]


def read(raw: bytes, kind: Any = BoundedRecords) -> list[tuple[int, bytes]]:
    """Return offset and value of all that comes out, as aiokafka's fetcher asks for it."""
    found, batches = [], kind(raw)
    while batches.has_next():
        one = batches.next_batch()
        assert one.validate_crc()
        assert not one.is_control_batch
        found += [(record.offset, record.value) for record in one]
    return found


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound a batch by an eighth of what it may have: bombs are made eight times sooner."""
    monkeypatch.setattr(inflation, "MAX_INFLATED_BYTES", MAX_INFLATED_BYTES // 8)


@pytest.mark.usefixtures("small_bound")
@each_row("codec", CODECS.values(), ids=CODECS)
@each_row("sizes", [(9 * MIB // 8,), (MIB // 8,) * 9, (1_000,) * 1_125], ids=["one", "some", "many"])
def test_a_bomb_becomes_one_record_that_holds_it_as_it_lies(codec: int, sizes: Sequence[int]) -> None:
    bomb = batch(*(bytes(size) for size in sizes), codec=codec)
    last = len(sizes) - 1
    raw = batch(GOOD) + bomb + batch(GOOD, first=last + 1)
    assert len(bomb) < MIB // 4
    assert read(raw) == [(0, GOOD), (last, bomb), (last + 1, GOOD)]


@each_row("codec", [0, *CODECS.values()], ids=["none", *CODECS])
def test_what_stays_below_the_bound_is_read_as_ever(codec: int) -> None:
    values = [b"value %d" % n * 50 for n in range(200)]
    raw = batch(*values, codec=codec) + batch(GOOD, codec=codec, first=200)
    assert read(raw) == read(raw, MemoryRecords) == [*enumerate(values), (200, GOOD)]


def test_what_many_batches_hold_together_is_bounded_and_the_rest_is_fetched_again() -> None:
    size = 3 * MIB
    raw = b"".join(batch(bytes(size), codec=4, first=n) for n in range(20))
    offsets = [offset for offset, _ in read(raw)]
    assert offsets == list(range(MAX_INFLATED_BYTES // size + 1))
    assert read(raw[len(raw) // 20 * len(offsets) :])[0][0] == len(offsets)


def test_the_reason_rides_on_the_record_that_stands_in() -> None:
    (one,) = BoundedRecords(batch(bytes(9 * MIB), codec=4)).next_batch()
    assert isinstance(one, Unread)
    assert "zstd inflates it beyond 8388608 bytes" in dict(one.headers)[UNREAD_HEADER].decode()
    assert (one.key, one.timestamp) == (None, 1_000)


def test_a_header_that_is_no_text_does_not_stop_the_partition() -> None:
    good = batch(GOOD, header="odd")
    broken = bytearray(good.replace(b"odd", b"\xff\xfe\xfd"))
    (one,) = BoundedRecords(bytes(broken)).next_batch()
    assert (one.offset, one.value) == (0, bytes(broken))
    with pytest.raises(UnicodeDecodeError):
        list(MemoryRecords(bytes(broken)).next_batch())


@each_row("codec", CODECS.values(), ids=CODECS)
def test_a_batch_that_does_not_inflate_does_not_stop_the_partition(codec: int) -> None:
    whole = batch(b"value" * 1_000, codec=codec)
    broken = whole[: inflation.HEADER_BYTES] + b"\x00\x01\x02" * (len(whole) - inflation.HEADER_BYTES)
    broken = broken[: len(whole)]
    (one,) = BoundedRecords(broken).next_batch()
    assert one.value == broken


def test_a_compressed_batch_in_the_format_of_old_is_not_inflated() -> None:
    builder = LegacyRecordBatchBuilder(1, 1, 1 << 30)
    builder.append(0, 1_000, b"k", bytes(MIB))
    raw = bytes(builder.build())
    assert zlib.crc32(raw[16:]) == int.from_bytes(raw[12:16], "big")
    (one,) = BoundedRecords(raw).next_batch()
    assert one.value == raw


def test_opening_a_log_bounds_every_consumer_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    KafkaLog(Connection(bootstrap_servers="127.0.0.1:1", prefix="guards"))
    assert vars(fetcher)["MemoryRecords"] is BoundedRecords
