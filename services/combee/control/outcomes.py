"""Outcomes become statistics and verdicts of canaries. One process folds each partition, one transaction per step."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    Consumer,
    Log,
    Origin,
    Outgoing,
    Record,
    TopicPartition,
    Tracing,
    Transactor,
)
from combee.control.canaries import Canaries, OnCanary
from combee.core.evaluation.outcomes.fold import HORIZON, Fold
from combee.core.gate.canary_fold import CanaryFold
from combee.process.worker.dead_letters import dead_letter, log_dead_letter
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import own_message
from combee_schemas import topics
from combee_schemas.canary import CanaryStatistics
from combee_schemas.codec import CodecError
from combee_schemas.gate import Verdict
from combee_schemas.outcome import Outcome, OutcomeStatistics

logger = structlog.get_logger()

GROUP = "control"
POLL_S = 0.5
CURRENT_S = 60.0
"""Seconds to read the labels; after that the session ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    transactor: Transactor
    fold: Fold
    canaries: CanaryFold


class OutcomeFolder:
    """Reads ``outcomes``, writes ``outcome-statistics`` and ``verdicts``: with the commit in one transaction.

    ``canaries.labels`` must run at the same time.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        on_statistics: Callable[[OutcomeStatistics], None] = lambda _statistics: None,
        on_canary: OnCanary = lambda _playbook, _report: None,
        provenance: Provenance | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self._provenance = provenance or Provenance()
        self.canaries = Canaries(log, clock, on_canary)
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
            The caller decides what follows; nothing is half done.
        """
        await self.canaries.labels.wait_current(CURRENT_S)
        self._consumer = await self._log.consumer(GROUP, (topics.OUTCOMES.name,), self._assigned)
        try:
            while not stop.is_set():
                records = await self._consumer.poll(POLL_S)
                for number in sorted({record.partition for record in records}):
                    await self._take([record for record in records if record.partition == number])
                await self._look_at_canaries()
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
        """Fence the former owner, then read back its statistics and the last verdicts before ``start``."""
        transactor = await self._log.transactor(f"{GROUP}-{number}")
        known: dict[str, OutcomeStatistics] = {}
        canaries: dict[str, CanaryStatistics] = {}
        place = TopicPartition(topic=topics.OUTCOME_STATISTICS.name, partition=number)
        async for record in self._log.read(place, 0):
            canary = topics.CANARY_STATISTICS.read_or_none(record)
            if canary is not None:
                canaries[canary.playbook] = canary
                continue
            if record.value is None:
                known.pop(topics.key_of(record), None)
                continue
            # An unreadable record is not Combee's: only this service writes here, and it can read its own records.
            statistics = own_message(topics.OUTCOME_STATISTICS, record)
            if statistics is not None:
                known[statistics.line] = statistics
        fold = Fold(known.values())
        tried = CanaryFold(self.canaries.terms, canaries.values(), start=start)
        for statistics in known.values():
            self._on_statistics(statistics)
        source = TopicPartition(topic=topics.OUTCOMES.name, partition=number)
        async for record in self._log.read(source, max(0, start - HORIZON), start):
            with suppress(CodecError):
                outcome = self._provenance.outcome(record, is_reread=True)
                if await self._home(outcome) != number:
                    continue
                fold.add(record.offset, outcome)
                tried.add(record.offset, outcome, is_proven=_is_proven(outcome))
        return _Partition(transactor=transactor, fold=fold, canaries=tried)

    async def _home(self, outcome: Outcome) -> int:
        """Return the partition that an outcome belongs on."""
        return await self._log.partition_for(topics.OUTCOMES.name, topics.OUTCOMES.key_of(outcome))

    async def _take(self, records: Sequence[Record]) -> None:
        """Fold records of one partition in a span that is linked to what wrote them."""
        contexts = [context for record in records if (context := self._tracing.context_of(record))]
        origins = [Origin(context=context) for context in contexts]
        with self._tracing.gathered("outcomes", origins, {"messaging.batch.message_count": len(records)}):
            await self._fold(records)

    async def _fold(self, records: Sequence[Record]) -> None:
        """Fold records of one partition; statistics, dead letters and the commit are one transaction."""
        source = records[0].source
        partition = self._partitions.get(source.partition)
        if partition is None:
            return
        letters: list[Outgoing] = []
        moved: list[Outgoing] = []
        for record in records:
            await asyncio.sleep(0)  # one may take 20 ms, and other tasks answer the broker
            try:
                outcome = self._provenance.outcome(record)
            except CodecError as error:
                log_dead_letter(record, service=GROUP, reason=str(error))
                letters.append(dead_letter(record, service=GROUP, reason=str(error), clock=self._clock))
                continue
            home = await self._home(outcome)
            if home != source.partition:
                # Another client's partitioner; its statistics are made there.
                moved.append(
                    Outgoing(
                        topic=record.topic,
                        key=topics.OUTCOMES.key_of(outcome),
                        value=record.value,
                        partition=home,
                        headers=record.headers_to_copy,
                    )
                )
                continue
            partition.fold.add(record.offset, outcome)
            partition.canaries.add(record.offset, outcome, is_proven=_is_proven(outcome))
        now_ms = self._clock.now_ms()
        changed, tried = list(partition.fold.changed(now_ms)), list(partition.canaries.changed(now_ms))
        verdicts = self._verdicts(partition, [canary.playbook for canary in tried])
        written = [
            *(
                topics.OUTCOME_STATISTICS.record(statistics, partition=source.partition)
                for statistics in changed
            ),
            *(
                topics.OUTCOME_STATISTICS.tombstone(line, partition=source.partition)
                for line in partition.fold.gone()
            ),
            *(topics.CANARY_STATISTICS.record(canary, partition=source.partition) for canary in tried),
            *(topics.VERDICTS.record(verdict, partition=source.partition) for verdict in verdicts),
        ]
        async with partition.transactor.transaction() as transaction:
            await transaction.send(*written, *letters, *moved)
            await transaction.commit_offsets(GROUP, {source: records[-1].offset + 1})
        for statistics in changed:
            self._on_statistics(statistics)
        for verdict in verdicts:
            self.canaries.written(verdict)

    def _verdicts(self, partition: _Partition, playbooks: Iterable[str]) -> list[Verdict]:
        canaries = [canary for name in playbooks if (canary := partition.canaries.get(name))]
        for canary in canaries:
            self.canaries.show(canary)
        return [verdict for canary in canaries if (verdict := self.canaries.verdict(canary))]

    async def _look_at_canaries(self) -> None:
        """Write verdicts that follow from time alone: deadlines pass without outcomes."""
        self.canaries.show_ended()
        for name in self.canaries.playbooks():
            number = await self._log.partition_for(topics.OUTCOMES.name, name.encode())
            partition = self._partitions.get(number)
            if partition is None:
                continue
            for verdict in self._verdicts(partition, [name]):
                async with partition.transactor.transaction() as transaction:
                    await transaction.send(topics.VERDICTS.record(verdict, partition=number))
                self.canaries.written(verdict)


def _is_proven(outcome: Outcome) -> bool:
    return outcome.source is not None and bool(outcome.source.proven)
