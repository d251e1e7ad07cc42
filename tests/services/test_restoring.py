"""An archive read back is the same system in another place: equal contents, an equal ledger, work that goes on."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Outgoing, TopicPartition
from combee.log.archive import restoring
from combee.log.archive.restoring import read_contents
from combee.log.archive.writing import write_archive
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.archive import ArchiveError, Restoring
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.topics import RESTORING
from combee_schemas.trace import Trace
from support import ledger
from support.archives import FaultInjectingTopics, MemoryTopics, archived, contents, ledger_of, restored, said
from support.clock import ManualClock
from support.deployment import Deployment
from support.failpoints.points import POINTS, CrashError, CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, lessons, outgoing, reflection
from support.recorded_log import HALF_DONE, UNTOUCHED, answer, finished, recorded

pytestmark = pytest.mark.usefixtures("quick_polls")
COUNTS = [(2, 3), (1, 1), (5, 4), (3, 8)]
counted = pytest.mark.parametrize("counts", COUNTS, ids=str)


@pytest.fixture(name="archive")
async def archive_of_everything(tmp_path: Path) -> Path:
    """Return the archive of a log with everything in it: batches under way, dead letters, commands, labels."""
    path = tmp_path / "archive"
    await archived(recorded(ManualClock()), path)
    return path


@counted
async def test_contents_and_ledger_are_equal_but_for_offsets(archive: Path, counts: tuple[int, int]) -> None:
    source = recorded(ManualClock())
    target = MemoryLog(ManualClock(), partitions=counts[0], scan_partitions=counts[1])
    await restored(archive, target)

    expected = contents(source)
    found = contents(target)
    assert len(found["playbooks"]) == len(
        {version.name for version in ledger.messages(source, topics.HISTORY, Playbook)}
    )
    for compacted in ("playbooks", "labels", "batch-sizes"):
        assert set(found.pop(compacted)) <= set(expected.pop(compacted))
    assert found == expected
    assert await ledger_of(target) == await ledger_of(source)
    assert (await audit(target)).good
    assert "restoring" not in target._store._topics


@counted
async def test_what_was_begun_is_finished_there_without_repeating_anything(
    archive: Path, counts: tuple[int, int]
) -> None:
    deployment = Deployment(batch_size=10, copies=2, fan_in=2, partitions=counts[0])
    deployment.log = MemoryLog(deployment.clock, partitions=counts[0], scan_partitions=counts[1])
    deployment.model.answer = answer
    await restored(archive, deployment.log)
    await finished(deployment)

    for name in (HALF_DONE, UNTOUCHED):
        assert {entry.content for entry in ledger.latest(deployment.log, name).entries} == lessons(range(10))
    assert deployment.model.calls == (3 + 2) + 1, "of the batch half done the root alone is left"
    assert (await audit(deployment.log)).good


@counted
async def test_manifests_say_where_the_oldest_without_a_version_stands_now(
    archive: Path, counts: tuple[int, int]
) -> None:
    target = MemoryLog(ManualClock(), partitions=counts[0], scan_partitions=counts[1])
    await restored(archive, target)
    under_way = 0
    for partition in target._store.partitions(topics.BATCHES.name):
        records = list(partition.records(0, partition.end))
        manifests = {record.offset: topics.BATCHES.read(record) for record in records}
        open_at = [at for at, batch in manifests.items() if batch.plan.playbook in {HALF_DONE, UNTOUCHED}]
        under_way += len(open_at)
        for at, batch in manifests.items():
            before = min((offset for offset in open_at if offset < at), default=-1)
            assert batch.oldest_unpublished_offset == before
    assert under_way == 2


# ---- killed, and run again


async def test_killed_anywhere_and_run_again_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "WRITTEN_AT_ONCE", 5)
    source, archive = recorded(ManualClock()), tmp_path / "small"
    source.expire(TopicPartition(topic=topics.TRACES.name, partition=0), 1)
    await archived(source, archive, playbook=HALF_DONE)
    whole, passed = MemoryLog(ManualClock(), partitions=2, scan_partitions=3), CrashFailpoint()
    await _restored_with(passed, archive, whole)
    writing = {point for point in POINTS if "ask" not in point and "offset commit" not in point}
    assert writing - set(passed.points) == {"sent in transaction"}
    assert "before deleting of traces" in passed.points
    assert passed.points.count("after produce") >= 4

    for at, point in enumerate(passed.points, 1):
        target = MemoryLog(ManualClock(), partitions=2, scan_partitions=3)
        with pytest.raises(CrashError):
            await _restored_with(CrashFailpoint(at), archive, target)
        if point == "after deleting restoring":
            assert contents(target) == contents(whole)
            continue
        is_begun = "restoring" in target._store._topics
        assert is_begun != (point == "before creating restoring"), "no service starts on what is half there"
        await _restored_with(CrashFailpoint(), archive, target)
        assert contents(target) == contents(whole), point
        assert target._store.committed == whole._store.committed, point
        assert "restoring" not in target._store._topics


async def _restored_with(failpoint: CrashFailpoint, archive: Path, target: MemoryLog) -> None:
    log = FaultInjectingLog(target, failpoint)
    await restored(archive, target, log=log, admin=FaultInjectingTopics(target, failpoint))


@counted
async def test_killed_again_and_again_it_goes_on(
    archive: Path, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "WRITTEN_AT_ONCE", 20)
    target = MemoryLog(ManualClock(), partitions=counts[0], scan_partitions=counts[1])
    for at in (6, 7, 8, 4):
        with pytest.raises(CrashError):
            await _restored_with(CrashFailpoint(at), archive, target)
    await restored(archive, target)
    assert await ledger_of(target) == await ledger_of(recorded(ManualClock()))


# ---- refused


async def test_a_prefix_with_records_is_refused_and_stays_as_it_is(archive: Path) -> None:
    target = recorded(ManualClock())
    before = contents(target)
    with pytest.raises(FatalError, match=r"not empty.*--to"):
        await restored(archive, target)
    assert (contents(target), "restoring" in target._store._topics) == (before, False)


async def test_a_half_restored_prefix_takes_no_other_archive(archive: Path, tmp_path: Path) -> None:
    target = MemoryLog(ManualClock())
    with pytest.raises(CrashError):
        await _restored_with(CrashFailpoint(10), archive, target)
    await archived(recorded(ManualClock()), tmp_path / "other", playbook=HALF_DONE)
    with pytest.raises(FatalError, match="another archive"):
        await restored(tmp_path / "other", target)
    await restored(archive, target)


async def test_services_that_run_there_are_named(archive: Path) -> None:
    target = MemoryLog(ManualClock())
    admin = MemoryTopics(target)
    admin.running = 1
    with pytest.raises(FatalError, match=r"shuffle.*stop them"):
        await restored(archive, target, admin=admin)


async def test_a_stranger_who_writes_meanwhile_is_noticed_at_the_next_record(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "WRITTEN_AT_ONCE", 20)

    class Shared(MemoryLog):
        async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
            offsets = await super().produce(*outgoing)
            if outgoing[0].topic != "restoring":
                await super().produce(topics.REFLECTIONS.record(ledger.reflection(99)))
            return offsets

    with pytest.raises(FatalError, match=r"somebody else.*was written at reflections"):
        await restored(archive, Shared(ManualClock()))


async def test_what_stands_there_instead_of_the_archives_records_is_noticed(archive: Path) -> None:
    target = MemoryLog(ManualClock(), partitions=1)
    with pytest.raises(CrashError):
        await _restored_with(CrashFailpoint(point="before produce"), archive, target)
    await target.produce(topics.REFLECTIONS.record(ledger.reflection(99)))
    mark = Restoring(archive=read_contents(archive).sha256)
    await target.produce(RESTORING.record(mark))
    with pytest.raises(FatalError, match="not the archive's record"):
        await restored(archive, target)


async def test_a_file_that_becomes_another_while_it_is_restored_is_noticed(
    archive: Path, tmp_path: Path
) -> None:
    source, other = recorded(ManualClock()), tmp_path / "other"
    await write_archive(source, other, prefix="t", configs={}, clock=ManualClock(), written_by="other")

    class Exchanging(MemoryTopics):
        async def create(
            self, topic: str, partitions: int, replication: int, config: Mapping[str, str]
        ) -> bool:
            shutil.copy(other, archive)
            return await super().create(topic, partitions, replication, config)

    target = MemoryLog(ManualClock())
    with pytest.raises(ArchiveError, match="another file by now"):
        await restored(archive, target, admin=Exchanging(target))
    assert "restoring" in target._store._topics, "no service starts on it"


# ---- what has expired, and one playbook alone


@counted
async def test_expired_records_stay_expired(tmp_path: Path, counts: tuple[int, int]) -> None:
    source = recorded(ManualClock())
    for topic in (topics.REFLECTIONS, topics.TRACES, topics.COMMANDS):
        for number, partition in enumerate(source._store.partitions(topic.name)):
            source.expire(TopicPartition(topic=topic.name, partition=number), partition.end // 2)
    await archived(source, tmp_path / "archive")
    target = MemoryLog(ManualClock(), partitions=counts[0], scan_partitions=counts[1])
    await restored(tmp_path / "archive", target)

    ours, theirs = await ledger_of(target), await ledger_of(source)
    assert (ours["violations"], ours["lost"]) == ([], 0)
    assert ours == theirs


@counted
async def test_one_playbook_comes_alone_and_whole(tmp_path: Path, counts: tuple[int, int]) -> None:
    source = recorded(ManualClock())
    await archived(source, tmp_path / "archive", playbook=NAME)
    target = MemoryLog(ManualClock(), partitions=counts[0], scan_partitions=counts[1])
    await restored(tmp_path / "archive", target)

    for topic in (topics.HISTORY, topics.BATCHES, topics.REFLECTIONS, topics.UPDATES):
        wanted = {
            said(m)
            for record in ledger.records(source, topic)
            if record.key == NAME.encode()
            for m in [topic.read_or_none(record)]
            if m
        }
        assert set(contents(target)[topic.name]) == wanted
    assert {m.playbook for m in ledger.messages(target, topics.TRACES, Trace)} <= {NAME}
    assert (await audit(target)).good
    with pytest.raises(FatalError, match="no records of a playbook"):
        await archived(source, tmp_path / "none", playbook="tests/none")
    assert not (tmp_path / "none").exists()


async def test_records_are_dated_as_if_no_time_had_passed(archive: Path) -> None:
    clock = ManualClock()
    clock.advance(40 * 24 * 3600)
    target = MemoryLog(clock)
    await restored(archive, target)
    source = recorded(ManualClock())
    before = max(record.timestamp_ms for record in ledger.records(source, topics.REFLECTIONS))
    after = max(record.timestamp_ms for record in ledger.records(target, topics.REFLECTIONS))
    cut_at_ms = read_contents(archive).header.cut_at_ms
    assert after - before == clock.now_ms() - cut_at_ms


@pytest.mark.parametrize("key", [None, b"foreign", b"k" * 2_000_000])
async def test_with_other_partitions_a_reflection_goes_with_its_playbook_whatever_its_key(
    tmp_path: Path, key: bytes | None
) -> None:
    deployment = Deployment(batch_size=4)
    home = await deployment.log.partition_for(topics.REFLECTIONS.name, NAME.encode())
    async with deployment.running():
        deployment.log.produce_packed(
            *(replace(outgoing(reflection(n)), key=key, partition=home) for n in range(8))
        )
        await deployment.until(lambda: ledger.applied(deployment.log) == 8)
    await archived(deployment.log, tmp_path / "archive")
    there = MemoryLog(deployment.clock, partitions=7, scan_partitions=3)
    await restored(tmp_path / "archive", there)
    home = await there.partition_for(topics.REFLECTIONS.name, NAME.encode())
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=home)
    members = [member for batch in ledger.messages(there, topics.BATCHES, Batch) for member in batch.members]
    records = await there.read_at(source, [member.offset for member in members])
    assert [topics.REFLECTIONS.read(records[member.offset]).reflection_id for member in members] == [
        member.reflection_id for member in members
    ]
