"""Where the time of a batch goes, hop by hop: what its records and the model's call log say of when."""

import time
from collections.abc import Mapping

from benchmarks.cluster import Cluster, fresh, lessons, running_cluster
from benchmarks.overhead import CASES, WARM_UP, Case
from benchmarks.processor import shares, used_ms
from benchmarks.rows import Row, row
from combee.adapters.ports import TopicPartition
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
    two_levels = [case for case in CASES if not case.settings]
    return [measured for case in two_levels for measured in await _case(bootstrap_servers, case, runs)]


async def _case(bootstrap_servers: str, case: Case, runs: int) -> list[Row]:
    async with running_cluster(
        bootstrap_servers,
        latency=case.latency,
        batch_size=case.reflections,
        llm_concurrency=case.concurrency,
    ) as cluster:
        for _ in range(WARM_UP):
            await _trace(cluster, case.reflections)
        traces, used = [], [used_ms(cluster)]
        for _ in range(runs):
            traces.append(await _trace(cluster, case.reflections))
            used.append(used_ms(cluster))
    hops = [row(f"{case.name}: {hop}", [trace[hop] for trace in traces], "ms") for hop in HOPS]
    return [*hops, *shares(used, 1, f"batch of {case.reflections}")]


async def _trace(cluster: Cluster, count: int) -> Mapping[str, float]:
    """Return how long each hop of one batch took, in milliseconds."""
    given = lessons(fresh("trace"), count)
    before, began_ms = len(cluster.calls()), time.time_ns() / 1e6
    await cluster.publish(given)
    acked_ms = time.time_ns() / 1e6
    await cluster.through(given[0].playbook)
    seen_ms = time.time_ns() / 1e6
    *leaves, combine = cluster.calls()[before:]
    written = {topic.name: await _written(cluster, topic, began_ms) for topic in _TOPICS}
    last = max(leaves, key=lambda leaf: float(leaf["end_ms"]))
    marks = (
        acked_ms,
        max(written[topics.BATCHES.name]),
        max(written[topics.SCAN[0].name]),
        min(leaf["start_ms"] for leaf in leaves),
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


async def _written(cluster: Cluster, topic: AnyTopic, since_ms: float) -> list[int]:
    """Return when the records of a topic were written, by their producers' clocks, from a time on."""
    starts = await cluster.log.offsets_at(topic.name, int(since_ms))
    return [
        record.timestamp_ms
        for number, start in starts.items()
        async for record in cluster.log.read(TopicPartition(topic=topic.name, partition=number), start)
    ]
