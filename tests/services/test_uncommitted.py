"""Partitions that end with what an agent aborted, or before what it has not decided: all readers cope with that."""

from contextlib import suppress
from pathlib import Path

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.log.inspection.audit import audit
from combee.log.inspection.lag import INPUTS, backlog
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.trace import Trace
from support import ledger
from support.archives import archived, restored
from support.deployment import Deployment
from support.ledger import NAME, lessons, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")


async def aborted(log: MemoryLog, *records: Outgoing) -> None:
    transactor = await log.transactor("an agent")
    with suppress(KeyError):
        async with transactor.transaction() as transaction:
            await transaction.send(*records)
            raise KeyError


def run(number: int) -> Outgoing:
    return topics.TRACES.record(
        Trace(trace_id=f"run-{number}", playbook=NAME, task="t", answer=f"aborted {number}")
    )


async def test_what_is_aborted_is_nowhere_and_nothing_waits_for_it(tmp_path: Path) -> None:
    deployment = Deployment(batch_size=10, partitions=1)
    log = deployment.log
    async with deployment.running():
        await log.produce(outgoing(reflection(0)), outgoing(reflection(1)))
        await aborted(log, outgoing(reflection(2)), outgoing(reflection(3)), run(1))
        end = (await log.ends(topics.REFLECTIONS.name))[0]
        flush = Command(command_id="f", playbook=NAME, kind="flush", through_offset=end - 1)
        await log.produce(outgoing(flush))
        await deployment.until(lambda: ledger.applied(log) == 2)
        await deployment.until(lambda: not ledger.behind(log))
        for group in INPUTS:
            assert (await backlog(log, group, deployment.clock)).lag == 0
    assert (await audit(log)).good
    await archived(log, tmp_path / "archive")
    there = Deployment(batch_size=1, partitions=1)
    await restored(tmp_path / "archive", there.log)
    async with there.running():
        await there.log.produce(outgoing(reflection(9)))
        await there.until(lambda: ledger.applied(there.log) == 3)
    assert {entry.content for entry in ledger.latest(there.log).entries} == lessons([0, 1, 9])
    account = await audit(there.log)
    assert (account.good, account.reflections, account.applied) == (True, 3, 3), account.violations


async def test_behind_an_open_transaction_nothing_is_learned_and_before_it_everything_is() -> None:
    deployment = Deployment(batch_size=1, partitions=1, max_inflight_batches=4)
    log = deployment.log
    transactor = await log.transactor("an agent")
    async with deployment.running():
        await log.produce(outgoing(reflection(0)))
        async with transactor.transaction() as transaction:
            await transaction.send(outgoing(reflection(1)))
            await log.produce(outgoing(reflection(2)))
            await deployment.until(lambda: ledger.applied(log) == 1)
            assert (await audit(log)).good
        await deployment.until(lambda: ledger.applied(log) == 3)
    assert (await audit(log)).good
