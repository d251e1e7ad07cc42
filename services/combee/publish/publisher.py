"""The publish service: the only writer of playbooks; one version per update, in one transaction each.

The path of an update to its version:

1. ``_take_one`` reads a record and asks ``decide.py`` what becomes of it. While the decision rests on something
   unread, ``reading.py`` reads that, and ``decide`` is asked again (``_read_for``).
2. The decision for an update is to skip it, to wait for its manifest or its predecessor (``_wait``), or to make the
   next version (``core/playbook/versions.py:after_update``). An error makes the record a dead letter (``_refuse``).
3. ``completed`` adds what follows from any version: revocations, marks, candidates.
4. ``_write`` writes version, snapshot, labels, dead letters and offsets in one transaction; then the partition
   remembers it, and what waited for it is next.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import structlog

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    Consumer,
    Log,
    Notes,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
    Tracing,
    Transaction,
    Transactor,
)
from combee.core.commands import RefusedError
from combee.core.gate.gate import Gate
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import InapplicableError
from combee.process.worker import manifest_cache
from combee.process.worker.dead_letters import dead_letter, log_dead_letter
from combee.process.worker.manifest_cache import ManifestCache, Place
from combee.process.worker.session import together
from combee.publish.basis import (
    SKIP,
    Basis,
    Lost,
    PublishDecision,
    PublishRules,
    PublishState,
    UnreadError,
    WaitsFor,
)
from combee.publish.decide import Message, completed, decide, decide_start
from combee.publish.reading import Reader, open_partition
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Update

logger = structlog.get_logger()

T = TypeVar("T")

GROUP = "publish"
INPUTS = (topics.UPDATES.name, topics.COMMANDS.name, topics.VERDICTS.name)
POLL_S = 0.5
TAKEN_AT_ONCE = 20
"""Maximum number of updates per turn taken up again after waiting for a manifest, so that other records go on."""
UNUSABLE = (CodecError, PoisonError, RefusedError, InapplicableError)
"""Errors of one record: the record becomes a dead letter, and the next one is taken."""
OnGate = Callable[[Gate], None]
"""Called with each gate when a partition is assigned, and when the gate is written."""


@dataclass(slots=True, kw_only=True)
class _Partition:
    """An assigned partition.

    The offset of a waiting update is not committed. The wait for a manifest has a limit, because a forged update
    would hold up the offsets for ever.
    """

    state: PublishState
    transactor: Transactor
    awaiting_manifest: dict[int, tuple[Place, float]] = field(default_factory=dict)
    """Updates that wait for their manifest, by offset: its place, and since when they wait (monotonic seconds)."""


class Publisher:
    """Reads updates, commands and verdicts of its partitions, writes history, playbooks and labels."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        *,
        budget_tokens: int,
        spending: SpendPolicy = UNCAPPED,
        gates: GatePolicy = NO_GATE,
        on_gate: OnGate = lambda _gate: None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._log = log
        self._clock = clock
        self._rules = PublishRules(budget_tokens=budget_tokens, spending=spending, gates=gates)
        self._on_gate = on_gate
        self._tracing = tracing
        self._manifests = ManifestCache(log)
        self._reader = Reader(log, self._manifests, budget_tokens)
        self._partitions: dict[int, _Partition] = {}
        self._consumer: Consumer | None = None

    async def session(self, stop: asyncio.Event, on_turn: Callable[[], None]) -> None:
        """Join, restore, publish until ``stop``; any trouble ends the session, and the next one restores.

        ``on_turn`` is called at each turn that has partitions.

        Raises
        ------
        FencedError, TransientError, FatalError
            The caller decides what follows; nothing is half done.
        """
        await together(self._publish(stop, on_turn), self._manifests.run())

    async def _publish(self, stop: asyncio.Event, on_turn: Callable[[], None]) -> None:
        await self._manifests.wait_current()
        self._consumer = await self._log.consumer(GROUP, INPUTS, self._assigned)
        try:
            while not stop.is_set():
                for record in await self._consumer.poll(POLL_S):
                    ours = self._partitions.get(record.partition)
                    if ours is not None and ours.state.watermarks[record.topic].begin(record.offset):
                        await self._take(ours, record)
                for ours in list(self._partitions.values()):
                    await self._take_settled(ours)
                if self._partitions:
                    on_turn()
        finally:
            await self._close_partitions()
            await self._consumer.close()

    # ---- partitions

    async def _assigned(self, assigned: frozenset[TopicPartition]) -> None:
        await self._close_partitions()
        for number in sorted({tp.partition for tp in assigned}):
            starts = {tp.topic: await self._start(tp) for tp in assigned if tp.partition == number}
            transactor = await self._log.transactor(f"publish-{number}")  # fences the former owner
            ours = _Partition(state=await open_partition(self._log, number, starts), transactor=transactor)
            self._partitions[number] = ours
            await self._open_gates(ours)
        logger.info("assigned", service=GROUP, partitions=sorted(self._partitions))

    async def _start(self, source: TopicPartition) -> int:
        assert self._consumer is not None  # noqa: S101 - poll is the only caller
        return await self._consumer.start_offset(source)

    async def _close_partitions(self) -> None:
        partitions, self._partitions = self._partitions, {}
        for ours in partitions.values():
            await ours.transactor.close()

    async def _open_gates(self, ours: _Partition) -> None:
        """Turn gates on and off as set, and announce all."""
        basis = self._basis(ours)
        started = decide_start(basis)
        if started != SKIP:
            await self._write(ours, await self._read_for(basis, lambda: completed(basis, started)))
        for gate in map(ours.state.gate, ours.state.live_playbooks()):
            if gate is not None:
                self._on_gate(gate)

    # ---- a record

    async def _take_settled(self, ours: _Partition) -> None:
        """Continue with updates whose manifest is visible now, or did not come in time."""
        source = TopicPartition(topic=topics.UPDATES.name, partition=ours.state.number)
        now = self._clock.monotonic()
        due = (
            offset
            for offset, (place, since) in ours.awaiting_manifest.items()
            if self._manifests.has_come(place) or now - since >= manifest_cache.ARRIVES_S
        )
        for offset in list(islice(due, TAKEN_AT_ONCE)):
            del ours.awaiting_manifest[offset]
            await self._take(ours, await self._reader.record(source, offset), is_settled=True)

    async def _take(self, ours: _Partition, record: Record, *, is_settled: bool = False) -> None:
        """Handle a record, and then the updates that waited for the versions that it made.

        ``is_settled``: the record's manifest has come, or never will.
        """
        source = TopicPartition(topic=topics.UPDATES.name, partition=record.partition)
        queue = [record]
        for taken in queue:
            for version in await self._take_one(ours, taken, is_settled=is_settled or taken is not record):
                offset = ours.state.waiting.pop((version.name, version.batch_sequence + 1), None)
                if offset is not None:
                    queue.append(await self._reader.record(source, offset))

    async def _take_one(self, ours: _Partition, record: Record, *, is_settled: bool) -> Sequence[Playbook]:
        """Decide about one record and write the decision; return the versions that it made."""
        with self._tracing.processing(GROUP, record):
            try:
                message, basis = await self._read(record), self._basis(ours, may_wait=not is_settled)
                outcome = await self._read_for(basis, lambda: decide(basis, message, record.offset))
                if isinstance(outcome, PublishDecision):
                    made = outcome
                    decision = await self._read_for(basis, lambda: completed(basis, made))
                    return await self._write(ours, decision, record)
                await self._wait(ours, message, record.offset, outcome)
            except UNUSABLE as error:
                await self._refuse(ours, record, str(error))
        return ()

    async def _read(self, record: Record) -> Message:
        """Return the message of a record.

        Raises
        ------
        CodecError, PoisonError
            If it cannot be read, or belongs on another partition.
        """
        topic = topics.BY_NAME[record.topic]
        read = topic.read_own if topic is topics.VERDICTS else topic.read
        message: Message = read(record)
        if await self._log.partition_for(record.topic, topic.key_of(message)) != record.partition:
            raise PoisonError(f"this {message.type} does not belong on partition {record.partition}")
        return message

    def _basis(self, ours: _Partition, *, may_wait: bool = True) -> Basis:
        return Basis(state=ours.state, rules=self._rules, now_ms=self._clock.now_ms(), may_wait=may_wait)

    async def _read_for(self, basis: Basis, ask: Callable[[], T]) -> T:
        """Return the decision on a basis, reading whatever the decision still needs and asking again."""
        while True:
            try:
                return ask()
            except UnreadError as missing:
                basis.answers[missing.request] = await self._reader.answer(missing.request, basis.state)

    async def _wait(self, ours: _Partition, message: object, offset: int, waits_for: WaitsFor) -> None:
        """Remember the place of an update that cannot be applied yet; it is not committed."""
        assert isinstance(message, Update)  # noqa: S101 - nothing else waits
        if waits_for == "predecessor":
            ours.state.waiting[message.plan.playbook, message.plan.sequence] = offset
        else:
            place = ours.state.number, message.manifest_offset
            ours.awaiting_manifest[offset] = place, self._clock.monotonic()

    # ---- writing

    async def _refuse(self, ours: _Partition, record: Record, reason: str) -> None:
        log_dead_letter(record, service=GROUP, reason=reason)
        self._tracing.failed(reason)
        letter = dead_letter(record, service=GROUP, reason=reason, clock=self._clock)
        async with ours.transactor.transaction() as transaction:
            await transaction.send(letter)
            await transaction.commit_offsets(GROUP, ours.state.offsets([record]))

    async def _write(
        self, ours: _Partition, decision: PublishDecision, record: Record | None = None
    ) -> Sequence[Playbook]:
        """Write a decision, and that its record is done, in one transaction; return the versions, placed.

        Versions go to ``history`` and, with their offsets there, to the compacted topics.
        """
        async with ours.transactor.transaction() as transaction:
            placed = [
                await self._send_version(transaction, ours.state, version) for version in decision.versions
            ]
            await transaction.send(*map(self._letter, decision.lost), *ours.state.records(decision))
            if record is not None:
                await transaction.commit_offsets(GROUP, ours.state.offsets([record]))
        ours.state.remember(decision, placed)
        for gate in decision.gates.values():
            self._on_gate(gate)
        _log_decision(decision, placed)
        return placed

    async def _send_version(
        self, transaction: Transaction, state: PublishState, version: Playbook
    ) -> Playbook:
        named: Notes = {
            "combee.playbook": version.name,
            "combee.version": version.version,
            "combee.origin": version.origin,
        }
        with self._tracing.span("write version", named):
            (offset,) = await transaction.send(topics.HISTORY.record(version, partition=state.number))
            placed = version.model_copy(update={"history_offset": offset})
            await transaction.send(*state.snapshots(placed))
        return placed

    def _letter(self, lost: Lost) -> Outgoing:
        return dead_letter(
            lost.record,
            service="scan",
            reason=lost.reason,
            clock=self._clock,
            record_id=lost.seen.reflection_id,
            playbook=lost.playbook,
            attempt=lost.attempt,
        )


def _log_decision(decision: PublishDecision, placed: Sequence[Playbook]) -> None:
    if decision.passed_over:
        logger.info("verdict_passed_over", reason=decision.passed_over)
    for message in decision.decisions:
        logger.info(
            "decision",
            playbook=message.playbook,
            decided=message.decided,
            candidate=message.candidate,
            production=message.version,
            reason=message.reason,
        )
    for version in placed:
        logger.info(
            "version",
            playbook=version.name,
            version=version.version,
            entries=len(version.entries),
            batch=version.batch.plan.batch_id if version.batch else None,
            sequence=version.batch_sequence,
            origin=version.origin,
        )
