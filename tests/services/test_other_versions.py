"""Another version: where only services write, who needs it stops or waits; where agents do, it is a bad record."""

import asyncio
import logging

import pytest

from combee.adapters.memory import MemoryLog
from combee.core.log.archive.cut import read
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee.process.worker.views import Playbooks
from combee.sdk.transport import LogTransport, Sink
from combee_schemas import topics
from combee_schemas.errors import ConfigurationError, OtherVersionError
from combee_schemas.playbook import Label, Playbook
from combee_schemas.records import Outgoing
from combee_schemas.topics import AnyTopic
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment
from support.hostile import newer
from support.ledger import NAME, dead_letters, outgoing, reflection
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

READ: list[tuple[str, AnyTopic]] = [
    ("shuffle", topics.COMMANDS),
    ("scan", topics.GROUPS),
    ("scan", topics.PARTIALS[0]),
    ("publish", topics.UPDATES),
    ("publish", topics.COMMANDS),
]


def of_tomorrow(topic: AnyTopic, ahead: int = 1) -> Outgoing:
    return Outgoing(topic=topic.name, key=NAME.encode(), value=newer(topic.message, ahead))


@pytest.mark.parametrize(("role", "topic"), READ, ids=[f"{role}-{topic.name}" for role, topic in READ])
async def test_a_service_stops_with_the_remedy_and_the_record_stays_uncommitted(
    role: str, topic: AnyTopic
) -> None:
    deployment = Deployment()
    await deployment.log.produce(of_tomorrow(topic))
    with pytest.raises(
        OtherVersionError, match=f"of type {topic.message.type}, version 3; .* up to version 2: upgrade"
    ):
        async with deployment.running([role]):
            await deployment.until(lambda: False)
    assert dead_letters(deployment.log) == []
    assert [at[:2] for at in ledger.behind(deployment.log) if at[0] == role] == [(role, topic.name)]


WITHOUT_UPCAST = [(role, topic) for role, topic in READ if topic is not topics.UPDATES]


@pytest.mark.parametrize(("role", "topic"), WITHOUT_UPCAST, ids=[f"{r}-{t.name}" for r, t in WITHOUT_UPCAST])
async def test_a_service_stops_at_an_older_record_and_buries_none(role: str, topic: AnyTopic) -> None:
    deployment = Deployment()
    await deployment.log.produce(*[of_tomorrow(topic, -1)] * 3)
    with pytest.raises(OtherVersionError, match="version 1; this process reads version 2 alone"):
        async with deployment.running([role]):
            await deployment.until(lambda: False)
    assert dead_letters(deployment.log) == []


RESTORED: list[tuple[str, AnyTopic]] = [
    ("shuffle", topics.BATCHES),
    ("publish", topics.PLAYBOOKS),
    ("publish", topics.LABELS),
]


@pytest.mark.parametrize(
    ("role", "topic"), RESTORED, ids=[f"{role}-{topic.name}" for role, topic in RESTORED]
)
async def test_a_service_that_restores_itself_from_such_a_record_stops(role: str, topic: AnyTopic) -> None:
    deployment = Deployment()
    await deployment.log.produce(of_tomorrow(topic))
    with pytest.raises(OtherVersionError):
        async with deployment.running([role]):
            await deployment.until(lambda: False)


def test_waiting_does_not_help_so_the_process_ends_as_with_a_wrong_setting() -> None:
    assert issubclass(OtherVersionError, ConfigurationError)


async def one_version() -> MemoryLog:
    deployment = Deployment(batch_size=1)
    async with deployment.running():
        await deployment.log.produce(outgoing(reflection(1)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
    return deployment.log


async def test_a_view_keeps_what_it_has_says_so_once_and_reads_on(capsys: pytest.CaptureFixture[str]) -> None:
    log = await one_version()
    books = Playbooks(log)
    task = asyncio.create_task(books.view.run())
    await books.view.wait_current(5)
    capsys.readouterr()
    other = Playbook(name="another", version=1)
    await log.produce(
        of_tomorrow(topics.PLAYBOOKS), of_tomorrow(topics.PLAYBOOKS), topics.PLAYBOOKS.record(other)
    )
    await until(lambda: books.latest("another").version == 1)
    task.cancel()
    assert books.latest(NAME).version == 1
    assert capsys.readouterr().out.count("upgrade_needed") == 1


async def test_a_client_keeps_its_playbook_says_so_once_and_reads_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = await one_version()
    tomorrow = of_tomorrow(topics.PLAYBOOKS)
    await log.produce(tomorrow, tomorrow, topics.PLAYBOOKS.record(Playbook(name="another", version=1)))
    taken: list[tuple[str, Playbook | Label | None]] = []
    current = asyncio.Event()
    sink = Sink(take=lambda key, message: taken.append((key, message)), current=lambda _: current.set())
    with caplog.at_level(logging.ERROR, logger="combee"):
        task = asyncio.create_task(LogTransport(log).follow(sink))
        async with asyncio.timeout(5):
            await current.wait()
        task.cancel()
    assert {(key, message and message.version) for key, message in taken} == {(NAME, 1), ("another", 1)}
    (said,) = [record.getMessage() for record in caplog.records if record.name == "combee"]
    assert "upgrade it" in said


@pytest.mark.parametrize("topic", [topics.COMMANDS, topics.BATCHES, topics.HISTORY], ids=lambda one: one.name)
async def test_an_audit_gives_no_verdict_on_what_it_cannot_read(topic: AnyTopic) -> None:
    log = await one_version()
    await log.produce(of_tomorrow(topic))
    with pytest.raises(OtherVersionError, match="upgrade it"):
        await audit(log)


async def test_an_audit_takes_one_that_an_agent_may_have_written_for_a_bad_record() -> None:
    log = await one_version()
    await log.produce(of_tomorrow(topics.TRACES), of_tomorrow(topics.REFLECTIONS))
    report = await audit(log)
    assert (report.violations, report.applied, report.lost) == ((), 1, 0)


@pytest.mark.parametrize("topic", topics.TOPICS, ids=lambda one: one.name)
def test_an_archive_keeps_one_as_bytes_where_agents_write_and_elsewhere_waits_for_an_upgrade(
    topic: AnyTopic,
) -> None:
    log = MemoryLog(ManualClock())
    asyncio.run(log.produce(of_tomorrow(topic)))
    (record,) = ledger.records(log, topic)
    if topic.is_open:
        assert read(topic, record) is None
    else:
        with pytest.raises(OtherVersionError, match="upgrade it"):
            read(topic, record)


async def test_who_follows_a_playbook_ends_with_the_remedy_at_its_start_and_later() -> None:
    log = await one_version()
    async with Tracker(log, NAME, ManualClock()).running() as tracker:
        await log.produce(of_tomorrow(topics.HISTORY))
        with pytest.raises(OtherVersionError, match="upgrade it"):
            await tracker.wait(lambda: False, stall_s=5)
    with pytest.raises(OtherVersionError, match="upgrade it"):
        async with Tracker(log, NAME, ManualClock()).running():
            raise AssertionError("it must not begin")


def test_no_way_to_read_passes_it_over() -> None:
    log = MemoryLog(ManualClock())
    asyncio.run(log.produce(of_tomorrow(topics.HISTORY)))
    (record,) = ledger.records(log, topics.HISTORY)
    with pytest.raises(OtherVersionError):
        topics.HISTORY.read_or_none(record)
    with pytest.raises(OtherVersionError):
        list(topics.HISTORY.under(NAME, [record]))
