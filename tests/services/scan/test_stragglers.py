"""Not waiting for a late group: what the combine says of it, what becomes of its call, and who pays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.log.inspection.audit import audit
from combee.process.worker.session import together
from combee.scan.handler import ScanHandler
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.command import Command
from combee_schemas.scan import Partial, Update
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batch_of, dead_letters, lessons, outgoing, reflection
from support.models import LateModel, ModelClient, ScriptedModel, is_combine

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT, K = 9, 3
NUMBERS = range(COUNT)
PUBLISHED = {NAME: [reflection(number) for number in NUMBERS]}


@asynccontextmanager
async def running(
    model: ScriptedModel, *roles: str, stragglers: bool = True, **batch: Any
) -> AsyncIterator[Deployment]:
    deployment = Deployment(model=model, batch_size=COUNT, stragglers=stragglers, **batch)
    await deployment.log.produce(*map(outgoing, PUBLISHED[NAME]))
    async with deployment.running(roles or ("publish", "scan", "shuffle")):
        yield deployment


async def settled(deployment: Deployment) -> None:
    await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    await deployment.until(lambda: not ledger.behind(deployment.log))


def update(log: MemoryLog) -> Update:
    (found,) = ledger.messages(log, topics.UPDATES, Update)
    return found


def partials(log: MemoryLog) -> list[Partial]:
    return ledger.messages(log, topics.SCAN[1], Partial)


async def check(deployment: Deployment) -> None:
    ledger.check(deployment.log, PUBLISHED)
    entries = ledger.latest(deployment.log).entries
    assert {entry.content for entry in entries} == lessons(NUMBERS)
    assert dead_letters(deployment.log) == []
    report = await audit(deployment.log)
    assert report.good, report.violations
    calls = report.model_calls
    assert calls.made == calls.planned - calls.skips + calls.splits + calls.re_asks + calls.hedges


async def test_a_late_group_is_left_out_named_cancelled_and_paid() -> None:
    model = LateModel()
    async with running(model) as deployment:
        await settled(deployment)
    result = update(deployment.log).result
    missing = set(range(K)) - {partial.index for partial in partials(deployment.log)}
    assert set(result.left_out) == missing
    assert len(missing) == 1
    assert model.cancelled == 1
    assert model.calls == K + 1
    below = sum((partial.result.usage for partial in partials(deployment.log)), Usage())
    late = Usage(calls=1, left_out=1, tokens_in=round(below.tokens_in / 2), seconds=below.seconds / 2)
    own = result.usage.tokens_in - below.tokens_in - late.tokens_in
    assert result.usage == below + late + Usage(calls=1, tokens_in=own)
    await check(deployment)


async def test_no_reflection_of_a_late_group_counts_as_omitted() -> None:
    async with running(LateModel()) as deployment:
        await settled(deployment)
    version = ledger.latest(deployment.log)
    assert version.retention_recent == (1.0,)
    assert not batch_of(version).degraded
    assert all(entry.evidence_count == 1 for entry in ledger.latest(deployment.log).entries)


@pytest.mark.parametrize(("stragglers", "copies"), [(False, 2), (True, 1)], ids=["off", "one copy"])
async def test_otherwise_the_combine_waits(stragglers: bool, copies: int) -> None:  # noqa: FBT001
    model = LateModel()
    async with running(model, stragglers=stragglers, copies=copies) as deployment:
        await deployment.until(lambda: len(partials(deployment.log)) == K - 1)
        await deployment.until(lambda: ("scan", "scan.1", home(deployment)) in ledger.behind(deployment.log))
        assert not any(map(is_combine, model.prompts))
        model.late.set()
        await settled(deployment)
    assert update(deployment.log).result.left_out == ()
    assert model.cancelled == 0
    await check(deployment)


def home(deployment: Deployment) -> int:
    """Return the partition of the children of the root."""
    return next(record.partition for record in ledger.records(deployment.log, topics.SCAN[1]))


def open_groups(deployment: Deployment) -> list[tuple[str, str, int]]:
    return [key for key in ledger.behind(deployment.log) if key[:2] == ("scan", "scan.0")]


async def test_what_comes_late_is_dropped_by_its_id() -> None:
    model = LateModel()
    async with running(model, "scan", "shuffle") as deployment:
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.UPDATES, Update)))
        await deployment.until(lambda: len(open_groups(deployment)) < 2)
        assert open_groups(deployment), "no version holds the batch yet: its record must stay open"
        model.late.set()
        await deployment.until(lambda: len(partials(deployment.log)) == K)
        await deployment.until(lambda: not [key for key in ledger.behind(deployment.log) if key[0] == "scan"])
        async with deployment.running(["publish"]):
            await settled(deployment)
    assert len(update(deployment.log).result.left_out) == 1
    assert model.cancelled == 0
    assert sum(map(is_combine, model.prompts)) == 1
    await check(deployment)


async def test_a_worker_that_dies_before_the_version_asks_nobody_again() -> None:
    model = LateModel()
    async with running(model, "scan", "shuffle") as deployment:
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.UPDATES, Update)))
    assert model.cancelled == 1  # it died
    async with deployment.running(["scan"]):
        await deployment.until(lambda: "scan" not in {group for group, *_ in ledger.behind(deployment.log)})
        async with deployment.running(["publish"]):
            await settled(deployment)
    assert model.calls == K + 1, "the root's record says that nobody waits for the group"
    await check(deployment)


async def test_the_late_call_is_cancelled_on_another_worker_too() -> None:
    """Another worker has the late group and sees nothing of the root: the version tells it."""
    model, others = LateModel(), LateModel()
    async with running(model, "scan", "shuffle") as deployment:
        other = ScanHandler(deployment.log, ModelClient(others), deployment.clock)
        view = asyncio.create_task(together(other.playbooks.view.run(), other.manifests.run()))
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.UPDATES, Update)))
        (late,) = update(deployment.log).result.left_out
        groups = (
            (topics.GROUPS.read(one).index, one) for one in ledger.records(deployment.log, topics.GROUPS)
        )
        task = asyncio.create_task(other.handle(dict(groups)[late]))
        await deployment.until(lambda: others.held is not None)
        async with deployment.running(["publish"]):
            await settled(deployment)
            await deployment.until(task.done)
        assert task.result() is None  # its record may be committed
        assert others.cancelled == 1
        view.cancel()
        await asyncio.gather(view, return_exceptions=True)
    await check(deployment)


async def test_a_replay_takes_coverage_from_the_record() -> None:
    model = ScriptedModel()
    deployment = Deployment(model=model, batch_size=COUNT + 1, stragglers=True)
    flush = Command(command_id="f", playbook=NAME, kind="flush", through_offset=COUNT - 1, left_out=(1,))
    await deployment.log.produce(*map(outgoing, PUBLISHED[NAME]), outgoing(flush))
    async with deployment.running():
        await settled(deployment)
    result = update(deployment.log).result
    assert result.left_out == (1,)
    assert model.calls == K  # two groups and the combine
    assert (result.usage.skips, result.usage.left_out) == (1, 0)
    assert {partial.index for partial in partials(deployment.log)} == {0, 2}
    await check(deployment)


async def test_a_late_sub_tree_is_left_out_as_a_whole() -> None:
    """Of 25 reflections in 5, 3, 1 nodes no sub-tree can be missed: inner nodes wait, and so does the root."""
    model = LateModel()
    deployment = Deployment(model=model, batch_size=25, fan_in=2, stragglers=True, budget_tokens=10**6)
    published = {NAME: [reflection(number) for number in range(25)]}
    await deployment.log.produce(*map(outgoing, published[NAME]))
    async with deployment.running():
        await deployment.until(lambda: len(partials(deployment.log)) == 4)
        assert not ledger.messages(deployment.log, topics.UPDATES, Update)
        model.late.set()
        await deployment.until(lambda: ledger.applied(deployment.log) == 25)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert update(deployment.log).result.left_out == ()
    ledger.check(deployment.log, published)
