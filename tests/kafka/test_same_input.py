"""The same input gives byte-identical plans and playbooks, also when replayed under another prefix."""

from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.ports import Outgoing
from combee.cli.learn.learning import Learning
from combee.core.batching.plan import canonical
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.ledger import read_all
from support.running import Running, running_stack

COUNT = 120
STALL_S = 45.0
NAME = "tests/same"


def _reflections() -> dict[str, Reflection]:
    made = [
        Reflection(
            reflection_id=f"r{n}",
            playbook=NAME,
            key_insight=f"When asked for Metric {n % 45}, answer in percent with {n % 3} decimals.",
            reasoning=f"Run {n} was off by a unit.",
        )
        for n in range(COUNT)
    ]
    return {one.reflection_id: one for one in made}


async def _settle(running: Running, records: list[Outgoing]) -> tuple[list[bytes], list[bytes]]:
    async with Tracker(running.log, NAME, SystemClock()).running() as tracker:
        await running.log.produce(*records)
        learning = Learning(running.log, None, SystemClock(), concurrency=1)
        await learning.settle(tracker, _reflections(), stall_s=STALL_S)
    plans = [canonical(one) for one in await running.messages(topics.BATCHES)]
    versions = [canonical(one) for one in await running.messages(topics.HISTORY)]
    return plans, versions


async def _copied(running: Running) -> list[Outgoing]:
    return [
        Outgoing(topic=record.topic, key=record.key, value=record.value, partition=record.partition)
        for record in await read_all(running.log, topics.REFLECTIONS)
    ]


@pytest.mark.timeout(120)
async def test_same_input_and_replay_give_identical_plans_and_playbooks(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    records = [outgoing(one) for one in _reflections().values()]
    async with running_stack(servers, f"{topic_prefix}a", tmp_path / "a", latency="0") as first:
        plans, versions = await _settle(first, records)
        recorded = await _copied(first)
    async with running_stack(servers, f"{topic_prefix}b", tmp_path / "b", latency="0.02") as second:
        again = await _settle(second, records)
    async with running_stack(servers, f"{topic_prefix}c", tmp_path / "c", latency="0.05") as third:
        replayed = await _settle(third, recorded)

    assert len(plans) == COUNT // 40
    assert again == (plans, versions)
    assert replayed == (plans, versions)
