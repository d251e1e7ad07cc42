"""Reading a partition back from the log: its offsets, its newest manifests and its branches; never all history."""

from collections.abc import Sequence

from combee.adapters.ports import FatalError, Log, TopicPartition, Transactor
from combee.core.batching.limits import ShuffleLimits
from combee.log.history import newest_manifests
from combee.shuffle.partition import COMMANDS, GROUP, REFLECTIONS, Manifests, ShuffleState
from combee_schemas import topics
from combee_schemas.playbook import Playbook


async def restored(
    log: Log,
    number: int,
    transactor: Transactor,
    snapshots: Sequence[Playbook],
    limits: ShuffleLimits,
    now: float,
) -> ShuffleState:
    """Return a partition as of what is committed; ``transactor`` must have fenced the former owner.

    ``snapshots`` are the newest versions of the partition's playbooks.

    Raises
    ------
    FatalError
        If records expired unread.
    """
    manifests = await read_manifests(log, number, limits.duplicate_horizon, snapshots, now)
    committed = {topic: await _committed(log, topic, number) for topic in (REFLECTIONS, COMMANDS)}
    branches = {snapshot.name: snapshot.branch for snapshot in snapshots if snapshot.branch is not None}
    return ShuffleState(
        number=number,
        transactor=transactor,
        manifests=manifests,
        seen={topic: offset - 1 for topic, offset in committed.items()},
        committed=committed,
        memory_bytes=limits.window_memory_bytes,
        rechecked_at=now,
        branches=branches | manifests.forks(),
    )


async def read_manifests(
    log: Log, partition: int, horizon: int, snapshots: Sequence[Playbook], now: float
) -> Manifests:
    """Read a partition's manifests within the horizon and those in flight; snapshots cover what lies before."""
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
