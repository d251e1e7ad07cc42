"""Everything at once, drawn from a seed: kills, zombies, repeats, poison, a bad model."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from combee.adapters.ports import FencedError, Outgoing, PoisonError, PromptTooLongError
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.reflection import Reflection
from support import ledger
from support.deployment import ROLES, Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import outgoing, records, reflection
from support.models import ScriptedModel, echo

pytestmark = pytest.mark.usefixtures("quick_polls")

SEEDS = range(2)
"""More of them find more."""
MOST_LIVES = 12
"""Crash points that a process may reach before it dies."""
AGAIN = (topics.REFLECTIONS, topics.SCAN[0], topics.SCAN[1], topics.UPDATES, topics.COMMANDS)
POISONED = (*AGAIN, topics.BATCHES, topics.PLAYBOOKS, topics.HISTORY)


class Chaos:
    """One seed's story."""

    def __init__(self, seed: int, inflight: int) -> None:
        self.rng = Random(seed)
        choose = self.rng.choice
        self.badness = self.rng.random() * 0.3
        self.deployment = Deployment(
            model=ScriptedModel(self.answer),
            partitions=choose([1, 2, 3]),
            batch_size=choose([3, 7, 12]),
            fan_in=choose([2, 3, 32]),
            copies=choose([1, 2, 3]),
            window_memory_bytes=choose([0, 500, 1 << 20]),
            max_inflight_batches=inflight,
            max_wait_s=20,
        )
        names = [f"p{number}" for number in range(self.rng.randint(1, 4))]
        self.published: dict[str, list[Reflection]] = {name: [] for name in names}

    def answer(self, prompt: Prompt) -> Mapping[str, Any]:
        """Answer, fail for good or find the prompt too long: the same prompt always has the same fate."""
        luck = Random(prompt.user).random()
        if luck < self.badness:
            raise PoisonError("no use")
        if luck < 1.5 * self.badness:
            raise PromptTooLongError("too long")
        return echo(prompt)

    def settled(self) -> bool:
        log = self.deployment.log
        applied = (ledger.applied(log, name) == len(some) for name, some in self.published.items())
        return all(applied) and not ledger.behind(log)

    async def publish(self) -> None:
        """Publish new reflections, repeats, records on foreign partitions, poison, flushes."""
        rng, log = self.rng, self.deployment.log
        for _ in range(rng.randint(1, 20)):
            name = rng.choice(list(self.published))
            mine = self.published[name]
            if not mine or rng.random() < 0.8:
                mine.append(reflection(len(mine), name))
                sent = outgoing(mine[-1])
            else:
                sent = outgoing(rng.choice(mine))
            foreign = rng.randrange(self.deployment.partitions) if rng.random() < 0.1 else None
            await log.produce(Outgoing(topic=sent.topic, key=sent.key, value=sent.value, partition=foreign))
        await log.produce(Outgoing(topic=rng.choice(POISONED).name, key=b"p0", value=b"\xc1 poison"))
        twice = rng.choice(AGAIN)
        for one in rng.sample(records(log, twice), min(3, len(records(log, twice)))):
            await log.produce(
                Outgoing(topic=one.topic, key=one.key, value=one.value, partition=one.partition)
            )
        name = rng.choice(list(self.published))
        flush = Command(
            command_id=str(rng.random()), playbook=name, kind="flush", through_offset=rng.randint(0, 40)
        )
        await log.produce(outgoing(flush))

    async def live(self) -> None:
        """Run for a moment: one process that dies, the others beside it; or a zombie beside its successor."""
        rng, run = self.rng, self.deployment.running
        failpoint = CrashFailpoint(rng.randint(1, MOST_LIVES))
        dying = rng.choice([ROLES, ("shuffle",), ("scan",), ("publish",), ("zombie",)])
        if dying == ("zombie",):
            async with run(["shuffle"], failpoint=failpoint), run(ROLES):
                await self.wait(0.05)
        else:
            async with run([role for role in ROLES if role not in dying]), run(dying, failpoint=failpoint):
                await self.wait(0.05)

    async def wait(self, seconds: float) -> None:
        self.deployment.advance(self.rng.choice([0, 25]))
        with suppress(TimeoutError, CrashError, FencedError):
            await self.deployment.until(self.settled, seconds)

    async def end_well(self) -> None:
        """Run without faults until all is quiet."""
        async with self.deployment.running():
            for _ in range(100):
                self.deployment.advance(25)
                with suppress(TimeoutError):
                    await self.deployment.until(self.settled, 0.1)
                    return
        raise AssertionError(f"stuck: {ledger.behind(self.deployment.log)}")

    def check(self) -> None:
        log = self.deployment.log
        ledger.check(log, {name: some for name, some in self.published.items() if some})
        for name, some in self.published.items():
            lost = {one.record_id for one in ledger.dead_letters(log) if one.playbook == name}
            kept = {one.key_insight for one in some if one.reflection_id not in lost}
            entries = ledger.latest(log, name).entries if some else ()
            assert {one.content for one in entries} == kept
            assert all(one.evidence_count == 1 for one in entries)


@pytest.mark.parametrize("inflight", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_every_reflection_counts_once_or_is_a_dead_letter(
    seed: int, inflight: int
) -> None:
    chaos = Chaos(seed, inflight)
    for _ in range(chaos.rng.randint(2, 6)):
        await chaos.publish()
        await chaos.live()
    await chaos.end_well()
    chaos.check()
    report = await audit(chaos.deployment.log)
    assert (report.violations, report.lost, report.double) == ((), 0, 0)
