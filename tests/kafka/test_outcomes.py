"""Outcomes on a real broker: control is killed again and again, and each run counts once."""

import asyncio
import signal
from pathlib import Path

import pytest

from combee.inspection.outcomes import outcomes_by_line
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.outcome import Outcome
from support.broker import Broker
from support.running import PLAYBOOK, Running, running_stack

RUNS, KILLS = 600, 3
LINES = (PLAYBOOK, f"{PLAYBOOK}@short", "tests/other")


def outcome(number: int) -> Outcome:
    line = LINES[number % 3]
    return Outcome(
        run_id=f"run-{number}",
        playbook=line.partition("@")[0],
        shown=Shown(version=number % 4, line=line),
        success=number % 2 == 0,
    )


async def counted(running: Running) -> dict[str, int]:
    lines = await outcomes_by_line(running.log)
    return {
        name: sum(version.figures.runs for version in statistics.versions)
        for name, statistics in lines.items()
    }


@pytest.mark.timeout(240)
async def test_each_run_counts_once_however_often_control_is_killed(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    where = (kafka.bootstrap_servers, topic_prefix)
    async with running_stack(*where, tmp_path, latency="0") as running:
        for part in range(KILLS + 1):
            size = RUNS // (KILLS + 1)
            said = [outcome(number) for number in range(part * size, (part + 1) * size)]
            await running.log.produce(*map(topics.OUTCOMES.record, said))
            await running.log.produce(*map(topics.OUTCOMES.record, said[::3]))  # a producer's retries
            if part < KILLS:
                running.supervisor.send("control", signal.SIGKILL)
        async with asyncio.timeout(90):
            while sum((await counted(running)).values()) < RUNS:  # noqa: ASYNC110 - the condition is in the log
                await asyncio.sleep(0.2)
            ends = dict(await running.log.settled(topics.OUTCOMES.name))
            while dict(await running.log.committed("control", topics.OUTCOMES.name)) != ends:
                await asyncio.sleep(0.2)
        assert await counted(running) == dict.fromkeys(LINES, RUNS // 3)
        assert running.calls() == []
