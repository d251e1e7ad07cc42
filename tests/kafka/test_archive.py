"""A running system is archived, and goes on elsewhere from there: on real Kafka, with the real services."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import ConfigurationError, TopicPartition
from combee.assembly.backends import check_topics, connection
from combee.core.log.archive.cut import read
from combee.log.history import newest_playbooks
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee.process.settings.loading import Settings, load_settings
from combee.sdk import AsyncClient
from combee_schemas import topics
from combee_schemas.topics import outgoing
from support import ledger
from support.archives import archived, contents, ledger_of, said
from support.broker import Broker
from support.cli import combee
from support.clock import ManualClock
from support.failpoints.points import EXIT_CODE
from support.failpoints.restore import PARTITIONS, SCAN_PARTITIONS
from support.ledger import read_all
from support.recorded_log import recorded
from support.running import PLAYBOOK, nothing_waits, opened, running_stack, traces, until_applied

pytestmark = pytest.mark.timeout(300)
TESTS = Path(__file__).parents[1]
COUNT, STALL_S = 120, 45.0


async def run(folder: Path, servers: str, prefix: str, *arguments: str) -> dict[str, Any]:
    """Run the command line and return what it says."""
    env = {"COMBEE_BOOTSTRAP_SERVERS": servers, "COMBEE_TOPIC_PREFIX": prefix}
    ended = await combee(*arguments, "--json", data_dir=folder / "data", **env)
    assert ended.code == 0, ended.err
    return ended.json()


def settings_of(servers: str, prefix: str, partitions: int, scan_partitions: int) -> Settings:
    return load_settings(
        bootstrap_servers=servers, topic_prefix=prefix, partitions=partitions, scan_partitions=scan_partitions
    )


async def said_of(log: KafkaLog) -> dict[str, set[str]]:
    """Return what the topics say that are kept for ever, but for places in the log."""
    return {
        topic.name: {
            said(message) for record in await read_all(log, topic) if (message := read(topic, record))
        }
        for topic in (topics.HISTORY, topics.BATCHES, topics.UPDATES, topics.REFLECTIONS, topics.TRACES)
    }


async def test_drained_restored_with_more_partitions_and_agents_switched_over_as_the_guide_says(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    servers, there, file = kafka.bootstrap_servers, f"{topic_prefix}-more", tmp_path / "archive"
    async with running_stack(servers, topic_prefix, tmp_path / "a", latency="0.02", max_wait_s=1) as running:
        async with AsyncClient(servers, prefix=topic_prefix) as agent:
            _publish(agent, range(50))
        await until_applied(running.log, 50)
        await nothing_waits(running.log, STALL_S)
        before = (await newest_playbooks(running.log))[PLAYBOOK]
    await run(tmp_path, servers, topic_prefix, "archive", "--prefix", "--to", str(file))
    layout: dict[str, Any] = {"partitions": 7, "scan_partitions": 6}
    options = (f"--{name.replace('_', '-')}={count}" for name, count in layout.items())
    await run(tmp_path, servers, topic_prefix, "restore", str(file), "--to", there, *options)

    async with opened(settings_of(servers, there, **layout), servers) as log:
        assert await log.partitions(topics.REFLECTIONS.name) == layout["partitions"]
        await nothing_waits(log, STALL_S)  # the groups' offsets came along: no service begins from the start
    async with running_stack(
        servers, there, tmp_path / "b", latency="0.02", max_wait_s=1, **layout
    ) as running:
        async with AsyncClient(servers, prefix=there) as agent:
            view = await agent.playbook(PLAYBOOK)
            assert (view.version, view.snapshot and view.snapshot.entries) == (before.version, before.entries)
            _publish(agent, range(40, 80))  # of the first ten it does not know whether they were acknowledged
        report = await until_applied(running.log, 80)
        assert (report.lost, report.double, report.violations) == (0, 0, ())
        after = (await newest_playbooks(running.log))[PLAYBOOK]
    assert after.version > before.version
    assert {entry.id for entry in before.entries} <= {entry.id for entry in after.entries}


def _publish(agent: AsyncClient, numbers: range) -> None:
    for number in numbers:
        agent.publish(playbook=PLAYBOOK, reflection_id=f"r-{number}", key_insight=f"Lesson number {number}.")


async def test_archived_in_full_swing_it_goes_on_without_loss_or_repeat(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    servers, file = kafka.bootstrap_servers, tmp_path / "archive"
    chosen = {"batch_size": 8, "max_inflight_batches": 2, "latency": "0.05"}
    new = traces(COUNT, seed=3)
    async with (
        running_stack(servers, topic_prefix, tmp_path / "a", **chosen) as running,  # type: ignore[arg-type]
        Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker,
    ):
        await running.log.produce(*map(outgoing, new.values()))
        for number, moment in enumerate((10, 60)):
            while sum(map(tracker.is_applied, tracker.batch_of)) < moment:
                await tracker.change()
            target = f"{file}-{number}"
            await run(tmp_path, servers, topic_prefix, "archive", "--prefix", "--to", target)
        await running.learning().settle(tracker, new, stall_s=STALL_S)
    for number, partitions in enumerate((12, 2)):
        there = f"{topic_prefix}-{number}"
        layout = ("--to", there, "--partitions", str(partitions))
        contents = await run(tmp_path, servers, topic_prefix, "restore", f"{file}-{number}", *layout)
        assert contents["records"]["traces"] == COUNT
        async with running_stack(
            servers,
            there,
            tmp_path / there,
            partitions=partitions,
            **chosen,  # type: ignore[arg-type]
        ) as running:
            assert (await audit(running.log)).violations == ()
            async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
                await running.learning().settle(tracker, new, stall_s=STALL_S)
            report = await audit(running.log)
            assert (report.violations, report.applied, report.traces.lost) == ((), COUNT, 0)


CHAIN = (
    *("before produce@1", "after produce@1", "before produce@1", "after produce@1", "after produce@2"),
    *("before produce@2", "before transaction", "offsets in transaction", "before commit", "after commit"),
)
"""One process after the other ends there, each where the one before it left off."""


async def test_killed_again_and_again_it_goes_on_and_nothing_starts_before_it_is_done(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    servers, file, source = kafka.bootstrap_servers, tmp_path / "archive", recorded(ManualClock())
    for number, partition in enumerate(source._store.partitions(topics.TRACES.name)):
        source.expire(TopicPartition(topic=topics.TRACES.name, partition=number), partition.end // 2)
    await archived(source, file)
    settings = settings_of(servers, topic_prefix, PARTITIONS, SCAN_PARTITIONS)
    for number, at in enumerate(CHAIN):
        assert await _restore(at, tmp_path / f"marker-{number}", file, servers, topic_prefix) == EXIT_CODE, at
        with pytest.raises(ConfigurationError, match="in part only: run 'combee restore FILE"):
            await check_topics(settings, connection(settings, servers))
    (tmp_path / "marker").touch()
    assert await _restore("after ask", tmp_path / "marker", file, servers, topic_prefix) == 0

    await check_topics(settings, connection(settings, servers))
    async with opened(settings, servers) as log:
        assert await ledger_of(log) == await ledger_of(source)
        assert (await said_of(log))["reflections"] == set(contents(source)["reflections"])
        assert set((await log.beginnings(topics.TRACES.name)).values()) == {1}
        committed = await log.committed("shuffle", topics.REFLECTIONS.name)
        assert sum(committed.values()) == sum(
            sum(
                record.offset < at
                for record in ledger.records(source, topics.REFLECTIONS)
                if record.partition == number
            )
            for number, at in (await source.committed("shuffle", topics.REFLECTIONS.name)).items()
        )


async def _restore(at: str, marker: Path, file: Path, servers: str, prefix: str) -> int:
    arguments = (at, str(marker), str(file), servers, prefix)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.failpoints.restore", *arguments, cwd=TESTS
    )
    async with asyncio.timeout(60):
        return await process.wait()
