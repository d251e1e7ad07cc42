"""Two processes of every service share the work; when one of each dies and returns, nothing is lost."""

import asyncio
import signal
from pathlib import Path

import pytest

from combee.cli.learning import outgoing
from combee.runtime.audit import audit
from combee.runtime.clock import SystemClock
from combee.runtime.tracker import Tracker
from support.broker import Broker
from support.kills import SERVICES, STALL_S
from support.running import PLAYBOOK, Running, running_stack, traces

COUNT = 160


async def _kill_the_second_of_each(running: Running, tracker: Tracker) -> None:
    seconds = tuple(f"{service}-1" for service in SERVICES)
    while len(tracker.reflections) < COUNT // 4:
        await tracker.change()
    for name in seconds:
        running.supervisor.send(name, signal.SIGKILL)
    await running.supervisor.restarted(seconds, timeout_s=60)


@pytest.mark.timeout(180)
async def test_two_of_each_service_survive_the_loss_of_one(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    new = traces(COUNT, seed=7)
    async with running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, replicas=2) as running:
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()))
            async with asyncio.TaskGroup() as group:
                group.create_task(_kill_the_second_of_each(running, tracker))
                group.create_task(running.learning().settle(tracker, new, stall_s=STALL_S))
        ledger = await audit(running.log)

        assert (ledger.applied, ledger.violations) == (COUNT, ())
