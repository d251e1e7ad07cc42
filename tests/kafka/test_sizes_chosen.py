"""With no settings at all the controller chooses batch sizes and says so; a replay takes those of the record."""

import asyncio
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.control import BatchSize
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.cli import combee
from support.running import Running, running_stack

NAME = "tests/sizes"
START = 40
LATER = 80
STALL_S = 45.0


def reflections(first: int, count: int) -> dict[str, Reflection]:
    numbers = range(first, first + count)
    return {
        f"r{n}": Reflection(
            reflection_id=f"r{n}", playbook=NAME, key_insight=f"When asked for {n}, answer {n}."
        )
        for n in numbers
    }


async def decisions(running: Running) -> list[BatchSize]:
    return [one for one in await running.messages(topics.BATCH_SIZES) if isinstance(one, BatchSize)]


async def moved(running: Running) -> None:
    """Wait until the controller has decided after the first batch."""
    async with asyncio.timeout(STALL_S):
        while all(one.batch_size == START for one in await decisions(running)):  # noqa: ASYNC110 - Kafka tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.timeout(240)
async def test_by_default_sizes_start_at_40_move_are_told_and_replayed(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    # None: as nobody sets it.
    stack = running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, latency="0.05", batch_size=None)
    env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": topic_prefix}
    first, later = reflections(0, START), reflections(START, LATER)
    async with stack as running:
        async with Tracker(running.log, NAME, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, first.values()))
            await running.learning().settle(tracker, first, stall_s=STALL_S)
            await moved(running)
            await running.log.produce(*map(outgoing, later.values()))
            await running.learning().settle(tracker, later, stall_s=STALL_S)
        batches = [one for one in await running.messages(topics.BATCHES) if isinstance(one, Batch)]
        made = await decisions(running)
    # A window that is full already may close before the next decision arrives.
    assert list(dict.fromkeys(batch.plan.batch_size for batch in batches))[:3] == [START, 5, 10]
    assert {one.policy for one in made} == {"keep-up"}

    status = await combee("status", "--json", data_dir=tmp_path, **env)
    (row,) = status.json()["playbooks"]
    told = row["sizing"]
    assert (row["batch_size"], told["policy"], told["phase"]) == (
        made[-1].batch_size,
        "keep-up",
        made[-1].phase,
    )
    assert told["reason"] == made[-1].reason != ""
    shown = await combee("status", data_dir=tmp_path, **env)
    assert f"batches of {made[-1].batch_size} (keep-up, {made[-1].phase}): {made[-1].reason}" in shown.out

    replayed = await combee("replay", NAME, "--to", f"{topic_prefix}r", "--json", data_dir=tmp_path, **env)
    assert replayed.code == 0, replayed.err
    found = replayed.json()
    assert (found["batches"], found["plans_differ"], found["contents_differ"]) == (len(batches), [], [])
