"""Reflections that are asked about again: an operation that rested on them and on revoked ones was dropped."""

from collections.abc import Sequence

from combee.core.batching.plan import go_together
from combee.core.batching.window import Waiting
from combee.ports import Log, TopicPartition
from combee_schemas import topics
from combee_schemas.playbook import Asked


async def read_again(log: Log, partition: int, wanted: Sequence[Asked]) -> list[Waiting]:
    """Return those that make the next batch, each as one attempt more than in its manifest; expired ones are none."""
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=partition)
    first = (await log.beginnings(source.topic))[partition]
    retained = sorted({asked.offset for asked in wanted if asked.offset >= first})
    places = sorted({asked.manifest_offset for asked in wanted})
    manifests = await log.read_at(TopicPartition(topic=topics.BATCHES.name, partition=partition), places)
    members = {
        member.offset: member
        for _, record in sorted(manifests.items())
        if (batch := topics.BATCHES.read_or_none(record)) is not None
        for member in batch.members
    }
    waiting: list[Waiting] = []
    for offset, record in sorted((await log.read_at(source, retained)).items()):
        if offset in members:
            member = members[offset].model_copy(update={"attempt": members[offset].attempt + 1})
            body = topics.REFLECTIONS.read(record)
            waiting.append(Waiting(member=member, size=len(record.value or b""), seen_at=0.0, body=body))
    return waiting[: go_together([item.size for item in waiting])]
