"""The gate's crash points on a real broker: between verdict and decision, and in the transaction of a decision."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.ports import TopicPartition
from combee.assembly.local.stack import StackOptions, child_environment
from combee.assembly.local.supervisor import Process, Supervisor
from combee.control.outcomes import GROUP
from combee.core.gate.gate import gates_of
from combee.log.history import all_labels, newest_playbook
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.gate import Verdict
from support.broker import Broker
from support.canaries import CALLERS, SCORER, of_callers, signed
from support.faults.cluster import FAULTY_WORKER, TESTS
from support.gates import contents, verdict
from support.ledger import NAME
from support.running import Running, running_stack
from support.running_gates import candidate_of, decisions, learned, until

WITHIN_S, READY_S, STOP_S = 90.0, 60.0, 15.0
OPENED, ACCEPTED, REJECTED = 1, 2, 4
"""Transactions of publish, in the story below: a version with the gate, a decision, a version, a decision."""
POINTS = [
    *(f"{point}@{at}" for point in ("before transaction", "before commit") for at in (ACCEPTED, REJECTED)),
    f"after commit@{REJECTED}",
    "offsets in transaction@4",
]


@asynccontextmanager
async def worker(running: Running, folder: Path, role: str, *failpoint: str) -> AsyncIterator[None]:
    """Run a worker meanwhile, with a point at which it dies once, if one is given."""
    servers = str(running.settings.kafka.bootstrap_servers)
    options = StackOptions(settings=running.settings, bootstrap_servers=servers, folder=folder)
    process = Process(
        name=role,
        arguments=("worker", role),
        env={**child_environment(options), "PYTHONPATH": str(TESTS)},
        ready_file=folder / f"{role}.ready",
    )
    if failpoint:
        process = replace(process, command=(*FAULTY_WORKER, *failpoint))
    supervisor = Supervisor(folder, SystemClock())
    try:
        await supervisor.start(process)
        await supervisor.wait_ready(READY_S)
        yield
    finally:
        await supervisor.stop(STOP_S)


async def said(running: Running, *verdicts: Verdict) -> None:
    await running.log.produce(*map(topics.VERDICTS.record, verdicts))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", POINTS)
async def test_publish_dies_once_and_each_candidate_is_decided_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path, point: str
) -> None:
    marker = tmp_path / "died"
    where = (kafka.bootstrap_servers, topic_prefix)
    async with running_stack(*where, tmp_path, roles=(), gate="evaluate") as running:
        async with worker(running, tmp_path, "publish", point, str(marker)):
            await learned(running, 1)
            await until(running, (0, 1))
            await said(running, verdict(1, 0))
            await until(running, (1, 0))
            await learned(running, 2)
            await until(running, (1, 2))
            await said(running, verdict(2, 1, accepts=False), verdict(2, 1))
            await until(running, (1, 0))
            await learned(running, 3)
            await until(running, (1, 4))
        assert marker.exists(), "it did not die: this proves nothing"
        assert [(each.decided, each.candidate) for each in await decisions(running)] == [
            ("opened", 0),
            ("accepted", 1),
            ("rejected", 2),
        ]
        newest = await newest_playbook(running.log, NAME)
        assert newest is not None
        assert contents(newest) == ["lesson 1", "lesson 3"]
        report = await audit(running.log)
        assert [text for text in report.violations if text.startswith("decision")] == []


CANARY = {"canary_share": 0.5, "gate_margin": 0.3}
CANARY_POINTS = [
    *(f"{point}@1" for point in ("before transaction", "sent in transaction", "offsets in transaction")),
    *(f"{point}@2" for point in ("before commit", "after commit")),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", CANARY_POINTS)
async def test_control_dies_once_and_the_canary_counts_each_caller_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path, point: str
) -> None:
    marker, sources = tmp_path / "died", tmp_path / "sources.toml"
    sources.write_text(f'[[sources]]\nname = "{SCORER.name}"\nsecret = "{(SCORER.secret or b"").decode()}"\n')
    settings: dict[str, Any] = {"gate": "canary", "sources_file": sources, **CANARY}
    where = (kafka.bootstrap_servers, topic_prefix)
    async with running_stack(*where, tmp_path, roles=(), **settings) as running:
        async with worker(running, tmp_path, "publish"):
            await candidate_of(running)
        candidate = gates_of(await all_labels(running.log))[NAME].candidate
        assert candidate is not None
        assert candidate.canary is not None

        async with worker(running, tmp_path, "control", point, str(marker)):
            runs = signed(of_callers(candidate.canary, 0.2, 0.9))
            for start in range(0, CALLERS, CALLERS // 3):  # several transactions
                await running.log.produce(*runs[start : start + CALLERS // 3])
                await folded(running)
        assert marker.exists(), "it did not die: this proves nothing"
        number = await running.log.partition_for(topics.OUTCOMES.name, NAME.encode())
        place = TopicPartition(topic=topics.OUTCOME_STATISTICS.name, partition=number)
        records = [record async for record in running.log.read(place, 0)]
        statistics = [told for record in records if (told := topics.CANARY_STATISTICS.read_or_none(record))]
        arms = statistics[-1].candidate, statistics[-1].control
        assert sum(arm.callers for arm in arms) == sum(arm.runs for arm in arms) == CALLERS
        assert sum(arm.counted for arm in arms) == len(statistics[-1].counted) == CALLERS

        async with worker(running, tmp_path, "publish"):
            await until(running, (1, 0))
        last = (await decisions(running))[-1]
        assert (last.decided, last.candidate, last.taken_back) == ("rejected", 2, 1)
        assert [each.candidate for each in await decisions(running)].count(2) == 1


async def folded(running: Running) -> None:
    """Wait until control has committed all outcomes there are."""
    async with asyncio.timeout(WITHIN_S):
        ends = await running.log.ends(topics.OUTCOMES.name)
        while sum((await running.log.committed(GROUP, topics.OUTCOMES.name)).values()) < sum(ends.values()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
