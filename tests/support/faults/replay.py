"""Every service starts again from offset 0 when all is done: nothing may be asked or written again."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError

from support.faults import checker
from support.faults.checker import GROUPS
from support.faults.run import Fault, Run, at_rest, settle

SESSIONS_END_S = 40.0


def offsets_reset() -> Fault:
    """Finish what is published, stop the services, set all groups to 0, start again, compare the bytes."""

    async def fault(run: Run) -> None:
        await run.reach(1.0)
        await settle(run)
        await at_rest(run)
        before, calls = await _digests(run), len(run.cluster.calls())
        await run.cluster.stop_services()
        for group in GROUPS:
            await _reset(run, group)
        assert await _left(run), "nothing is to be read again"
        await run.cluster.start_services()
        await at_rest(run)
        assert await _digests(run) == before, "something was written again"
        assert len(run.cluster.calls()) == calls, "a model call was made again"

    return fault


async def _reset(run: Run, group: str) -> None:
    """Commit offset 0 everywhere; a group without members takes it from anybody."""
    scenario = run.cluster.scenario
    log = run.cluster.log()
    try:
        places = {
            aiokafka.TopicPartition(f"{scenario.prefix}.{topic.name}", number): 0
            for topic in GROUPS[group]
            for number in range(await log.partitions(topic.name))
        }
    finally:
        await log.close()
    client = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=scenario.bootstrap_servers,
        group_id=f"{scenario.prefix}.{group}",
        enable_auto_commit=False,
    )
    await client.start()
    try:
        client.assign(list(places))
        async with asyncio.timeout(SESSIONS_END_S):
            while not await _commits(client, places):  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(1.0)
    finally:
        await client.stop()


async def _commits(client: Any, places: Mapping[Any, int]) -> bool:
    """Return whether the group took the offsets; while a static member's session lasts, it does not."""
    try:
        await client.commit(places)
    except KafkaError:
        return False
    return True


async def _left(run: Run) -> list[str]:
    log = run.cluster.log()
    try:
        return await checker.unfinished(log)
    finally:
        await log.close()


async def _digests(run: Run) -> Mapping[str, list[tuple[int, str]]]:
    """Return what every topic holds: place and digest of each record."""
    log = run.cluster.log()
    try:
        dumped = await checker.dump(log)
    finally:
        await log.close()
    return {
        name: sorted(
            (record.offset, hashlib.sha256((record.key or b"") + b"|" + (record.value or b"")).hexdigest())
            for record, _ in rows
        )
        for name, rows in dumped.records.items()
    }
