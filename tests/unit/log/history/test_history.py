"""A version by its number: everybody who asks gets the same answer, and nobody reads a long history for it."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Outgoing, Record, TopicPartition, TransientError
from combee.cli.playbook.lookup import find_version
from combee.core.playbook.versions import empty
from combee.log import history
from combee.log.commands.log_store import LogStore
from combee.log.history import SPAN, History, newest_playbook, newest_snapshot
from combee.process.worker.views import Playbooks
from combee.publish.publisher import Publisher
from combee.sdk.transport import LogTransport
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.playbook import Label, Playbook
from support import ledger
from support.gateway import SharedApplication, asked, published, version
from support.rows import each_row
from support.waiting import until

pytestmark = pytest.mark.usefixtures("virtual_time")

NAME, OTHER = "support/refunds", "support/returns"
LONG = 3000
FEW_RECORDS, FEW_READS = 8 * SPAN, 12
APPLICATION = SharedApplication()


class CountedLog(MemoryLog):
    """A log that counts what is read of ``history``."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), partitions=1)
        self.read_records = self.reads = 0

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        self.reads += source.topic == topics.HISTORY.name
        async for record in super().read(source, start, end):
            self.read_records += source.topic == topics.HISTORY.name
            yield record


async def filled(*versions: Playbook) -> CountedLog:
    log = CountedLog()
    await published(log, *versions)
    return log


@cache
def record_of(name: str, number: int) -> Outgoing:
    """Return the record of a version: histories are long, and to write them down takes longest."""
    return topics.HISTORY.record(version(name, number))


LONG_LOGS: dict[int, CountedLog] = {}
"""Long histories by their share: many tests read the same one, and none writes to it."""


async def long_history(*, share: int = 2) -> tuple[CountedLog, Playbook]:
    """Return a log in which every ``share``-th record is a version of ``NAME``, and the newest of them."""
    newest = version(NAME, (LONG - 1) // share + 1, history_offset=(LONG - 1) // share * share)
    if share not in LONG_LOGS:
        log = LONG_LOGS[share] = CountedLog()
        names = (NAME if at % share == 0 else OTHER for at in range(LONG))
        await log.produce(*(record_of(name, at // share + 1) for at, name in enumerate(names)))
        await log.produce(topics.PLAYBOOKS.record(newest))
    log = LONG_LOGS[share]
    log.read_records = log.reads = 0
    return log, newest


# ---- everybody asks the same


async def by_reader(log: MemoryLog, number: int) -> Playbook | None:
    return await History(log).exactly(NAME, number)


async def by_reader_who_knows_the_newest(log: MemoryLog, number: int) -> Playbook | None:
    return await History(log).exactly(NAME, number, await newest_snapshot(log, NAME))


async def by_reader_who_has_read_all(log: MemoryLog, number: int) -> Playbook | None:
    reader = History(log)
    await reader.places(NAME)
    return await reader.exactly(NAME, number)


async def by_command_line(log: MemoryLog, number: int) -> Playbook | None:
    try:
        return await find_version(log, NAME, number)
    except FatalError:
        return None


async def by_command(log: MemoryLog, number: int) -> Playbook | None:
    store = LogStore(log)
    await store.newest(NAME)
    return await store.version(NAME, number)


async def by_agent(log: MemoryLog, number: int) -> Playbook | None:
    return await LogTransport(log).fetch(NAME, number)


async def by_gateway(log: MemoryLog, number: int) -> Playbook | None:
    async with asked(log, application=APPLICATION) as gateway:
        answer = await gateway.client.get(f"/v1/playbooks/{NAME}?version={number}")
    return Playbook.model_validate(answer.json()) if answer.status_code == 200 else None


async def by_worker(log: MemoryLog, number: int) -> Playbook | None:
    try:
        return await Playbooks(log).exactly(NAME, number) if number else None
    except TransientError:
        return None


async def by_publisher(log: MemoryLog, number: int) -> Playbook | None:
    """Return what a rollback to that version makes; publish reads the version itself."""
    command = Command(command_id="back", playbook=NAME, kind="rollback", version=number)
    await log.produce(topics.COMMANDS.record(command))
    stop = asyncio.Event()
    publisher = Publisher(log, SystemClock(), budget_tokens=16_000)
    session = asyncio.create_task(publisher.session(stop, lambda: None))
    await until(lambda: "publish" in log._store.committed)
    await until(lambda: not [key for key in ledger.behind(log) if key[0] == "publish"])
    stop.set()
    await session
    made = await newest_snapshot(log, NAME)
    if not made or "back" not in made.commands:
        return None
    return version(NAME, number, *(entry.content for entry in made.entries))


ASKERS = (
    by_reader,
    by_reader_who_knows_the_newest,
    by_reader_who_has_read_all,
    by_command_line,
    by_command,
    by_agent,
    by_gateway,
    by_worker,
    by_publisher,
)
Ask = Callable[[MemoryLog, int], Awaitable[Playbook | None]]
THREE = [version(NAME, 1), version(OTHER, 1), version(NAME, 2), version(OTHER, 2), version(NAME, 3)]


@each_row("ask", ASKERS)
@each_row(("number", "content"), [(1, "lesson of version 1"), (2, "lesson of version 2")])
async def test_an_old_version_is_found_by_its_number(ask: Ask, number: int, content: str) -> None:
    found = await ask(await filled(*THREE), number)
    assert found
    assert (found.name, found.version) == (NAME, number)
    assert [entry.content for entry in found.entries] == [content]


@each_row("ask", ASKERS)
@each_row("number", [0, 7])
async def test_a_version_that_there_never_was_is_not_found(ask: Ask, number: int) -> None:
    assert await ask(await filled(*THREE), number) is None


@each_row("ask", ASKERS)
async def test_a_version_that_cannot_be_read_is_passed_over(ask: Ask) -> None:
    log = await filled(version(NAME, 1))
    await log.produce(Outgoing(topic=topics.HISTORY.name, key=NAME.encode(), value=b"\x00"))
    await published(log, version(NAME, 3))
    assert await ask(log, 2) is None


@each_row("ask", ASKERS)
async def test_a_version_that_is_no_longer_retained_is_not_found(ask: Ask) -> None:
    log = await filled(*THREE)
    log.expire(TopicPartition(topic=topics.HISTORY.name, partition=0), 3)
    assert await ask(log, 1) is None


async def test_a_worker_waits_for_a_version_that_is_not_visible_yet() -> None:
    with pytest.raises(TransientError, match="no version 9 of support/refunds yet"):
        await Playbooks(await filled(*THREE)).exactly(NAME, 9)


# ---- however long it is


@each_row("share", [1, 2, 7, 100])
@each_row("is_known", [False, True], ids=["newest unknown", "newest known"])
async def test_few_records_of_a_long_history_are_read(share: int, *, is_known: bool) -> None:
    log, newest = await long_history(share=share)
    for number in {1, 2, newest.version // 3, newest.version // 2, newest.version - 1}:
        log.read_records = log.reads = 0
        found = await History(log).exactly(NAME, number, newest if is_known else None)
        assert found
        assert found.version == number
        assert log.read_records <= FEW_RECORDS + 3 * share, f"version {number} of {newest.version}"
        assert log.reads <= FEW_READS, f"version {number} of {newest.version}"


async def test_a_rollback_reads_few_records_of_a_long_history() -> None:
    log, _ = await long_history()
    found = await by_publisher(log, 3)
    assert found
    assert [entry.content for entry in found.entries] == ["lesson of version 3"]
    assert log.read_records <= FEW_RECORDS


@each_row("number", [0, LONG, 10 * LONG])
async def test_few_records_are_read_for_a_version_that_there_never_was(number: int) -> None:
    log, _ = await long_history()
    assert await History(log).exactly(NAME, number) is None
    assert log.read_records <= FEW_RECORDS


async def test_a_second_look_up_goes_by_what_the_first_has_seen() -> None:
    log, _ = await long_history()
    reader = History(log)
    await reader.exactly(NAME, 700)
    log.read_records = 0
    await reader.exactly(NAME, 700)
    assert log.read_records == 0
    await reader.exactly(NAME, 701)
    assert log.read_records <= FEW_RECORDS


@pytest.mark.parametrize("seed", range(10))
async def test_however_versions_stand_the_search_finds_what_a_scan_finds(seed: int) -> None:
    """Playbooks of different pace share a partition; versions are missing, and the beginning has expired."""
    chance = random.Random(seed)
    log, numbers = CountedLog(), {NAME: 0, OTHER: 0}
    for _ in range(chance.randrange(1, 600)):
        name = NAME if chance.random() < chance.choice((0.01, 0.9)) else OTHER
        numbers[name] += 1 + (chance.random() < 0.1)
        await log.produce(record_of(name, numbers[name]))
    source = TopicPartition(topic=topics.HISTORY.name, partition=0)
    log.expire(source, chance.randrange(0, 100))
    there = {found.version async for found in History(log).between(NAME, 0)}
    reader = History(log)
    for number in chance.sample(range(numbers[NAME] + 3), k=min(40, numbers[NAME] + 3)):
        found = await reader.exactly(NAME, number)
        assert (found is not None) == (number in there), number
        assert found is None or (found.name, found.version) == (NAME, number)


async def test_a_look_up_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(CountedLog):
        async def ends(self, topic: str) -> Mapping[int, int]:  # noqa: ARG002
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr(history, "LOOK_UP_S", 0.01)
    with pytest.raises(TransientError, match="version 1 of support/refunds was not found in 0 s"):
        await History(Hanging()).exactly(NAME, 1)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NAMES_KEPT", 2)
    monkeypatch.setattr(history, "VERSIONS_KEPT", 2)
    names = [f"p{at}" for at in range(4)]
    log = await filled(*(version(name, number) for name in names for number in (1, 2)))
    reader = History(log)
    for name in names:
        assert sorted(await reader.places(name)) == [1, 2]
        assert await reader.exactly(name, 1)
    assert (len(reader._places), len(reader._versions)) == (2, 2)


# ---- the newest


async def test_the_newest_of_a_deleted_playbook_is_what_remains() -> None:
    log = await filled(version(NAME, 1), version(NAME, 2, origin="delete", entries=()))
    remains = await newest_snapshot(log, NAME)
    assert remains
    assert (remains.version, remains.origin) == (2, "delete")
    assert await newest_playbook(log, NAME) is None
    assert await newest_snapshot(log, OTHER) is None
    assert await LogStore(log).newest(OTHER) == empty(OTHER)


async def test_labels_are_as_they_were_moved_last() -> None:
    log = CountedLog()
    moved = [Label(playbook=NAME, label=label, version=at) for at, label in enumerate(("b", "a", "b"), 1)]
    await log.produce(*map(topics.LABELS.record, moved), topics.LABELS.tombstone(f"{NAME}#a"))
    assert await history.all_labels(log) == [moved[2]]
