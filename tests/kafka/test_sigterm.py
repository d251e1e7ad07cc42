"""SIGTERM drains: what is with the model finishes, nothing is asked twice, the exit is prompt."""

import asyncio
import signal
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.faults.kills import SERVICES, STALL_S
from support.running import MODEL_TIMEOUT_S, PLAYBOOK, Running, running_stack, traces

COUNT = 120
EXIT_WITHIN_S = MODEL_TIMEOUT_S + 5


async def _terminate_each(running: Running, tracker: Tracker) -> None:
    for number, service in enumerate(SERVICES, 1):
        while len(tracker.reflections) < number * COUNT // 6:
            await tracker.change()
        running.supervisor.send(service, signal.SIGTERM)
        await running.supervisor.ended(service, timeout_s=EXIT_WITHIN_S)
        await running.supervisor.restarted((service,), timeout_s=30)


@pytest.mark.timeout(180)
async def test_sigterm_exits_in_time_and_repeats_no_model_call(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    new = traces(COUNT, seed=5)
    async with running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, latency="0.4") as running:
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()))
            async with asyncio.TaskGroup() as group:
                group.create_task(_terminate_each(running, tracker))
                group.create_task(running.learning().settle(tracker, new, stall_s=STALL_S))
        ledger = await audit(running.log)

        assert (ledger.applied, ledger.violations) == (COUNT, ())
        assert running.repeated_calls() == 0
