"""The ledger's processor time: everything read, and read on from a checkpoint, with ever more behind it.

What lies behind a checkpoint is told by lengths that take turns: one after the other, the second kind came after five
full readings of 32,000 reflections, and seemed 1.6 times as slow.
"""

import gc
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from benchmarks.cluster import CHUNK, empty_log, fresh, lessons
from benchmarks.rows import Row, row
from benchmarks.synthetic import PER_BATCH, write_past
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import TopicPartition
from combee.core.log.ledger import sealed, unsealed
from combee.log.inspection.audit import account
from combee_schemas import topics

TIMEOUT_S = 900.0
COUNTS = (8_000, 32_000)
BAR_US = 100.0
"""Of processor time per reflection, where all are read."""
TURNS = 3
"""Readings that go on, for each full one: they take some 30 ms."""
BAR_RATIO = 1.2
"""A reading that goes on costs no more with four times as much behind it."""


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the milliseconds for each length; no service runs."""
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        known: list[tuple[KafkaLog, str]] = []
        for count in COUNTS:
            log = await stack.enter_async_context(empty_log(bootstrap_servers))
            names = await _names(log)
            each = count // len(names) // PER_BATCH
            total = each * PER_BATCH * len(names)
            await _past(log, names, 0, each - 1)
            kept = await _checked(log)
            await _past(log, names, each - 1, each)
            full = [await _spent_ms(log) for _ in range(runs)]
            new = [await _spent_ms(log, kept) for _ in range(runs)]
            known.append((log, await _checked(log)))
            rows += [
                row(f"all of {total:,} reflections", full, "ms"),
                row(f"the same per reflection, {total:,}", [1000 * ms / total for ms in full], "µs", BAR_US),
                row(f"from a checkpoint, {PER_BATCH * len(names)} of {total:,} are new", new, "ms"),
            ]
        turns = [[await _spent_ms(log, kept) for log, kept in known] for _ in range(TURNS * runs)]
    rows += [
        row(f"from a checkpoint, none of {count:,} is new", [turn[n] for turn in turns], "ms")
        for n, count in enumerate(COUNTS)
    ]
    ratios = [many / few for few, many in turns]
    return [*rows, row("from a checkpoint, four times as much behind it", ratios, "×", BAR_RATIO)]


async def _names(log: KafkaLog) -> list[str]:
    """Return a playbook for each partition."""
    names: dict[int, str] = {}
    while len(names) < await log.partitions(topics.REFLECTIONS.name):
        name = fresh("ledger")
        names.setdefault(await log.partition_for(topics.REFLECTIONS.name, name.encode()), name)
    return list(names.values())


async def _past(log: KafkaLog, names: Sequence[str], done: int, batches: int) -> None:
    """Write the past of these playbooks from batch ``done`` on to batch ``batches``."""
    transactor = await log.transactor("past")
    for name in names:
        known = lessons(name, batches * PER_BATCH)[done * PER_BATCH :]
        for start in range(0, len(known), CHUNK):
            await log.produce(*map(topics.REFLECTIONS.record, known[start : start + CHUNK]))
        await write_past(log, name, batches, snapshots=1, done=done)
        number = await log.partition_for(topics.REFLECTIONS.name, name.encode())
        source = TopicPartition(topic=topics.REFLECTIONS.name, partition=number)
        async with transactor.transaction() as transaction:
            await transaction.commit_offsets("shuffle", {source: batches * PER_BATCH})
    await transactor.close()


async def _checked(log: KafkaLog) -> str:
    """Return a checkpoint as its file has it."""
    read = await account(log, now_ms=1)
    if read.checkpoint is None:
        raise ValueError(f"the past that was written is wrong: {read.report.violations[:3]}")
    return sealed(read.checkpoint)


async def _spent_ms(log: KafkaLog, kept: str | None = None) -> float:
    """Return the milliseconds of a reading, with the file that it begins with and the one that it leaves."""
    gc.collect()
    gc.disable()  # as the verb does
    try:
        began = time.process_time()
        read = await account(log, unsealed(kept) if kept else None)
        if read.checkpoint is not None:
            sealed(read.checkpoint)
        return 1000 * (time.process_time() - began)
    finally:
        gc.enable()
