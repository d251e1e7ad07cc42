"""A views that is connected again: it neither goes back nor keeps what is gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import msgpack
import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log, Record, TransientError
from combee.process.worker import views
from combee.process.worker.views import Newest, Playbooks
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook, deleted_key
from combee_schemas.topics import Topic
from support.clock import ManualClock
from support.rows import each_row

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


# ---- bytes that are kept


def newest(*records: Record) -> Newest[Playbook]:
    kept = Newest(topics.PLAYBOOKS, lambda new, old: new.version > old.version)
    assert all(kept.keep(record) for record in records)
    return kept


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the offsets of what is decoded."""
    offsets: list[int] = []
    read = Topic.read

    def counted(self: Topic[Any], record: Record) -> Any:
        offsets.append(record.offset)
        return read(self, record)

    monkeypatch.setattr(Topic, "read", counted)
    return offsets


def test_what_is_kept_is_decoded_on_first_use(decoded: list[int]) -> None:
    kept = newest(snapshot(1, 0), snapshot(1, 1, key="other"))
    assert (NAME in kept, kept.keys(), decoded) == (True, {NAME, "other"}, [])
    for _ in range(2):
        playbook = kept.get(NAME)
        assert playbook is not None
        assert playbook.version == 1
    assert decoded == [0]


def test_who_looks_once_leaves_the_bytes(decoded: list[int]) -> None:
    kept = newest(snapshot(1, 0), snapshot(3, 1), snapshot(2, 2))
    looked = [kept.peek(NAME), kept.peek(NAME)]
    assert [playbook and playbook.version for playbook in looked] == [3, 3]
    assert decoded == [0, 1, 2, 1]


def test_a_tombstone_ends_what_is_kept() -> None:
    kept = newest(snapshot(1, 0), snapshot(2, 1, gone=True))
    assert (kept.get(NAME), kept.keys()) == (None, set())


def test_what_cannot_be_read_leaves_what_stood_before() -> None:
    cut = snapshot(2, 1)
    kept = newest(snapshot(1, 0), replace(cut, value=(cut.value or b"")[:-1]))
    playbook = kept.get(NAME)
    assert playbook is not None
    assert playbook.version == 1


def test_a_message_is_taken_unless_the_bytes_are_newer() -> None:
    kept = newest(snapshot(2, 0))
    assert not kept.take(NAME, Playbook(name=NAME, version=1))
    assert kept.take(NAME, Playbook(name=NAME, version=3))
    playbook = kept.get(NAME)
    assert playbook is not None
    assert playbook.version == 3


@each_row(
    "value",
    [
        b"\xc1",
        msgpack.packb({"type": "playbook", "version": 77, "body": {}}),
        encode(BatchSize(playbook="a", batch_size=5)),
    ],
)
def test_what_is_no_message_of_this_version_is_not_kept_unseen(value: bytes) -> None:
    assert not Newest(topics.PLAYBOOKS).keep(replace(snapshot(1, 0), value=value))


async def test_without_announcing_the_start_nothing_is_decoded_and_later_versions_are_told(
    decoded: list[int],
) -> None:
    log, told = MemoryLog(ManualClock()), list[int]()
    written = topics.PLAYBOOKS.record(Playbook(name=NAME, version=1))
    await log.produce(written)
    books = Playbooks(log, lambda _, book: told.append(book.version if book else 0), announces_start=False)
    task = asyncio.create_task(books.view.run())
    try:
        await books.view.wait_current(1.0)
        assert (told, decoded, books.view.keys()) == ([], [], {NAME})
        await log.produce(topics.PLAYBOOKS.record(Playbook(name=NAME, version=2)))
        async with asyncio.timeout(2.0):
            while not told:  # noqa: ASYNC110 - the view tells nobody else
                await asyncio.sleep(0)
        assert (told, books.latest(NAME).version) == ([2], 2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
