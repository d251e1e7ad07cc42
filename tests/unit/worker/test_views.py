"""A views that is connected again: it neither goes back nor keeps what is gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

import pytest

from combee.ports import Log, Record, TransientError
from combee.worker import views
from combee.worker.views import Playbooks
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.playbook import Playbook, deleted_key

NAME = "support/refunds"


def snapshot(version: int, offset: int, *, key: str = NAME, gone: bool = False) -> Record:
    book = Playbook(name=NAME, version=version, batch_sequence=version)
    value = None if gone else encode(book)
    return Record(
        topic="playbooks", partition=0, offset=offset, timestamp_ms=0, key=key.encode(), value=value
    )


class Broken:
    """A log that is read twice, with a disconnect between; ``look`` is called after each step of the second."""

    def __init__(self, first: Sequence[Record], second: Sequence[Record]) -> None:
        self._first = first
        self._second = second
        self.look: Callable[[], None] | None = None
        self.broken = asyncio.Event()
        self.read_again = asyncio.Event()

    async def follow(self, topic: str) -> AsyncGenerator[Sequence[Record] | None, None]:
        assert topic == topics.PLAYBOOKS.name
        if self.look is None:
            yield self._first
            yield None
            await self.broken.wait()
            raise TransientError("away")
        for record in self._second:
            yield [record]
            self.look()
        yield None
        self.look()
        self.read_again.set()
        await asyncio.Event().wait()


async def reread(first: Sequence[Record], second: Sequence[Record]) -> tuple[list[int], list[Any]]:
    """Return the version that is known at each step of the second reading, and what was told of."""
    versions: list[int] = []
    told: list[Any] = []
    log = Broken(first, second)
    books = Playbooks(cast("Log", log), lambda name, book: told.append((name, book and book.version)))
    task = asyncio.create_task(books.view.run())
    try:
        await books.view.wait_current(1.0)
        told.clear()
        log.look = lambda: versions.append(books.latest(NAME).version)
        log.broken.set()
        async with asyncio.timeout(2.0):
            await log.read_again.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return versions, told


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "RETRY_S", 0.0)


LIFE = [
    snapshot(1, 0),
    snapshot(2, 1, key=deleted_key(NAME)),
    snapshot(2, 2, gone=True),
]


async def test_a_deleted_playbook_does_not_live_while_its_topic_is_read_again() -> None:
    versions, told = await reread(LIFE, LIFE)
    assert set(versions) == {2}
    assert told == []


async def test_a_playbook_that_lives_again_does_not_die_while_its_topic_is_read_again() -> None:
    again = [*LIFE, snapshot(3, 3), snapshot(2, 4, key=deleted_key(NAME), gone=True)]
    versions, told = await reread(again, again)
    assert set(versions) == {3}
    assert told == []


async def test_what_was_deleted_during_a_disconnect_is_gone_though_its_tombstone_is_too() -> None:
    versions, told = await reread(LIFE[:1], LIFE[1:2])
    assert versions[-1] == 2
    assert told == [(NAME, 2), (NAME, None)]
