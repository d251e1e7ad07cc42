"""The codec's share of the processor time of a deployment's services (docs/adr/0014)."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.processor import used_ms
from benchmarks.rows import Row, row
from benchmarks.stage import ROLES, Stage, fresh, lessons, staged
from combee.ports import TopicPartition
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
"""How often the services of a stage decode a record as it comes; what only a restart reads is not listed."""


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows; each run is ``BATCHES`` full batches, one after the other, on a model that answers at once."""
    batch_ms, codec_ms, shares = [], [], []
    parts: Counter[str] = Counter()
    async with staged(bootstrap_servers, batch_size=REFLECTIONS, llm_concurrency=8) as stage:
        await _through(stage, WARM_UP)
        for _ in range(runs):
            starts = {topic.name: await stage.log.ends(topic.name) for topic in TOPICS}
            before = _services_ms(stage)
            await _through(stage, BATCHES)
            spent = (_services_ms(stage) - before) / BATCHES
            by_topic = {topic.name: await _codec_ms(stage, topic, starts[topic.name]) for topic in TOPICS}
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


def _services_ms(stage: Stage) -> float:
    used = used_ms(stage)
    return sum(used[role] for role in ROLES)


async def _through(stage: Stage, batches: int) -> None:
    for name in [fresh("codec") for _ in range(batches)]:
        await stage.publish(lessons(name, REFLECTIONS))
        await stage.through(name)


async def _codec_ms(stage: Stage, topic: AnyTopic, starts: Mapping[int, int]) -> float:
    """Return what a run's records of a topic take: written once (by a service of this stage), read as counted."""
    written = 0 if "agents" in topic.written_by else 1
    values = await _values(stage, topic, starts)
    begin = time.process_time()
    messages = [decode(value, topic.message) for value in values]
    reading = time.process_time() - begin
    begin = time.process_time()
    for message in messages:
        encode(message)
    writing = time.process_time() - begin
    return 1000 * (READ.get(topic.name, 0) * reading + written * writing)


async def _values(stage: Stage, topic: AnyTopic, starts: Mapping[int, int]) -> Sequence[bytes]:
    return [
        record.value
        for number, start in starts.items()
        async for record in stage.log.read(TopicPartition(topic=topic.name, partition=number), start)
        if record.value is not None
    ]
