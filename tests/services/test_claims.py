"""Records that claim to be sent again cost no more than others, whatever letters they name."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Record, TopicPartition
from combee_schemas import topics
from combee_schemas.dead_letter import Attempt, DeadLetter, LetterId, attempt_headers
from support import ledger
from support.deployment import Deployment
from support.ledger import outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

LETTERS = topics.DEAD_LETTERS.name


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the questions about dead letters: each costs a reader, or a request to the brokers."""
    counts: Counter[str] = Counter()
    read, read_at, ends = MemoryLog.read, MemoryLog.read_at, MemoryLog.ends

    async def counted_read(
        log: MemoryLog, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        counts["read"] += source.topic == LETTERS
        async for record in read(log, source, start, end):
            yield record

    async def counted_read_at(
        log: MemoryLog, source: TopicPartition, offsets: Sequence[int]
    ) -> Mapping[int, Record]:
        counts["read"] += source.topic == LETTERS
        return await read_at(log, source, offsets)

    async def counted_ends(log: MemoryLog, topic: str) -> dict[int, int]:
        counts["ends"] += topic == LETTERS
        return dict(await ends(log, topic))

    monkeypatch.setattr(MemoryLog, "read", counted_read)
    monkeypatch.setattr(MemoryLog, "read_at", counted_read_at)
    monkeypatch.setattr(MemoryLog, "ends", counted_ends)
    return counts


async def claiming(deployment: Deployment, *offsets: int) -> None:
    """Publish one reflection again and again, each time with a claim; wait until all is worked in."""
    sent = [
        replace(
            outgoing(reflection(0)),
            headers=attempt_headers(Attempt(number=1, letter=LetterId(partition=0, offset=at))),
        )
        for at in offsets
    ]
    await deployment.log.produce(*sent)
    async with deployment.running(["shuffle", "scan", "publish"]):

        def done() -> bool:
            deployment.advance(1)
            return ledger.applied(deployment.log) == 1 and not ledger.behind(deployment.log)

        await deployment.until(done)


async def test_claims_of_letters_that_do_not_exist_are_not_read_one_by_one(asked: Counter[str]) -> None:
    await claiming(Deployment(max_wait_s=5), *range(500, 1_000))
    assert (asked["read"], asked["ends"] <= 5) == (0, True)


async def test_claims_of_letters_about_something_else_are_read_many_at_once_and_only_once(
    asked: Counter[str],
) -> None:
    deployment = Deployment(max_wait_s=5)
    letter = DeadLetter(
        origin_topic=topics.REFLECTIONS.name,
        origin_partition=0,
        origin_offset=7,
        service="shuffle",
        reason="another",
    )
    await deployment.log.produce(*[topics.DEAD_LETTERS.record(letter, partition=0)] * 600)
    await claiming(deployment, *range(600), *range(600))
    assert (asked["read"] <= 5, asked["ends"] <= 5) == (True, True)
