"""A log in which every result that a test invents was planned: its manifest is written before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.core.batching.planned import evidence_of
from combee_schemas import topics
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.scan import Partial, Update
from combee_schemas.topics import Topic
from support.deployment import Deployment

RESULTS: Mapping[str, Topic[Partial] | Topic[Update]] = {
    **{topic.name: topic for topic in topics.PARTIALS},
    topics.UPDATES.name: topics.UPDATES,
}


class PlanningLog(MemoryLog):
    """Writes the manifest that a result needs, at the offset that the result names where that is still free."""

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        planned = [await self._planned(record) for record in outgoing]
        return await super().produce(*planned)

    async def _planned(self, record: Outgoing) -> Outgoing:
        topic = RESULTS.get(record.topic)
        result = topic.read_or_none(record) if topic else None  # type: ignore[arg-type] # as good as a record
        if result is None:
            return record
        offset = await self._place(manifest_of(result), result.manifest_offset)
        return replace(record, value=encode(result.model_copy(update={"manifest_offset": offset})))

    async def _place(self, batch: Batch, wanted: int) -> int:
        manifest = topics.BATCHES.record(batch)
        partition = await self.partition_for(topics.BATCHES.name, manifest.key or b"")
        known = self._store.partitions(topics.BATCHES.name)[partition]
        there = known.records(known.first, known.end)
        offset = next((record.offset for record in there if record.value == manifest.value), None)
        if offset is None:
            blank = Outgoing(topic=topics.BATCHES.name, value=b"", partition=partition)
            blanks = [blank] * max(0, wanted - known.end)
            *_, offset = await super().produce(*blanks, replace(manifest, partition=partition))
        return offset


def manifest_of(planned: Partial | Update) -> Batch:
    """Return a manifest that a result may be of: its members are what the result names."""
    places = {seen.offset: seen.reflection_id for seen in planned.result.seen}
    others = sorted(set(evidence_of(planned.result)) - set(places.values()))
    places |= dict(enumerate(others, 1_000_000))
    sources = {seen.offset: seen.source for seen in planned.result.seen}
    members = tuple(
        Member(offset=at, reflection_id=name, source=sources.get(at)) for at, name in sorted(places.items())
    )
    return Batch(plan=planned.plan, seed=1, members=members, copies=1)


class PlanningDeployment(Deployment):
    """Services on such a log."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.log = PlanningLog(self.clock, partitions=self.partitions, scan_partitions=3)
