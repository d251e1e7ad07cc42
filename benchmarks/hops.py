"""Where the time of a batch goes, hop by hop: what its records and the model's call log say of when."""

import time
from collections.abc import Mapping

from benchmarks.overhead import CASES, WARM_UP, Case
from benchmarks.processor import shares, used_ms
from benchmarks.rows import Row, row
from benchmarks.stage import Stage, fresh, lessons, staged
from combee.ports import TopicPartition
from combee_schemas import topics
from combee_schemas.topics import AnyTopic

TIMEOUT_S = 300.0
HOPS = (
    "last ack → manifest written",
    "manifest → groups written",
    "groups → first call at the model",
    "first call → last call at the model",
    "last call: the model's time",
    "last answer → last partial written",
    "last partial → combine at the model",
    "combine: the model's time",
    "answer → update written",
    "update → version written",
    "version → at the subscriber",
)


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the milliseconds of each hop of two-level batches."""
    return [one for case in CASES[:2] for one in await _case(bootstrap_servers, case, runs)]


async def _case(bootstrap_servers: str, case: Case, runs: int) -> list[Row]:
    async with staged(
        bootstrap_servers,
        latency=case.latency,
        batch_size=case.reflections,
        llm_concurrency=case.concurrency,
    ) as stage:
        for _ in range(WARM_UP):
            await _trace(stage, case.reflections)
        traces, used = [], [used_ms(stage)]
        for _ in range(runs):
            traces.append(await _trace(stage, case.reflections))
            used.append(used_ms(stage))
    hops = [row(f"{case.name}: {hop}", [one[hop] for one in traces], "ms") for hop in HOPS]
    return [*hops, *shares(used, 1, f"batch of {case.reflections}")]


async def _trace(stage: Stage, count: int) -> Mapping[str, float]:
    """Return how long each hop of one batch took, in milliseconds."""
    given = lessons(fresh("trace"), count)
    before, began_ms = len(stage.calls()), time.time_ns() / 1e6
    await stage.publish(given)
    acked_ms = time.time_ns() / 1e6
    await stage.through(given[0].playbook)
    seen_ms = time.time_ns() / 1e6
    *leaves, combine = stage.calls()[before:]
    written = {topic.name: await _written(stage, topic, began_ms) for topic in _TOPICS}
    last = max(leaves, key=lambda one: float(one["end_ms"]))
    marks = (
        acked_ms,
        max(written[topics.BATCHES.name]),
        max(written[topics.SCAN[0].name]),
        min(one["start_ms"] for one in leaves),
        last["start_ms"],
        last["end_ms"],
        max(written[topics.SCAN[1].name]),
        combine["start_ms"],
        combine["end_ms"],
        max(written[topics.UPDATES.name]),
        max(written[topics.PLAYBOOKS.name]),
        seen_ms,
    )
    return {hop: end - begin for hop, begin, end in zip(HOPS, marks, marks[1:], strict=False)}


_TOPICS = (topics.BATCHES, topics.SCAN[0], topics.SCAN[1], topics.UPDATES, topics.PLAYBOOKS)


async def _written(stage: Stage, topic: AnyTopic, since_ms: float) -> list[int]:
    """Return when the records of a topic were written, by their producers' clocks, from a time on."""
    starts = await stage.log.offsets_at(topic.name, int(since_ms))
    return [
        record.timestamp_ms
        for number, start in starts.items()
        async for record in stage.log.read(TopicPartition(topic=topic.name, partition=number), start)
    ]
