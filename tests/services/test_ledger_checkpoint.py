"""A ledger that goes on from a checkpoint says what one says that reads everything, whatever has happened."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from combee.adapters.ports import FencedError, Outgoing, PoisonError, TopicPartition
from combee.core.log.ledger import Checkpoint, CheckpointError, LedgerReport, sealed, unsealed
from combee.log.commands.dead_letters import Filters, drop, retry
from combee.log.inspection.audit import Account, account, audit
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.dead_letter import LetterId
from combee_schemas.model import Prompt
from combee_schemas.plan import BranchSettings
from combee_schemas.trace import Trace
from support import ledger
from support.branches import FORK, LINE, SAME
from support.deployment import ROLES, Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, outgoing, records, reflection
from support.models import ScriptedModel, echo, is_control

pytestmark = pytest.mark.usefixtures("quick_polls")

SEEDS = range(6)
"""More of them find more."""
STEPS = 14
BATCH = 5
NAMES = ("p0", "p1")
AGAIN = (topics.REFLECTIONS, topics.SCAN[0], topics.UPDATES, topics.COMMANDS, topics.TRACES)


def said(report: LedgerReport) -> LedgerReport:
    """Return a report without how it was come by."""
    return report.model_copy(update={"continued_from_ms": None, "conflicts": tuple(sorted(report.conflicts))})


class Story:
    """What happens to a deployment, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        choose = self.rng.choice
        self.badness = choose([0.0, 0.1, 0.3])
        self.deployment = Deployment(
            model=ScriptedModel(self.answer),
            partitions=choose([1, 2]),
            batch_size=choose([2, 5]),
            max_inflight_batches=choose([1, 3]),
            max_wait_s=20,
        )
        self.insight = choose([{}, {"key_insight": SAME}])
        self.number = 0

    def answer(self, prompt: Prompt) -> Mapping[str, Any]:
        """Answer, or fail for good: the same prompt always has the same fate."""
        if Random(prompt.user).random() < self.badness:
            raise PoisonError("no use")
        return echo(prompt)

    async def publish_new(self) -> None:
        """Publish new reflections."""
        for _ in range(self.rng.randint(1, 12)):
            self.number += 1
            await self.deployment.log.produce(
                outgoing(reflection(self.number, self.rng.choice(NAMES), **self.insight))
            )

    async def publish(self) -> None:
        """Publish new reflections, repeats with the same or other content, on any partition; and poison."""
        for _ in range(self.rng.randint(1, 12)):
            self.number += 1
            number = self.number if self.rng.random() < 0.9 else self.rng.randint(1, self.number)
            fields = {"key_insight": "other"} if self.rng.random() < 0.02 else self.insight
            sent = outgoing(reflection(number, self.rng.choice(NAMES), **fields))
            foreign = self.rng.randrange(self.deployment.partitions) if self.rng.random() < 0.1 else None
            await self.deployment.log.produce(replace(sent, partition=foreign))
        if self.rng.random() < 0.2:
            poisoned = self.rng.choice((topics.REFLECTIONS, topics.TRACES, topics.BATCHES, topics.HISTORY))
            await self.deployment.log.produce(Outgoing(topic=poisoned.name, key=b"p0", value=b"\xc1 poison"))

    async def trace(self) -> None:
        """Publish traces."""
        for _ in range(self.rng.randint(1, 4)):
            self.number += 1
            trace = Trace(trace_id=f"t{self.number}", playbook=self.rng.choice(NAMES), task="?", answer="!")
            await self.deployment.log.produce(topics.TRACES.record(trace))

    async def repeat(self) -> None:
        """Write records a second time."""
        known = records(self.deployment.log, self.rng.choice(AGAIN))
        for record in self.rng.sample(known, min(2, len(known))):
            again = Outgoing(
                topic=record.topic, key=record.key, value=record.value, partition=record.partition
            )
            await self.deployment.log.produce(again)

    async def command(self) -> None:
        """Ask for something."""
        kind = self.rng.choice(["rollback", "revoke", "branch", "promote", "flush", "delete"])
        name = self.rng.choice(NAMES)
        fields: dict[str, Any] = {}
        made = ledger.versions(self.deployment.log, name)
        match kind:
            case "rollback" | "promote":
                fields = {"version": self.rng.randint(1, max(1, len(made)))}
                fields |= {"label": "prod"} if kind == "promote" else {}
            case "revoke":
                fields = {"reflection_ids": (f"r-{self.rng.randint(1, self.number + 1)}",)}
            case "branch":
                fields = {"branch": "short", "settings": BranchSettings(batch_size=2)}
            case "flush":
                fields = {"through_offset": self.rng.randint(0, 60)}
            case "delete":
                name = f"{name}@short"
        self.number += 1
        command = Command(command_id=f"c{self.number}", playbook=name, kind=kind, **fields)
        await self.deployment.log.produce(outgoing(command))

    async def decide(self) -> None:
        """Send dead letters again, or drop them."""
        log, clock = self.deployment.log, self.deployment.clock
        if self.rng.random() < 0.5:
            await retry(log, clock, Filters())
        else:
            letters = [
                record
                for record in records(log, topics.DEAD_LETTERS)
                if b"dead-letter" in (record.value or b"")
            ]
            ids = [LetterId(partition=letter.partition, offset=letter.offset) for letter in letters]
            await drop(log, clock, ids[-3:], note="no use")

    async def live(self, *, kill: bool = True) -> None:
        """Run for a moment; some process may die."""
        dying = self.rng.choice([(), (), ROLES, ("shuffle",), ("publish",), ("scan",)] if kill else [()])
        failpoint = CrashFailpoint(self.rng.randint(1, 12))
        run = self.deployment.running
        others = [role for role in ROLES if role not in dying]
        async with run(others), run(dying, failpoint=failpoint):
            self.deployment.advance(self.rng.choice([0, 25]))
            with suppress(TimeoutError, CrashError, FencedError):
                await self.deployment.until(lambda: not ledger.behind(self.deployment.log), 0.1)

    async def step(self) -> None:
        """Let something happen."""
        acts = [self.publish, self.publish, self.trace, self.repeat, self.command, self.decide]
        await self.rng.choice(acts)()
        if self.rng.random() < 0.8:
            await self.live()

    async def ordinary_step(self) -> None:
        """Let something happen that reaches back to nothing that is done."""
        await self.rng.choice([self.publish_new, self.publish_new, self.trace, self.roll_back])()
        if self.rng.random() < 0.8:
            await self.live(kill=False)

    async def roll_back(self) -> None:
        """Roll a playbook back."""
        self.number += 1
        name = self.rng.choice(NAMES)
        command = Command(command_id=f"c{self.number}", playbook=name, kind="rollback", version=1)
        await self.deployment.log.produce(outgoing(command))


async def read_on(story: Story, before: Checkpoint | None) -> tuple[Account, Checkpoint | None]:
    """Compare a ledger from a checkpoint with one of everything; return it, and the next checkpoint."""
    log = story.deployment.log
    read = await account(log, before, now_ms=1)
    assert said(read.report) == said(await audit(log))
    kept = read.checkpoint or before
    return read, kept and unsealed(sealed(kept))


@pytest.mark.parametrize("seed", SEEDS)
async def test_it_says_what_a_full_reading_says(seed: int) -> None:
    story, kept, continued = Story(seed), None, 0
    for _ in range(STEPS):
        await story.step()
        read, kept = await read_on(story, kept)
        continued += read.report.continued_from_ms is not None
    assert continued


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_done_is_not_read_again_unless_something_reaches_back_to_it(seed: int) -> None:
    story = Story(seed)
    _, kept = await read_on(story, None)
    for _ in range(STEPS):
        await story.ordinary_step()
        read, kept = await read_on(story, kept)
        assert (read.remark, read.report.continued_from_ms) == ("", 1)


# ---- single cases


async def learned(count: int = BATCH, **settings: Any) -> Deployment:
    """Return a deployment that has learned from so many reflections."""
    deployment = Deployment(batch_size=BATCH, **settings)
    await learn(deployment, range(count))
    return deployment


async def learn(deployment: Deployment, numbers: Iterable[int]) -> None:
    await deployment.log.produce(*(outgoing(reflection(number)) for number in numbers))

    def is_done() -> bool:
        deployment.advance(60)
        return not ledger.behind(deployment.log)

    async with deployment.running():
        await deployment.until(is_done)


async def kept(deployment: Deployment) -> Checkpoint:
    read = await account(deployment.log, now_ms=1)
    assert read.checkpoint is not None
    return read.checkpoint


async def continued(deployment: Deployment, before: Checkpoint) -> LedgerReport:
    """Return what a reading says that need not read everything, which is what one of everything says."""
    read = await account(deployment.log, before, now_ms=2)
    assert (read.remark, read.report.continued_from_ms) == ("", 1)
    assert said(read.report) == said(await audit(deployment.log))
    return read.report


async def test_a_dead_letter_from_before_the_checkpoint_can_be_dropped_after_it() -> None:
    def fails(prompt: Prompt) -> Mapping[str, Any]:
        if "lesson 2" in prompt.user or is_control(prompt):
            raise PoisonError("no use")
        return echo(prompt)

    deployment = await learned(model=ScriptedModel(fails), copies=1)
    before = await kept(deployment)
    assert (await continued(deployment, before)).dropped == 0
    await drop(deployment.log, deployment.clock, [LetterId(partition=0, offset=0)], note="no use")
    assert (await continued(deployment, before)).dropped == 1


async def test_a_dead_letter_from_before_the_checkpoint_can_be_sent_again_after_it() -> None:
    model = ScriptedModel()

    def fails(prompt: Prompt) -> Mapping[str, Any]:
        if "lesson 2" in prompt.user or is_control(prompt):
            raise PoisonError("no use")
        return echo(prompt)

    model.answer = fails
    deployment = await learned(model=model, copies=1)
    before = await kept(deployment)
    model.answer = echo
    await retry(deployment.log, deployment.clock, Filters())
    assert (await continued(deployment, before)).pending > 0
    await learn(deployment, [BATCH])
    report = await continued(deployment, before)
    assert (report.dead_lettered, report.pending) == (0, 0)


async def test_what_nobody_can_read_is_judged_once_it_is_passed() -> None:
    deployment = await learned()
    await deployment.log.produce(Outgoing(topic=topics.REFLECTIONS.name, key=NAME.encode(), value=b"\xc1"))
    before = await kept(deployment)
    await learn(deployment, range(BATCH, 2 * BATCH))
    assert (await continued(deployment, before)).applied == 2 * BATCH


async def test_conflicts_from_before_the_checkpoint_stay_in_the_report() -> None:
    deployment = await learned()
    flush = Command(command_id="c", playbook=NAME, kind="flush", through_offset=0)
    for sent in (flush, flush.model_copy(update={"through_offset": 1}), reflection(10, key_insight="other")):
        await deployment.log.produce(outgoing(sent))
    await learn(deployment, range(10, 10 + BATCH))
    before = await kept(deployment)
    await learn(deployment, range(20, 20 + BATCH))
    assert len((await continued(deployment, before)).conflicts) == 2


async def test_a_fork_that_was_open_at_the_checkpoint_may_be_published_after_it() -> None:
    deployment = await learned()
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.batches(deployment.log, LINE)) == 1)
    before = await kept(deployment)
    async with deployment.running():
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
    assert (await account(deployment.log, before)).report.good


async def test_a_reflection_lost_after_the_checkpoint_is_found() -> None:
    deployment = await learned()
    before = await kept(deployment)
    await deployment.log.produce(outgoing(reflection(99)))
    for source in deployment.log._store.committed["shuffle"]:
        end = (await deployment.log.ends(source.topic))[source.partition]
        deployment.log._store.committed["shuffle"][source] = end
    read = await account(deployment.log, before)
    assert (read.report.lost, read.report.good, read.checkpoint) == (1, False, None)
    assert said(read.report) == said(await audit(deployment.log))


async def test_a_reflection_counted_again_after_the_checkpoint_is_found() -> None:
    deployment = await learned()
    before = await kept(deployment)
    (batch,) = ledger.batches(deployment.log)
    again = batch.model_copy(update={"plan": batch.plan.model_copy(update={"sequence": 2})})
    await deployment.log.produce(topics.BATCHES.record(again))
    read = await account(deployment.log, before)
    assert (read.report.double, read.checkpoint) == (BATCH, None)


async def test_a_checkpoint_of_another_log_is_refused() -> None:
    deployment, other = await learned(), await learned()
    other.clock.advance(60)
    before = await kept(deployment)
    elsewhere = Deployment(batch_size=BATCH)
    elsewhere.clock.advance(60)
    await learn(elsewhere, range(2 * BATCH))
    read = await account(elsewhere.log, before)
    assert "another log" in read.remark
    assert (read.report.good, read.report.applied) == (True, 2 * BATCH)
    shorter = await account(Deployment().log, before)
    assert "ends before" in shorter.remark


async def test_a_log_that_was_changed_under_its_checkpoint_is_recognised() -> None:
    deployment = await learned()
    before = await kept(deployment)
    for partition in deployment.log._store.partitions(topics.HISTORY.name):
        for at, slot in enumerate(partition.slots):
            if slot.record is not None:
                partition.slots[at] = replace(slot, record=replace(slot.record, timestamp_ms=77))
    assert "another log" in (await account(deployment.log, before)).remark


async def test_records_that_expired_before_they_were_read_ask_for_a_full_reading() -> None:
    deployment = await learned()
    before = await kept(deployment)
    await learn(deployment, range(BATCH, 2 * BATCH))
    for number, partition in enumerate(deployment.log._store.partitions(topics.REFLECTIONS.name)):
        deployment.log.expire(TopicPartition(topic=topics.REFLECTIONS.name, partition=number), partition.end)
    assert "expired" in (await account(deployment.log, before)).remark


async def test_what_expires_after_it_was_counted_stays_counted() -> None:
    deployment = await learned()
    before = await kept(deployment)
    for number, partition in enumerate(deployment.log._store.partitions(topics.REFLECTIONS.name)):
        deployment.log.expire(TopicPartition(topic=topics.REFLECTIONS.name, partition=number), partition.end)
    await learn(deployment, range(BATCH, 2 * BATCH))
    read = await account(deployment.log, before)
    assert (read.remark, read.report.applied) == ("", 2 * BATCH)


async def test_a_damaged_checkpoint_is_none() -> None:
    text = sealed(await kept(await learned()))
    assert unsealed(text)
    for damaged in (
        "",
        text[:-40],
        text.replace('applied\\":5', 'applied\\":6'),
        '{"sha256": "", "checkpoint": "{}"}',
    ):
        with pytest.raises(CheckpointError):
            unsealed(damaged)
