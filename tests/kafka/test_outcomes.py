"""Outcomes on a real broker: control is killed again and again, and each run counts once."""

import asyncio
import signal
from pathlib import Path

import pytest

from combee.log.inspection.outcomes import outcomes_by_line
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


async def until_folded(running: Running, runs: int) -> None:
    """Wait until so many runs are counted, and all that was written is committed."""
    name = topics.OUTCOMES.name
    async with asyncio.timeout(60):
        while True:
            committed = await running.log.committed("control", name)
            ends = {number: end for number, end in (await running.log.ends(name)).items() if end}
            if dict(committed) == ends and sum((await counted(running)).values()) >= runs:
                return
            await asyncio.sleep(0.2)


@pytest.mark.timeout(300)
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
            await until_folded(running, (part + 1) * size)
        assert await counted(running) == dict.fromkeys(LINES, RUNS // 3)
        assert not running.call_log.exists() or running.calls() == [], "an outcome cost a model call"
