"""Reflections that are asked about again: an operation that rested on them and on revoked ones was dropped."""

from collections.abc import Callable, Sequence
from itertools import count

from combee.core.batching.plan import go_together
from combee.core.batching.window import Waiting
from combee.ports import Log, TopicPartition
from combee.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.playbook import Asked


async def read_again(
    log: Log,
    partition: int,
    wanted: Sequence[Asked],
    is_known: Callable[[str, int], bool],
    provenance: Provenance,
) -> list[Waiting]:
    """Return those that make the next batch, each as its next attempt; expired ones are none.

    ``is_known``: whether an attempt of an id is in a batch already, as after a rollback to before that batch.
    """
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
            member = members[offset]
            later = count(member.attempt + 1)
            attempt = next(attempt for attempt in later if not is_known(member.reflection_id, attempt))
            member = member.model_copy(update={"attempt": attempt})
            body = provenance.reflection(record, again=True)
            waiting.append(Waiting(member=member, size=len(record.value or b""), seen_at=0.0, body=body))
    return waiting[: go_together([item.size for item in waiting])]
