"""Kill services at seeded moments of a run, then judge the log."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from random import Random

from combee.adapters.clock import SystemClock
from combee.core.log.ledger import LedgerReport
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.topics import outgoing
from support.ledger import batch_of
from support.running import PLAYBOOK, Running, running_stack, traces

SERVICES = ("reflect", "shuffle", "scan", "publish")
STALL_S = 45.0
REPLICATED = 160
"""Reflections for two processes of each service."""


def _moved(tracker: Tracker) -> int:
    return len(tracker.reflections) + len(tracker.batch_of) + sum(map(tracker.is_applied, tracker.batch_of))


async def _kill_at(running: Running, tracker: Tracker, targets: tuple[str, ...], moments: list[int]) -> None:
    for moment in moments:
        while _moved(tracker) < moment:
            await tracker.change()
        for target in targets:
            running.supervisor.send(target, signal.SIGKILL)
        await running.supervisor.restarted(targets, timeout_s=30)


async def survives_kills(
    bootstrap_servers: str,
    prefix: str,
    folder: Path,
    *,
    target: str,
    kills: int,
    seed: int,
    inflight: int = 1,
    count: int = 120,
    **settings: object,
) -> tuple[Sequence[Batch], LedgerReport]:
    targets = SERVICES if target == "all" else (target,)
    rng = Random(f"{target} {seed}")
    moments = sorted(rng.sample(range(1, int(count * 2.5)), kills))
    new = traces(count, seed)
    settings["max_inflight_batches"] = inflight
    async with running_stack(bootstrap_servers, prefix, folder, **settings) as running:  # type: ignore[arg-type]
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()))
            async with asyncio.TaskGroup() as group:
                group.create_task(_kill_at(running, tracker, targets, moments))
                group.create_task(running.learning().settle(tracker, new, stall_s=STALL_S))
        return await _judge(running, count=count, kills=kills)


async def _judge(running: Running, *, count: int, kills: int) -> tuple[Sequence[Batch], LedgerReport]:
    ledger = await audit(running.log)
    batches = [batch for batch in await running.messages(topics.BATCHES) if isinstance(batch, Batch)]
    versions = [
        version for version in await running.messages(topics.HISTORY) if isinstance(version, Playbook)
    ]

    assert ledger.violations == ()
    assert (ledger.reflections, ledger.applied, ledger.lost, ledger.double) == (count, count, 0, 0)
    assert [version.version for version in versions] == list(range(1, len(batches) + 1))
    assert all(
        0 <= batch_of(version).plan.staleness < running.settings.batch.max_inflight_batches
        for version in versions
    )
    # Only an answer that was on its way into the log at a kill may be asked for again.
    assert running.repeated_answers() <= kills * 2 * running.settings.model.llm_concurrency
    return batches, ledger


async def _kill_the_second_of_each(running: Running, tracker: Tracker) -> None:
    seconds = tuple(f"{service}-1" for service in SERVICES)
    while len(tracker.reflections) < REPLICATED // 4:
        await tracker.change()
    for name in seconds:
        running.supervisor.send(name, signal.SIGKILL)
    await running.supervisor.restarted(seconds, timeout_s=60)


async def survives_the_loss_of_one_replica(
    bootstrap_servers: str, prefix: str, folder: Path, *, inflight: int
) -> None:
    new = traces(REPLICATED, seed=7)
    settings = {"replicas": 2, "max_inflight_batches": inflight}
    async with running_stack(bootstrap_servers, prefix, folder, **settings) as running:  # type: ignore[arg-type]
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()))
            async with asyncio.TaskGroup() as group:
                group.create_task(_kill_the_second_of_each(running, tracker))
                group.create_task(running.learning().settle(tracker, new, stall_s=STALL_S))
        ledger = await audit(running.log)

        assert (ledger.applied, ledger.violations) == (REPLICATED, ())
