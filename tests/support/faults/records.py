"""Faults that are records: repeats, poison in every topic, late and foreign ones, other writers' versions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack

from combee.adapters.ports import Outgoing
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.topics import AnyTopic, outgoing
from support.faults.driver import Item, items
from support.faults.run import Fault, Run
from support.hostile import payloads

BROKER_LIMIT = 1_000_000
MORE = 60
HOSTILE_KEY = b"faults/hostile"
FAR_AHEAD = 1_000
"""Versions: one a little ahead stops who meets it (tests/services/test_other_versions.py)."""
YEAR_MS = 365 * 24 * 3600 * 1000


def again(times: int) -> Fault:
    """Publish what was published, byte for byte, several times more."""

    async def fault(run: Run) -> None:
        for moment in run.moments(times, high=0.6):
            await run.reach(moment)
            await run.driver.send([outgoing(message) for message in run.given[: len(run.driver.acked)]])

    return fault


def poison() -> Fault:
    """Write everything hostile into every partition of every topic, between the good records."""

    async def fault(run: Run) -> None:
        log = run.cluster.log()
        try:
            for topic, moment in zip(topics.TOPICS, run.moments(len(topics.TOPICS), high=0.6), strict=True):
                await run.reach(moment)
                records = _hostile(topic, await log.partitions(topic.name))
                run.rng.shuffle(records)
                await run.driver.send(records)
        finally:
            await log.close()

    return fault


def _hostile(topic: AnyTopic, partitions: int) -> list[Outgoing]:
    values = [v for v in payloads(topic.message).values() if v is None or len(v) < BROKER_LIMIT]
    return [
        Outgoing(topic=topic.name, key=HOSTILE_KEY, value=value, partition=number % partitions)
        for number, value in enumerate(values)
    ]


def late() -> Fault:
    """Publish more items in seeded disorder, with impossible times, on whatever partition."""

    async def fault(run: Run) -> None:
        odd = (0, 1, -YEAR_MS, 100 * YEAR_MS)
        more = [
            message.model_copy(update={"created_at_ms": odd[number % len(odd)]})
            for number, message in enumerate(items(MORE, seed=run.rng.randrange(1000, 2000)))
        ]
        run.rng.shuffle(more)
        partitions = {topics.TRACES.name: run.cluster.settings.kafka.scan_partitions}
        for late_message in more:
            record = outgoing(late_message)
            count = partitions.get(record.topic, run.cluster.settings.kafka.partitions)
            await run.driver.publish_as([late_message], [replace(record, partition=run.rng.randrange(count))])

    return fault


def from_other_writers() -> Fault:
    """Mix in what other writers make: fields left out, fields unknown, and a version that no writer can have."""

    async def fault(run: Run) -> None:
        more = items(MORE, seed=run.rng.randrange(1000, 2000))
        known, unknown = more[: MORE // 2], more[MORE // 2 :]
        await run.driver.publish_as(known, [_by_another(n, message) for n, message in enumerate(known)])
        await run.driver.send([_edited(message, version=FAR_AHEAD) for message in unknown])
        await run.progress.until(
            lambda: len(run.progress.dead_letters) >= len(unknown), 60, "not every one is a dead letter"
        )

    return fault


def _by_another(number: int, item: Item) -> Outgoing:
    if number % 2:
        return _edited(item, body={"field_of_tomorrow": {"deep": [1, 2]}})
    return _edited(item, without=(None, "", 0, [], {}))


def _edited(
    item: Item,
    *,
    body: Mapping[str, object] | None = None,
    version: int | None = None,
    without: tuple[object, ...] = (),
) -> Outgoing:
    envelope: dict[str, Any] = msgpack.unpackb(encode(item))
    fields = {name: value for name, value in envelope["body"].items() if value not in without}
    edited = envelope | {"body": fields | dict(body or {})} | ({"version": version} if version else {})
    return replace(outgoing(item), value=msgpack.packb(edited))
