"""What it costs to forget one run: archive, rewrite, write under a new prefix, prove it, delete the old one."""

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.cluster import CHUNK, fresh, lessons
from benchmarks.rows import Row, row
from benchmarks.synthetic import PER_BATCH, write_past
from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.ports import TopicPartition
from combee.assembly import backends
from combee.core.log.erasure.selector import Marker, Selector
from combee.core.log.replaying.selection import Selection
from combee.log.archive import forgetting
from combee.log.archive.erasing import Wish
from combee.log.archive.forgetting import Place
from combee.process.settings.loading import load_settings
from combee_schemas import topics

TIMEOUT_S = 900.0
COUNTS = (8_000, 32_000)


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return seconds, and processor time per reflection, for each length of the past; no service runs."""
    rows: list[Row] = []
    for count in COUNTS:
        spent = [await _spent(bootstrap_servers, count) for _ in range(min(runs, 3))]
        rows += [
            row(f"forgetting one run of {count:,}", [seconds for seconds, _ in spent], "s"),
            row(
                f"processor time per reflection, {count:,}",
                [1e6 * processor / count for _, processor in spent],
                "µs",
            ),
        ]
    return rows


async def _spent(servers: str, count: int) -> tuple[float, float]:
    """Return the seconds that pass, and those of the processor of this process."""
    old, new = await _place(servers), await _place(servers, create=False)
    try:
        name = fresh("forget")
        await _past(old, name, count)
        rule = Selection("id", lessons(name, 1)[0].reflection_id)
        wish = Wish(
            selector=Selector(rules=(rule,), kind="trace"), marker=Marker(b"bench"), erasure_id=uuid4().hex
        )
        with TemporaryDirectory() as folder:
            began, processor = time.monotonic(), time.process_time()
            await forgetting.move(
                old, new, Path(folder), wish, (), configs={}, replication=1, clock=SystemClock()
            )
            await forgetting.finish(old, new, Path(folder), ())
            return time.monotonic() - began, time.process_time() - processor
    finally:
        await asyncio.gather(old.log.close(), new.log.close())


async def _place(servers: str, *, create: bool = True) -> Place:
    settings = load_settings(
        bootstrap_servers=servers, model="simulated", topic_prefix=f"bench-{uuid4().hex[:8]}"
    )
    connected = backends.connection(settings, servers)
    if create:
        await backends.create_topics(settings, connected)
    return Place(prefix=settings.kafka.topic_prefix, log=KafkaLog(connected), admin=KafkaAdmin(connected))


async def _past(place: Place, name: str, count: int) -> None:
    """Write the past of one playbook, all of it published and committed."""
    log, known = place.log, lessons(name, count)
    for start in range(0, count, CHUNK):
        await log.produce(*map(topics.REFLECTIONS.record, known[start : start + CHUNK]))
    await write_past(log, name, count // PER_BATCH, snapshots=1)
    number = await log.partition_for(topics.REFLECTIONS.name, name.encode())
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=number)
    transactor = await log.transactor("past")
    async with transactor.transaction() as transaction:
        await transaction.commit_offsets("shuffle", {source: count})
    await transactor.close()
