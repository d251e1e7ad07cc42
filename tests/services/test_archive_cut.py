"""Archives that are taken while services run, and what can be gone on from."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import TopicPartition
from combee.log.archive.writing import write_archive
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.command import Command
from support import ledger
from support.archives import archived, contents, restored, said
from support.clock import ManualClock
from support.deployment import DEADLINE_S, Deployment
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")
NAMES = (NAME, "support/other")
SIZE = 5
STILL = 0.3
"""The share of look-ups after which nothing happens."""


class Unsteady(MemoryLog):
    """A log as an archive sees it, on which much happens between any two look-ups."""

    def __init__(self, log: MemoryLog, rng: Random) -> None:
        self._store = log._store
        self._rng = rng
        self.published = 0

    async def publish(self) -> None:
        """Publish a batch for each playbook, and now and then a command about the newest version."""
        for number in range(self.published, self.published + SIZE):
            await self.produce(*(outgoing(reflection(number, name)) for name in NAMES))
        self.published += SIZE
        newest = max((version.version for version in ledger.versions(self)), default=0)
        if newest:
            promote = Command(
                command_id=f"p{self.published}", playbook=NAME, kind="promote", label="prod", version=newest
            )
            await self.produce(outgoing(promote))

    async def _meanwhile(self) -> None:
        """Let at least one version be made, and stop anywhere in the middle of the next one."""
        if self._rng.random() < STILL:
            return
        history = self._store.partitions(topics.HISTORY.name)
        before = sum(partition.stable for partition in history)
        await self.publish()
        async with asyncio.timeout(DEADLINE_S):
            while sum(partition.stable for partition in history) == before:
                await self._store.changed.wait()
        for _ in range(self._rng.choice([0, 5, 40, 150])):
            await asyncio.sleep(0)

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        offsets = dict(await super().committed(group, topic))
        await self._meanwhile()
        return offsets

    async def settled(self, topic: str) -> Mapping[int, int]:
        ends = dict(await super().settled(topic))
        await self._meanwhile()
        return ends


@pytest.mark.parametrize("inflight", [1, 3])
@pytest.mark.parametrize("seed", range(4))
async def test_taken_at_any_moment_it_can_be_gone_on_from(tmp_path: Path, seed: int, inflight: int) -> None:
    deployment = Deployment(batch_size=SIZE, fan_in=2, max_inflight_batches=inflight, partitions=2)
    log = Unsteady(deployment.log, Random(seed))
    async with deployment.running():
        await log.publish()
        await write_archive(log, tmp_path / "a", prefix="t", configs={}, clock=deployment.clock)
        await deployment.until(lambda: all(ledger.applied(log, name) == log.published for name in NAMES))

    there = Deployment(batch_size=SIZE, fan_in=2, max_inflight_batches=inflight, partitions=3, max_wait_s=5)
    there.log = MemoryLog(there.clock, partitions=3, scan_partitions=2)
    await restored(tmp_path / "a", there.log)
    assert (await audit(there.log)).violations == ()
    for name in NAMES:
        made = [said(version) for version in ledger.versions(there.log, name)]
        assert made == [said(version) for version in ledger.versions(log, name)][: len(made)]

    count = {name: _reflections(there.log, name) for name in NAMES}
    async with there.running():

        def is_done() -> bool:
            there.advance(6)
            return all(ledger.applied(there.log, name) == count[name] for name in count)

        await there.until(is_done)
    report = await audit(there.log)
    assert (report.violations, report.applied, report.dead_lettered) == ((), sum(count.values()), 0)


def _reflections(log: MemoryLog, name: str) -> int:
    return sum(record.key == name.encode() for record in ledger.records(log, topics.REFLECTIONS))


async def test_a_snapshot_that_was_compacted_away_meanwhile_is_made_again(tmp_path: Path) -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(number)) for number in range(10)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    snapshots = deployment.log._store.partitions(topics.PLAYBOOKS.name)
    expected = contents(deployment.log)["playbooks"][-1]
    for number, partition in enumerate(snapshots):
        deployment.log.expire(TopicPartition(topic=topics.PLAYBOOKS.name, partition=number), partition.end)
    await archived(deployment.log, tmp_path / "a")

    target = MemoryLog(ManualClock())
    await restored(tmp_path / "a", target)
    assert contents(target)["playbooks"] == [expected]
    assert (await audit(target)).good
