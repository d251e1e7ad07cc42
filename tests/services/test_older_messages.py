"""What was written with messages of version 1 is read by this version, and what it began is finished."""

from collections import Counter

import pytest

from combee.adapters.memory import MemoryLog
from combee.inspection.audit import audit
from combee.inspection.lineage import lineage
from combee_schemas import topics
from combee_schemas.batch import Batch
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment
from support.ledger import NAME, batch_of, lessons
from support.topic_dump import FIRST_DUMP, GEPA, HALF_DONE, UNTOUCHED, answer, dumped, fill, finished

pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture(name="log")
def log_of_version_1() -> MemoryLog:
    return dumped(ManualClock())


def test_every_record_of_the_dump_can_be_read(log: MemoryLog) -> None:
    read: Counter[str] = Counter()
    for topic in topics.TOPICS:
        for record in ledger.records(log, topic):
            if record.value not in {None, b"unreadable"}:
                topic.read(record)
                read[topic.name] += 1
    assert set(read) == {
        *("traces", "reflections", "batches", "scan.0", "scan.1", "scan.2", "updates"),
        *("playbooks", "history", "labels", "commands", "batch-sizes", "dead-letters"),
    }


async def test_its_ledger_is_clean(log: MemoryLog) -> None:
    report = await audit(log)
    assert report.good
    assert (report.reflections, report.lost, report.double) == (60, 0, 0)


async def test_its_playbooks_say_what_they_said(log: MemoryLog) -> None:
    newest = ledger.latest(log)
    assert (newest.version, newest.origin, newest.batch, newest.batch_sequence) == (7, "revoke", None, 3)
    (third, *_) = [one for one in ledger.versions(log) if one.version == 3]
    batch = batch_of(third)
    assert (batch.plan.reflections, batch.plan.widths, batch.usage.calls, batch.degraded) == (
        10,
        (3, 2, 1),
        5,
        False,
    )
    assert (batch.plan.base_version, batch.plan.staleness, batch.retention) == (2, 0, (1.0, 1.0, 1.0, 1.0))
    assert batch_of(ledger.versions(log, GEPA)[0]).plan.settings.method == "gepa"


async def test_its_lineage_leads_from_an_entry_to_the_run(log: MemoryLog) -> None:
    (entry, *_) = [one for one in ledger.versions(log)[2].entries if one.content == "lesson 1"]
    found = await lineage(log, NAME, entry.id, traces=True, on_progress=lambda _t, _r, _n: None)
    assert {one.sequence for one in found.sources} <= {1, 2, 3}
    assert [one.reflection for one in found.sources] != [None]


async def test_what_it_began_is_finished() -> None:
    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    deployment.model.answer = answer
    fill(deployment.log, FIRST_DUMP)
    before = {topic.name: len(ledger.records(deployment.log, topic)) for topic in topics.SCAN}
    await finished(deployment)
    for name in (HALF_DONE, UNTOUCHED):
        newest = ledger.latest(deployment.log, name)
        assert {entry.content for entry in newest.entries} == lessons(range(10))
        assert (newest.version, batch_of(newest).degraded) == (1, False)
    assert len(ledger.records(deployment.log, topics.GROUPS)) == before["scan.0"], "no group was cut again"
    # The untouched batch has three leaves; each has a combine of two and a root. Answered leaves are not asked again.
    assert deployment.model.calls == 3 + 2 * 2
    assert (await audit(deployment.log)).good
    assert {one.plan.sha256 for one in ledger.messages(deployment.log, topics.BATCHES, Batch)} == {""}
