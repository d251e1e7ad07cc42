"""A playbook that a person pauses costs nothing meanwhile, holds up no other, and loses nothing."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from structlog.testing import capture_logs

from combee.cli.learn.learning import Learning
from combee.core.names.tenants import NO_LIMITS
from combee.core.playbook.spend import UNCAPPED
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands
from combee.log.inspection.audit import audit
from combee.log.inspection.branches import lines_today
from combee.log.inspection.tracker import PausedError
from combee.log.reports.cost import pause_texts, today_fields
from combee_schemas import topics
from combee_schemas.base import DAY_MS
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batches, latest, outgoing, records, reflection, versions

pytestmark = pytest.mark.usefixtures("quick_polls")

OTHER = "other"
REFLECTED = ("reflect", topics.TRACES.name)


def trace(number: int, playbook: str) -> Trace:
    return Trace(
        trace_id=f"{playbook}-{number}",
        playbook=playbook,
        task=f"task {number}",
        trajectory=f"tried {number}",
        answer="5",
        feedback=f"Wrong: lesson {number}.",
        success=False,
    )


async def send(deployment: Deployment, playbook: str, numbers: range) -> None:
    await deployment.log.produce(*(topics.TRACES.record(trace(n, playbook)) for n in numbers))


def reflected(deployment: Deployment, playbook: str) -> int:
    """Return how many reflections on traces of a playbook are in the log."""
    return sum(
        bool(message.trace_id) and message.playbook == playbook
        for record in records(deployment.log, topics.REFLECTIONS)
        if (message := topics.REFLECTIONS.read_or_none(record))
    )


def commands(deployment: Deployment) -> Commands:
    return Commands(deployment.log, LogStore(deployment.log), deployment.clock, issued_by="user:me")


async def pause(deployment: Deployment, name: str = NAME, until_ms: int | None = None) -> None:
    prepared = await commands(deployment).pause(name, until_ms)
    assert prepared.command is not None
    assert await commands(deployment).carried_out(prepared.command, 10) is not None


async def resume(deployment: Deployment, name: str = NAME) -> None:
    prepared = await commands(deployment).resume(name)
    assert prepared.command is not None
    assert await commands(deployment).carried_out(prepared.command, 10) is not None


def learned(deployment: Deployment, name: str, count: int) -> bool:
    return ledger.applied(deployment.log, name) == count


async def start(deployment: Deployment, names: Sequence[str] = (NAME, OTHER)) -> None:
    """Have playbooks that can be paused."""
    for name in names:
        await deployment.log.produce(*(outgoing(reflection(n, name)) for n in range(5)))
        await deployment.until(partial(learned, deployment, name, 5))


async def test_a_paused_playbook_asks_no_model_while_others_learn_and_resume_loses_nothing() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await start(deployment)
        await pause(deployment)
        asked = deployment.model.calls
        await send(deployment, NAME, range(20))
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(5, 10)))
        await deployment.until(lambda: len(passed(deployment)) > 0)
        assert deployment.model.calls == asked, "a pause costs nothing"
        await send(deployment, OTHER, range(20, 25))
        await deployment.until(lambda: ledger.applied(deployment.log, OTHER) == 10)
        assert ledger.applied(deployment.log) == 5
        assert reflected(deployment, NAME) == 0
        await resume(deployment)
        await deployment.until(lambda: ledger.applied(deployment.log) == 30)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert reflected(deployment, NAME) == 20
    assert (await audit(deployment.log)).violations == ()


def passed(deployment: Deployment) -> list[str]:
    """Return the notes with which reflect's offsets are committed, where it passes traces over."""
    return [note for note in deployment.log._store.notes.get("reflect", {}).values() if note]


@pytest.mark.parametrize("during", ["the pause", "the taking up"])
async def test_restarts_lose_nothing_that_a_pause_holds_back_and_pay_for_nothing_twice(during: str) -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await start(deployment)
        await pause(deployment)
        await send(deployment, NAME, range(20))
        await send(deployment, OTHER, range(20, 25))
        await deployment.until(lambda: ledger.applied(deployment.log, OTHER) == 10)
        await deployment.until(lambda: all_noted(deployment))
    if during == "the pause":
        asked = deployment.model.calls
        async with deployment.running():
            await send(deployment, OTHER, range(30, 35))
            await deployment.until(lambda: ledger.applied(deployment.log, OTHER) == 15)
        assert reflected(deployment, OTHER) == 10
        assert reflected(deployment, NAME) == 0
        assert deployment.model.calls <= asked + 5 + 10, "what was done is not asked again"
    async with deployment.running():
        await resume(deployment)
        await deployment.until(lambda: reflected(deployment, NAME) >= 5)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 25)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert (await audit(deployment.log)).violations == ()
    assert passed(deployment) == []


def all_noted(deployment: Deployment) -> bool:
    """Return whether the loop itself has come to the end of each partition with something passed over."""
    ends = {number: p.stable for number, p in enumerate(deployment.log._store.partitions(REFLECTED[1]))}
    known = deployment.log._store.notes.get("reflect", {})
    return all(f'"next":{ends[source.partition]},' in note for source, note in known.items() if note)


async def test_a_pause_ends_by_itself_and_one_without_a_time_before_traces_expire() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await start(deployment)
        with capture_logs() as logs:
            await pause(deployment)
            order = latest(deployment.log).paused
            assert order is not None
            assert order.by_retention
            assert order.until_ms <= deployment.clock.now_ms() + 6 * DAY_MS
            await send(deployment, NAME, range(5))
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(5, 10)))
            deployment.advance(5.5 * 86_400)
            await deployment.until(lambda: any(one["event"] == "pause_ends_soon" for one in logs))
            assert ledger.applied(deployment.log) == 5
            deployment.advance(0.6 * 86_400)
            await deployment.until(lambda: ledger.applied(deployment.log) == 15)
        await deployment.until(lambda: not ledger.behind(deployment.log))


async def test_a_second_pause_counts_from_what_waits_already() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running(("publish", "scan", "shuffle")):
        await start(deployment)
        await pause(deployment)
        await send(deployment, NAME, range(5))  # nobody reflects
        sent_ms = deployment.clock.now_ms()
        deployment.advance(3 * 86_400)
        await resume(deployment)
        await pause(deployment)
        order = latest(deployment.log).paused
        assert order is not None
        assert order.until_ms == sent_ms + 6 * DAY_MS


async def test_a_branch_waits_with_its_playbook() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await start(deployment, [NAME])
        forked = await commands(deployment).branch(NAME, "exp", {"batch_size": 2})
        assert forked.command is not None
        assert await commands(deployment).carried_out(forked.command, 10) is not None
        await pause(deployment)
        cut = len(batches(deployment.log))
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(5, 11)))
        assert deployment.shuffler is not None
        await deployment.until(lambda: deployment.shuffler.held()["pause"] == 12)  # type: ignore[union-attr]
        assert len(batches(deployment.log)) == cut
        await resume(deployment)
        deployment.advance(2)
        await deployment.until(lambda: len(versions(deployment.log, f"{NAME}@exp")) > 1)


async def test_status_names_a_pause_its_end_and_what_ends_it() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await start(deployment, [NAME])
        await pause(deployment)
    known = await lines_today(deployment.log, deployment.clock.now_ms(), 5, UNCAPPED, NO_LIMITS)
    (text,) = pause_texts({NAME: today_fields(known.today[NAME])["paused"]})
    assert "by user:me" in text
    assert "2023-11-20" in text
    assert f"'combee playbook resume {NAME}'" in text


async def test_learn_does_not_wait_for_a_paused_playbook_and_names_what_ends_the_pause() -> None:
    deployment = Deployment(batch_size=5)
    learning = Learning(deployment.log, None, deployment.clock, concurrency=1)
    async with deployment.running():
        await start(deployment, [NAME])
        await pause(deployment)
        ticking = asyncio.create_task(tick(deployment))
        try:
            with pytest.raises(PausedError, match=f"combee playbook resume {NAME}"):
                await learning.run([trace(1, NAME)], NAME, stall_s=60)
        finally:
            ticking.cancel()


async def tick(deployment: Deployment) -> None:
    while True:
        deployment.advance(1)
        await asyncio.sleep(0.01)
