"""Outcomes become statistics: each partition is folded by one process, and each step is one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from combee.core.outcomes.fold import HORIZON, Fold
from combee.ports import Clock, Consumer, Log, Outgoing, Record, TopicPartition, Transactor
from combee.worker.dead_letters import dead_letter, log_dead_letter
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.outcome import OutcomeStatistics

logger = structlog.get_logger()

GROUP = "control"
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    transactor: Transactor
    fold: Fold


class OutcomeFolder:
    """Reads ``outcomes`` and writes ``outcome-statistics``: what it writes and the commit are one transaction."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        on_statistics: Callable[[OutcomeStatistics], None] = lambda _statistics: None,
    ) -> None:
        self._log = log
        self._clock = clock
        self._on_statistics = on_statistics
        self._partitions: dict[int, _Partition] = {}
        self._consumer: Consumer | None = None

    async def session(self, stop: asyncio.Event) -> None:
        """Fold until ``stop``; any trouble ends the session, and the next one restores itself.

        Raises
        ------
        FencedError, TransientError, FatalError
            For the runtime to decide on; nothing is half done.
        """
        self._consumer = await self._log.consumer(GROUP, (topics.OUTCOMES.name,), self._assigned)
        try:
            while not stop.is_set():
                records = await self._consumer.poll(POLL_S)
                for number in sorted({record.partition for record in records}):
                    await self._take([record for record in records if record.partition == number])
        finally:
            await self._close()
            await self._consumer.close()

    async def _close(self) -> None:
        partitions, self._partitions = self._partitions, {}
        for partition in partitions.values():
            await partition.transactor.close()

    async def _assigned(self, assigned: frozenset[TopicPartition]) -> None:
        assert self._consumer is not None  # noqa: S101 - poll is the only caller
        await self._close()
        for source in sorted(assigned, key=lambda source: source.partition):
            start = await self._consumer.start_offset(source)
            self._partitions[source.partition] = await self._opened(source.partition, start)
        logger.info("assigned", service=GROUP, partitions=sorted(self._partitions))

    async def _opened(self, number: int, start: int) -> _Partition:
        """Fence the former owner, then read back what it wrote, and what was said last before ``start``."""
        transactor = await self._log.transactor(f"{GROUP}-{number}")
        known: dict[str, OutcomeStatistics] = {}
        place = TopicPartition(topic=topics.OUTCOME_STATISTICS.name, partition=number)
        async for record in self._log.read(place, 0):
            try:
                statistics = topics.OUTCOME_STATISTICS.read_own(record)
            except CodecError as error:
                # Not ours: only this service writes here, and it writes what it can read.
                logger.error("undecodable", topic=record.topic, offset=record.offset, error=str(error))
                continue
            known[statistics.line] = statistics
        fold = Fold(known.values())
        for statistics in known.values():
            self._on_statistics(statistics)
        source = TopicPartition(topic=topics.OUTCOMES.name, partition=number)
        async for record in self._log.read(source, max(0, start - HORIZON), start):
            outcome = topics.OUTCOMES.read_or_none(record)
            if outcome is not None:
                fold.take(record.offset, outcome)
        return _Partition(transactor=transactor, fold=fold)

    async def _take(self, records: Sequence[Record]) -> None:
        """Fold records of one partition; what they change, dead letters and the commit are one transaction."""
        source = records[0].source
        partition = self._partitions.get(source.partition)
        if partition is None:
            return
        letters: list[Outgoing] = []
        for record in records:
            try:
                partition.fold.take(record.offset, topics.OUTCOMES.read_own(record))
            except CodecError as error:
                log_dead_letter(record, service=GROUP, reason=str(error))
                letters.append(dead_letter(record, service=GROUP, reason=str(error), clock=self._clock))
        changed = list(partition.fold.changed(self._clock.now_ms()))
        written = [topics.OUTCOME_STATISTICS.record(each, partition=source.partition) for each in changed]
        async with partition.transactor.transaction() as transaction:
            await transaction.send(*written, *letters)
            await transaction.commit_offsets(GROUP, {source: records[-1].offset + 1})
        for statistics in changed:
            self._on_statistics(statistics)
