"""The codec's share of the processor time of a deployment's services (docs/design/adr/0014-codec.md)."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.cluster import ROLES, Cluster, fresh, lessons, running_cluster
from benchmarks.processor import used_ms
from benchmarks.rows import Row, row
from combee.adapters.ports import TopicPartition
from combee_schemas.codec import decode, encode
from combee_schemas.topics import TOPICS, AnyTopic

TIMEOUT_S = 420.0
REFLECTIONS = 40
WARM_UP, BATCHES = 4, 20
SHARE_BAR = 0.10
"""Above it another codec would be worth what it costs."""
READ = {
    "reflections": 1,
    "scan.0": 1,
    "scan.1": 1,
    "scan.2": 1,
    "scan.3": 1,
    "updates": 2,
    "playbooks": 3,
    "batch-sizes": 2,
    "commands": 2,
    "labels": 1,
}
"""How often the services of a deployment decode a record as it comes; what only a restart reads is not listed."""


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows; each run is ``BATCHES`` full batches, one after the other, on a model that answers at once."""
    batch_ms, codec_ms, shares = [], [], []
    parts: Counter[str] = Counter()
    async with running_cluster(bootstrap_servers, batch_size=REFLECTIONS, llm_concurrency=8) as cluster:
        await _through(cluster, WARM_UP)
        for _ in range(runs):
            starts = {topic.name: await cluster.log.ends(topic.name) for topic in TOPICS}
            before = _services_ms(cluster)
            await _through(cluster, BATCHES)
            spent = (_services_ms(cluster) - before) / BATCHES
            by_topic = {topic.name: await _codec_ms(cluster, topic, starts[topic.name]) for topic in TOPICS}
            own = sum(by_topic.values()) / BATCHES
            parts.update(by_topic)
            batch_ms.append(spent)
            codec_ms.append(own)
            shares.append(own / spent)
    return [
        row("processor time per batch of 40, all services", batch_ms, "ms"),
        row("of it reading and writing messages", codec_ms, "ms"),
        row("the codec's share", shares, "× all", SHARE_BAR),
        *(
            row(f"reading and writing {name}, per batch", [spent / BATCHES / runs], "ms")
            for name, spent in parts.most_common(4)
        ),
    ]


def _services_ms(cluster: Cluster) -> float:
    used = used_ms(cluster)
    return sum(used[role] for role in ROLES)


async def _through(cluster: Cluster, batches: int) -> None:
    for name in [fresh("codec") for _ in range(batches)]:
        await cluster.publish(lessons(name, REFLECTIONS))
        await cluster.through(name)


async def _codec_ms(cluster: Cluster, topic: AnyTopic, starts: Mapping[int, int]) -> float:
    """Return what a run's records of a topic take: written once (by a service of this cluster), read as counted."""
    written = 0 if "agents" in topic.written_by else 1
    values = await _values(cluster, topic, starts)
    begin = time.process_time()
    messages = [decode(value, topic.message) for value in values]
    reading = time.process_time() - begin
    begin = time.process_time()
    for message in messages:
        encode(message)
    writing = time.process_time() - begin
    return 1000 * (READ.get(topic.name, 0) * reading + written * writing)


async def _values(cluster: Cluster, topic: AnyTopic, starts: Mapping[int, int]) -> Sequence[bytes]:
    return [
        record.value
        for number, start in starts.items()
        async for record in cluster.log.read(TopicPartition(topic=topic.name, partition=number), start)
        if record.value is not None
    ]
