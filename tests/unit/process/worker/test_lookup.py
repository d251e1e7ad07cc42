"""How far back a restart looks: producers' clocks may be ahead, of many records at once."""

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, TopicPartition
from combee.process.worker import lookup
from combee_schemas import topics
from combee_schemas.records import OBJECT_BYTES
from support.clock import ManualClock

SOURCE = TopicPartition(topic=topics.TRACES.name, partition=0)
AHEAD_MS = 50 * 60 * 1000
RECORDS = 3 * lookup.CLOCKS_ASKED


async def test_thousands_of_records_ahead_of_time_do_not_hide_the_oldest_time_behind_them() -> None:
    clock = ManualClock()
    log, now_ms = MemoryLog(clock, partitions=1), clock.now_ms()
    await log.produce(*at(now_ms + AHEAD_MS, RECORDS), *at(now_ms, 1))
    assert await lookup.oldest_timestamp(log, {SOURCE: 0}) == now_ms


@pytest.mark.parametrize("size", [1_000, 0])
async def test_the_look_back_ends_after_both_its_records_and_its_bytes(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    clock = ManualClock()
    log, now_ms = MemoryLog(clock, partitions=1), clock.now_ms()
    monkeypatch.setattr(lookup, "CLOCKS_ASKED", 10)
    monkeypatch.setattr(lookup, "BYTES_ASKED", 20 * (size + OBJECT_BYTES))
    await log.produce(*at(now_ms + AHEAD_MS, 20, size), *at(now_ms, 1))
    assert await lookup.oldest_timestamp(log, {SOURCE: 0}) == now_ms + AHEAD_MS


def at(timestamp_ms: int, count: int, size: int = 100) -> list[Outgoing]:
    """Return records of one time."""
    record = Outgoing(topic=SOURCE.topic, partition=0, value=b"x" * size, timestamp_ms=timestamp_ms)
    return [record] * count
