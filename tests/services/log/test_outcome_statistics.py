"""Statistics of outcomes as the gateway and the command line read them."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Record, TopicPartition
from combee.log.inspection.outcomes import outcomes_by_line
from combee_schemas import topics
from combee_schemas.outcome import OutcomeStatistics

LINES, ROUNDS = 3, 50


class Value(bytes):
    """A record's value that is counted while somebody holds it."""

    held = most = 0

    def __init__(self, _value: bytes) -> None:
        Value.held += 1
        Value.most = max(Value.most, Value.held)

    def __del__(self) -> None:
        Value.held -= 1


class Broker(MemoryLog):
    """A log that gives each reader bytes of its own."""

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        async for record in super().read(source, start, end):
            yield replace(record, value=Value(record.value or b""))


async def test_of_statistics_that_are_not_compacted_yet_only_the_newest_are_held() -> None:
    """Each step of control may write megabytes: a list of all of them was more than a gateway may use."""
    log = Broker(SystemClock())
    for unplaced in range(1, ROUNDS + 1):
        known = [OutcomeStatistics(line=f"p{n}", unplaced=unplaced) for n in range(LINES)]
        await log.produce(*map(topics.OUTCOME_STATISTICS.record, known))
    read = await outcomes_by_line(log)
    assert {name: statistics.unplaced for name, statistics in read.items()} == {
        f"p{n}": ROUNDS for n in range(LINES)
    }
    assert Value.most <= 2 * LINES
