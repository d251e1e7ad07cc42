"""Restores a partition from the log: its offsets, its newest manifests and its branches, without reading history."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from combee.adapters.ports import Clock, FatalError, Log, TopicPartition
from combee.core.batching.limits import ShuffleLimits
from combee.log.history import newest_manifests
from combee.process.worker.views import Playbooks, View
from combee.shuffle.partition import COMMANDS, GROUP, REFLECTIONS, Manifests, ShuffleState
from combee_schemas import topics
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook

CURRENT_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Restorer:
    """Restores partitions as of their committed offsets."""

    log: Log
    clock: Clock
    playbooks: Playbooks
    sizes: View[BatchSize]
    limits: ShuffleLimits
    _homes: dict[str, int] = field(default_factory=dict)
    """Partitions of playbooks, looked up at former restores."""

    async def restore(self, number: int) -> tuple[ShuffleState, Sequence[Playbook]]:
        """Fence a partition's former owner; return what it wrote, and the newest versions of its playbooks.

        Raises
        ------
        FatalError
            If records expired unread.
        """
        await self.playbooks.view.wait_current(CURRENT_TIMEOUT_S)
        await self.sizes.wait_current(CURRENT_TIMEOUT_S)
        transactor = await self.log.transactor(f"{GROUP}-{number}")
        snapshots, now = await self._snapshots_on(number), self.clock.monotonic()
        manifests = await read_manifests(self.log, number, self.limits.duplicate_horizon, snapshots, now)
        committed = {topic: await _committed(self.log, topic, number) for topic in (REFLECTIONS, COMMANDS)}
        branches = {snapshot.name: snapshot.branch for snapshot in snapshots if snapshot.branch is not None}
        state = ShuffleState(
            number=number,
            transactor=transactor,
            manifests=manifests,
            seen={topic: offset - 1 for topic, offset in committed.items()},
            committed=committed,
            memory_bytes=self.limits.window_memory_bytes,
            rechecked_at=now,
            branches=branches | manifests.forks(),
        )
        return state, snapshots

    async def _snapshots_on(self, number: int) -> list[Playbook]:
        """Return a partition's snapshots without their entries; those of other partitions are not decoded."""
        view, snapshots = self.playbooks.view, []
        for key in sorted(view.keys()):
            if key not in self._homes:
                self._homes[key] = await self.log.partition_for(REFLECTIONS, key.encode())
            if self._homes[key] == number and (snapshot := view.peek(key)) is not None:
                snapshots.append(snapshot.model_copy(update={"entries": (), "sections": ()}))
        return snapshots


async def read_manifests(
    log: Log, partition: int, horizon: int, snapshots: Sequence[Playbook], now: float
) -> Manifests:
    """Read a partition's manifests within the horizon and those in flight; snapshots stand for the older ones."""
    source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
    manifests = Manifests(horizon=horizon)
    for offset, batch in await newest_manifests(log, source, horizon):
        manifests.add(batch, offset, now)
    for snapshot in snapshots:
        manifests.published(snapshot.name, snapshot.batch_sequence)
        covered = max(manifests.through.get(snapshot.name, -1), snapshot.through_offset)
        manifests.through[snapshot.name] = covered
    return manifests


async def _committed(log: Log, topic: str, number: int) -> int:
    first = (await log.beginnings(topic))[number]
    committed = (await log.committed(GROUP, topic)).get(number, first)
    if committed < first:
        raise FatalError(
            f"{topic}[{number}] begins at {first}, after the committed offset {committed}: records expired"
            " unread. Raise the topic's retention, look at 'combee ledger' for what is missing, then reset"
            " the group's offset by hand"
        )
    return committed
