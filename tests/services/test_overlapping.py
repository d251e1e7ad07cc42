"""Batches that overlap: applied in order, rebased, never staler than allowed, and nothing lost on the way."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry
from combee_schemas.scan import Group, Operation, OperationKind, Update
from support import ledger
from support.clock import ManualClock
from support.deployment import DEADLINE_S, Deployment
from support.flat import flat
from support.ledger import (
    NAME,
    batch_of,
    batches,
    dead_letters,
    latest,
    lessons,
    outgoing,
    reflection,
    versions,
)
from support.models import ScriptedModel, items
from support.planned import PlanningDeployment
from support.shuffling import Shuffling, shuffling

pytestmark = pytest.mark.usefixtures("quick_polls")

SIZE = 5
COUNT = 3 * SIZE
PUBLISHED = {NAME: [reflection(n) for n in range(COUNT)]}


class Withholding(ScriptedModel):
    """Answers whoever asks about a withheld lesson only when it is told to."""

    def __init__(self, withheld: Collection[str]) -> None:
        super().__init__()
        self._withheld = frozenset(withheld)
        self.tell = asyncio.Event()

    async def reply(self, prompt: Prompt) -> Reply:
        if self._withheld & {item.get("key_insight") for item in items(prompt)}:
            await self.tell.wait()
        return await super().reply(prompt)


def overlapping(model: ScriptedModel | None = None, **fields: Any) -> Deployment:
    return Deployment(model=model, **{"batch_size": SIZE, "max_inflight_batches": 3, **fields})


def late_first() -> tuple[Withholding, Deployment]:
    """Return a deployment whose first batch gets no answers until it is told."""
    model = Withholding(lessons(range(SIZE)))
    return model, overlapping(model, batch_timeout_s=300, retries=1)


async def publish(deployment: Deployment) -> None:
    await deployment.log.produce(*map(outgoing, PUBLISHED[NAME]))


def updates(deployment: Deployment) -> list[Update]:
    found = ledger.messages(deployment.log, topics.UPDATES, Update)
    return [one for one in found if one.plan.playbook == NAME]


async def until_held(deployment: Deployment) -> None:
    """Wait until the updates of the second and third batch wait for the first."""
    await deployment.until(lambda: {one.plan.sequence for one in updates(deployment)} == {2, 3})
    last = Outgoing(topic="updates", value=b"after them", partition=1)
    await deployment.log.produce(last)
    known = len(dead_letters(deployment.log))
    await deployment.until(lambda: len(dead_letters(deployment.log)) > known)
    assert versions(deployment.log) == []


async def settle(deployment: Deployment) -> None:
    await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    await deployment.until(lambda: not ledger.behind(deployment.log))


async def check(deployment: Deployment) -> None:
    ledger.check(deployment.log, PUBLISHED)
    assert (await audit(deployment.log)).violations == ()
    assert {entry.content for entry in latest(deployment.log).entries} == lessons(range(COUNT))


async def test_batches_overlap_and_every_version_says_how_stale_its_base_was() -> None:
    deployment = overlapping()
    deployment.model.gate.clear()
    async with deployment.running():
        await publish(deployment)
        await deployment.until(lambda: len(batches(deployment.log)) == 3)
        deployment.model.gate.set()
        await settle(deployment)
    await check(deployment)
    made = versions(deployment.log)
    assert [(one.batch_sequence, batch_of(one).plan.base_version, batch_of(one).plan.staleness) for one in made] == [
        (1, 0, 0), (2, 0, 1), (3, 0, 2)
    ]  # fmt: skip


async def test_later_batches_wait_for_a_late_earlier_one() -> None:
    model, deployment = late_first()
    async with deployment.running():
        await publish(deployment)
        await until_held(deployment)
        model.tell.set()
        await settle(deployment)
    await check(deployment)


async def test_what_rests_on_an_entry_that_vanished_meanwhile_is_dropped_and_the_rest_applies() -> None:
    entry = Entry(id="misc-00001", section="OTHERS", content="old advice")
    imported = Command(command_id="i", playbook=NAME, kind="import", entries=(entry,))
    remove = Operation(kind=OperationKind.REMOVE, entry_ids=(entry.id,))
    reword = Operation(kind=OperationKind.UPDATE, content="older advice", entry_ids=(entry.id,))
    add = Operation(kind=OperationKind.ADD, section="OTHERS", content="new advice")
    deployment = PlanningDeployment(batch_size=SIZE, max_inflight_batches=3)
    async with deployment.running(["publish"]):
        await deployment.log.produce(outgoing(imported))
        await deployment.until(lambda: len(versions(deployment.log)) == 1)
        await deployment.log.produce(outgoing(update(2, reword, add)), outgoing(update(1, remove)))
        await deployment.until(lambda: len(versions(deployment.log)) == 3)
    last = latest(deployment.log)
    assert [one.content for one in last.entries] == ["new advice"]
    assert [(one.kind, one.entry_id) for one in last.changes] == [
        ("dropped", entry.id), ("add", "misc-00002")
    ]  # fmt: skip
    assert (batch_of(last).plan.base_version, batch_of(last).plan.staleness) == (1, 1)


def update(sequence: int, *operations: Operation) -> Update:
    plan = {"batch_id": f"b{sequence}", "playbook": NAME, "sequence": sequence, "widths": (1,)}
    whole = {**plan, "base_version": 1, "reflections": 1}
    return flat(Update, plan=whole, node_id="n", status="ok", operations=operations)


async def test_a_stuck_batch_is_emitted_again_while_later_ones_wait_and_no_call_is_paid_twice() -> None:
    model, deployment = late_first()
    async with deployment.running():
        await publish(deployment)
        await until_held(deployment)
        groups = len(ledger.messages(deployment.log, topics.SCAN[0], Group))
        deployment.advance(301)
        await deployment.until(
            lambda: len(ledger.messages(deployment.log, topics.SCAN[0], Group)) == 2 * groups
        )
        model.tell.set()
        await settle(deployment)
    await check(deployment)
    assert deployment.model.calls == ledger.planned_calls(deployment.log)


async def wait_out(deployment: Deployment, seconds: int) -> None:
    """Let time pass, with a sign every half minute that the model answers somebody."""
    assert deployment.shuffler is not None
    for tick in range(seconds // 30):
        number = COUNT + tick + int(deployment.clock.monotonic())
        await deployment.log.produce(outgoing(ledger.answered(number, "a")))
        deployment.advance(30)
        await deployment.shuffler.turn()
        # A root is checked in a thread, which this clock does not wait for.
        await deployment.until(
            lambda: len(versions(deployment.log, "a")) == len(batches(deployment.log, "a"))
        )


async def test_a_batch_that_is_given_up_frees_those_behind_it_and_they_are_whole() -> None:
    _, deployment = late_first()
    async with deployment.running():
        await publish(deployment)
        await until_held(deployment)
        await wait_out(deployment, 900)
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    failed = [one.plan.sequence for one in updates(deployment) if one.result.status == "failed"]
    assert failed == [1], "what only waits is not given up"
    assert [batch_of(one).degraded for one in versions(deployment.log)] == [True, False, False]
    assert {one.record_id for one in dead_letters(deployment.log)} - {""} == {f"r-{n}" for n in range(SIZE)}
    assert {one.content for one in latest(deployment.log).entries} == lessons(range(SIZE, COUNT))
    assert (await audit(deployment.log)).violations == ()


async def test_a_degraded_batch_in_the_middle_holds_up_nobody() -> None:
    model = Withholding(lessons(range(SIZE, 2 * SIZE)))
    deployment = overlapping(model, batch_timeout_s=300, retries=0)
    async with deployment.running():
        await publish(deployment)
        await deployment.until(lambda: ledger.applied(deployment.log) == SIZE)
        await wait_out(deployment, 600)
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    assert [batch_of(one).degraded for one in versions(deployment.log)] == [False, True, False]
    assert (await audit(deployment.log)).violations == ()


async def test_a_shuffler_that_restarts_knows_its_three_batches_their_members_and_the_next_number() -> None:
    deployment = overlapping()
    async with deployment.running(["shuffle"]):
        await publish(deployment)
        await deployment.until(lambda: len(batches(deployment.log)) == 3)
    more = [reflection(n) for n in range(COUNT, COUNT + SIZE)]
    async with deployment.running(["shuffle"]):
        await publish(deployment)
        await deployment.log.produce(*map(outgoing, more))
        await deployment.until(lambda: waiting(deployment) == SIZE)
        await deployment.shuffler.turn()  # type: ignore[union-attr]
        assert len(batches(deployment.log)) == 3, "three are in flight already"
        async with deployment.running(["scan", "publish"]):
            await deployment.until(lambda: ledger.applied(deployment.log) == COUNT + SIZE)
            await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: [*PUBLISHED[NAME], *more]})
    assert len(batches(deployment.log)[-1].dropped) == COUNT


def waiting(deployment: Deployment) -> int:
    states = deployment.shuffler._states if deployment.shuffler else {}
    return sum(len(window.waiting) for one in states.values() for window in one.windows.values())


async def test_a_lower_limit_after_a_restart_lets_those_in_flight_finish_first() -> None:
    deployment = overlapping()
    async with deployment.running(["shuffle"]):
        await publish(deployment)
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT, COUNT + SIZE)))
        await deployment.until(lambda: len(batches(deployment.log)) == 3)
    deployment.settings = deployment.settings.model_copy(update={"max_inflight_batches": 1})
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT + SIZE)
    assert [batch_of(one).plan.staleness for one in versions(deployment.log)] == [0, 1, 2, 0]
    assert (await audit(deployment.log)).violations == ()


async def test_the_manifest_says_what_stayed_in_the_window() -> None:
    deployment = overlapping(max_inflight_batches=2)
    await publish(deployment)
    async with deployment.running():
        await settle(deployment)
    assert [one.plan.waiting for one in batches(deployment.log)] == [10, 5, 0]
    assert [batch_of(one).plan.waiting for one in versions(deployment.log)] == [10, 5, 0]


# ---- the bound


STEPS = st.lists(st.sampled_from(["publish", "apply", "restart", "command"]), min_size=5, max_size=25)


@settings(max_examples=15, deadline=None)
@given(limit=st.integers(1, 4), steps=STEPS)
def test_no_batch_is_ever_staler_than_the_batches_in_flight_allow(limit: int, steps: list[str]) -> None:
    made = asyncio.run(story(limit, steps))
    stale = [one.plan.staleness for one in made]
    assert all(0 <= one < limit for one in stale)


async def story(limit: int, steps: list[str]) -> list[Any]:
    """Publish, apply and restart in some order; return the manifests."""
    clock = ManualClock()
    log = MemoryLog(clock, partitions=1, scan_partitions=1)
    version = done = sent = 0
    while steps:
        async with shuffling(log, clock, batch_size=2, max_inflight_batches=limit) as rig:
            while steps and (step := steps.pop()) != "restart":
                if step == "publish":
                    await log.produce(*(outgoing(reflection(n)) for n in range(sent, sent + 5)))
                    sent += 5
                elif step == "command" or done < len(batches(log)):
                    version, done = version + 1, done + (step == "apply")
                    await see(log, rig, version, done)
                await rig.step()
    return list(batches(log))


async def see(log: MemoryLog, rig: Shuffling, version: int, sequence: int) -> None:
    """Publish a version as the publish service does, and let the shuffler see it."""
    playbook = empty(NAME).model_copy(update={"version": version, "batch_sequence": sequence})
    await log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(playbook)))
    async with asyncio.timeout(DEADLINE_S):
        while rig.shuffler.playbooks.latest(NAME).version < version:
            rig.shuffler.wake.clear()
            await rig.shuffler.wake.wait()
