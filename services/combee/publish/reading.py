"""Publish's reads from the log: the state of a partition, and further inputs of decisions."""

from typing import Any, TypeVar

from combee.adapters.ports import Log, Record, TopicPartition
from combee.core.log.watermark import Watermark
from combee.core.playbook.executing import retained_from
from combee.log.evidence import adoption_of, recomputed, updates_between, with_evidence_left, with_revoked
from combee.log.history import History
from combee.process.worker.manifest_cache import ManifestCache
from combee.process.worker.views import Newest, own_message
from combee.publish.basis import (
    AdoptionOf,
    AllRevoked,
    Bodies,
    EntriesBetween,
    EvidenceLeft,
    FirstReflection,
    ManifestAt,
    OldVersion,
    PublishState,
    Remainder,
    Request,
    UpdatesBetween,
)
from combee_schemas import topics
from combee_schemas.playbook import Label, Playbook
from combee_schemas.topics import Topic, key_of

M = TypeVar("M", Playbook, Label)


async def open_partition(log: Log, number: int, starts: dict[str, int]) -> PublishState:
    """Return a partition's state from the compacted topics; its former owner must be fenced before."""
    watermarks = {topic: Watermark(start) for topic, start in starts.items()}
    playbooks, labels = Newest(topics.PLAYBOOKS), Newest(topics.LABELS)
    await _take_all(log, playbooks, topics.PLAYBOOKS, number)
    await _take_all(log, labels, topics.LABELS, 0)
    return PublishState(number=number, watermarks=watermarks, playbooks=playbooks, labels=labels.all())


async def _take_all(log: Log, newest: Newest[M], topic: Topic[M], partition: int) -> None:
    async for record in log.read(TopicPartition(topic=topic.name, partition=partition), 0):
        # An unreadable record is not Combee's: only this service writes here, and it can read its own records.
        if not newest.keep(record) and (message := own_message(topic, record)) is not None:
            newest.take(key_of(record), message)


class Reader:
    """Answers the requests of decisions."""

    def __init__(self, log: Log, manifests: ManifestCache, budget_tokens: int) -> None:
        self._log = log
        self._manifests = manifests
        self._budget_tokens = budget_tokens
        self._history = History(log)

    async def record(self, source: TopicPartition, offset: int) -> Record:
        """Return a record that is known to stand there."""
        return (await self._log.read_at(source, [offset]))[offset]

    async def answer(  # noqa: C901, PLR0911 - one branch for each request
        self, request: Request[Any], state: PublishState
    ) -> object:
        """Return the answer to a request.

        Raises
        ------
        PoisonError, TransientError
            If reading it takes too long.
        """
        match request:
            case ManifestAt(partition=partition, offset=offset, may_come=may_come):
                place = partition, offset
                if may_come and not self._manifests.has_come(place):
                    return "to come"
                return await self._manifests.find(place)
            case OldVersion(name=name, number=number):
                return await self._history.exactly(name, number, state.current(name))
            case AllRevoked(version=version):
                return (await with_revoked(self._log, version)).revoked
            case EvidenceLeft(version=version):
                return await with_evidence_left(self._log, version)
            case Remainder(version=version, barred=barred):
                return await recomputed(
                    self._log,
                    version,
                    barred,
                    retained_from=retained_from(barred),
                    budget_tokens=self._budget_tokens,
                )
            case AdoptionOf(current=current, line=line, target=target):
                return await adoption_of(self._log, current, line, target, self._exactly)
            case UpdatesBetween(name=name, after=after, through=through):
                return await updates_between(self._log, name, after, through)
            case EntriesBetween(name=name, start=start, end=end, entry_ids=entry_ids):
                return [
                    version.model_copy(
                        update={"entries": tuple(entry for entry in version.entries if entry.id in entry_ids)}
                    )
                    async for version in self._history.between(name, start, end)
                ]
            case Bodies(partition=partition, offsets=offsets):
                source = TopicPartition(topic=topics.REFLECTIONS.name, partition=partition)
                return await self._log.read_at(source, list(offsets))
            case FirstReflection(partition=partition):
                return (await self._log.beginnings(topics.REFLECTIONS.name))[partition]
        raise AssertionError(f"nobody reads {request}")

    async def _exactly(self, newest: Playbook, number: int) -> Playbook | None:
        return await self._history.exactly(newest.name, number, newest)
