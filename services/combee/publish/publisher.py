"""The publish service: the only writer of playbooks; one version per update, in one transaction each."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from combee.core.commands import RefusedError, check_branch, has_branches, no_version
from combee.core.gate.gate import Gate, conclusion
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.playbook import evidence, versions
from combee.core.playbook.branching import Adoption, barred_by
from combee.core.playbook.recomputing import Recomputed
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.evidence import adoption_of, recomputed, with_evidence_left, with_revoked
from combee.history import History
from combee.ports import (
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
)
from combee.publish.gatekeeper import NOTHING, Gatekeeper, Step
from combee.publish.partition import PartitionState, open_partition
from combee.worker.dead_letters import dead_letter, log_dead_letter
from combee.worker.manifest_cache import ManifestCache
from combee.worker.session import together
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.codec import CodecError
from combee_schemas.command import Command, CommandKind
from combee_schemas.plan import Branch
from combee_schemas.playbook import Playbook, label_key
from combee_schemas.scan import Seen, Update

logger = structlog.get_logger()

GROUP = "publish"
INPUTS = (topics.UPDATES.name, topics.COMMANDS.name, topics.VERDICTS.name)
POLL_S = 0.5
NOT_OURS: frozenset[CommandKind] = frozenset({"flush", "consolidate", "branch"})
UNUSABLE = (CodecError, PoisonError, RefusedError, versions.InapplicableError)
"""Errors of one record: it is dead-lettered, and the next one is taken."""
OnGate = Callable[[Gate], None]
"""Gets a gate as it stands when a partition is ours, and as it is written."""


class Publisher:
    """Reads updates and commands of its partitions, writes history, playbooks and labels."""

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
        self._budget_tokens = budget_tokens
        self._spending = spending
        self._gatekeeper = Gatekeeper(log, clock, gates)
        self._on_gate = on_gate
        self._tracing = tracing
        self._manifests = ManifestCache(log)
        self._states: dict[int, PartitionState] = {}
        self._consumer: Consumer | None = None

    async def session(self, stop: asyncio.Event, on_turn: Callable[[], None]) -> None:
        """Join, restore, publish until ``stop``; any trouble ends the session, and the next one restores.

        ``on_turn`` is called at each turn that has partitions.

        Raises
        ------
        FencedError, TransientError, FatalError
            For the runtime to decide on; nothing is half done.
        """
        await together(self._publish(stop, on_turn), self._manifests.run())

    async def _publish(self, stop: asyncio.Event, on_turn: Callable[[], None]) -> None:
        await self._manifests.wait_current()
        self._consumer = await self._log.consumer(GROUP, INPUTS, self._assigned)
        try:
            while not stop.is_set():
                for record in await self._consumer.poll(POLL_S):
                    await self._take(record)
                for state in list(self._states.values()):
                    await self._take_seen(state)
                if self._states:
                    on_turn()
        finally:
            await self._close_partitions()
            await self._consumer.close()

    async def _assigned(self, assigned: frozenset[TopicPartition]) -> None:
        await self._close_partitions()
        for partition in sorted({tp.partition for tp in assigned}):
            starts = {tp.topic: await self._start(tp) for tp in assigned if tp.partition == partition}
            state = await open_partition(self._log, partition, starts)
            self._states[partition] = state
            await self._open_gates(state)
        logger.info("assigned", service=GROUP, partitions=sorted(self._states))

    async def _start(self, source: TopicPartition) -> int:
        assert self._consumer is not None  # noqa: S101 - poll is the only caller
        return await self._consumer.start_offset(source)

    async def _close_partitions(self) -> None:
        states, self._states = self._states, {}
        for state in states.values():
            await state.transactor.close()

    async def _take(self, record: Record) -> None:
        state = self._states.get(record.partition)
        if state is None or not state.watermarks[record.topic].begin(record.offset):
            return
        with self._tracing.processing(GROUP, record):
            await self._take_own(state, record)

    async def _take_own(self, state: PartitionState, record: Record) -> None:
        try:
            if record.topic == topics.UPDATES.name:
                await self._take_update(state, record)
            elif record.topic == topics.VERDICTS.name:
                await self._take_verdict(state, record)
            else:
                await self._take_command(state, record)
        except UNUSABLE as error:
            await self._dead_letter(state, record, str(error))

    async def _dead_letter(self, state: PartitionState, record: Record, reason: str) -> None:
        log_dead_letter(record, service=GROUP, reason=reason)
        self._tracing.failed(reason)
        letter = dead_letter(record, service=GROUP, reason=reason, clock=self._clock)
        async with state.transactor.transaction() as transaction:
            await transaction.send(letter)
            await transaction.commit_offsets(GROUP, state.offsets([record]))

    async def _skip(self, state: PartitionState, record: Record) -> None:
        """Commit what had its effect already."""
        async with state.transactor.transaction() as transaction:
            await transaction.commit_offsets(GROUP, state.offsets([record]))

    async def _current(self, state: PartitionState, name: str) -> Playbook:
        """Return the newest version with all that is revoked: looked up once, then remembered."""
        current = state.current(name)
        if name not in state.revoked:
            state.revoked[name] = (await with_revoked(self._log, current)).revoked
        return current.model_copy(update={"revoked": state.revoked[name]})

    # ---- updates

    async def _take_update(self, state: PartitionState, record: Record) -> None:
        update = topics.UPDATES.read(record)
        name, sequence = update.plan.playbook, update.plan.sequence
        if await self._log.partition_for(record.topic, topics.UPDATES.key_of(update)) != record.partition:
            raise PoisonError(f"an update of {name} does not belong on partition {record.partition}")
        if sequence <= state.current(name).batch_sequence:
            await self._skip(state, record)
            return
        place = await self._manifests.place_of(update)
        if self._manifests.has_come(place):
            await self._take_planned(state, record, update)
        else:
            state.early.add_unseen(record.offset, place, self._clock.monotonic())

    async def _take_seen(self, state: PartitionState) -> None:
        """Go on with updates whose manifests can be seen by now; refuse those that have none."""
        async for record in state.early.seen(self._manifests, self._clock.monotonic()):
            with self._tracing.processing(GROUP, record):
                try:
                    await self._take_planned(state, record, topics.UPDATES.read(record))
                except UNUSABLE as error:
                    await self._dead_letter(state, record, str(error))

    async def _take_planned(self, state: PartitionState, record: Record, update: Update) -> None:
        """Take an update if its manifest planned it.

        Raises
        ------
        PoisonError
            If it did not.
        """
        if forgery := await self._manifests.forgery(update):
            raise PoisonError(forgery)
        name, sequence = update.plan.playbook, update.plan.sequence
        after = sequence - state.current(name).batch_sequence
        if after <= 0 or (name, sequence) in state.early:
            await self._skip(state, record)
        elif after > 1:
            state.early.add(update, record.offset)
        else:
            await self._apply(state, record, update)
            while successor := await state.early.take((name, state.current(name).batch_sequence + 1)):
                await self._apply_early(state, successor)

    async def _apply_early(self, state: PartitionState, record: Record) -> None:
        """Apply an early update; an error in it must not be blamed on the update that it waited for."""
        with self._tracing.processing(GROUP, record):
            try:
                await self._apply(state, record, topics.UPDATES.read(record))
            except UNUSABLE as error:
                await self._dead_letter(state, record, str(error))

    async def _apply(self, state: PartitionState, record: Record, update: Update) -> None:
        current = await self._current(state, update.plan.playbook)
        if update.plan.branch is not None:
            await self._fork(state, record, update, current, update.plan.branch)
            return
        if update.plan.reason == "revoke":
            # What an entry rests on already must not be counted once more, however much that is.
            current = await with_evidence_left(self._log, current)
        version = versions.after_update(
            current,
            update,
            budget_tokens=self._budget_tokens,
            now_ms=self._clock.now_ms(),
            spending=self._spending,
        )
        letters = await self._lost(record.partition, update)
        await self._write(state, record, (version,), letters)

    async def _fork(
        self, state: PartitionState, record: Record, update: Update, current: Playbook, branch: Branch
    ) -> None:
        playbook = await self._current(state, branch.of)
        forked = await with_revoked(self._log, await self._version(playbook, branch.version))
        barred = barred_by(playbook, current)
        is_clean = set(barred.revoked) <= set(forked.revoked)
        version = versions.after_fork(
            current,
            update,
            forked,
            playbook=playbook,
            recomputed=None if is_clean else await self._without(forked, barred),
            budget_tokens=self._budget_tokens,
            now_ms=self._clock.now_ms(),
        )
        await self._write(state, record, (version,))

    async def _lost(self, partition: int, update: Update) -> Sequence[Outgoing]:
        """Return dead letters for reflections of which no copy got through, their bytes untouched."""
        lost = {seen.offset: seen for seen in update.result.seen if not seen.ok}
        source = TopicPartition(topic=topics.REFLECTIONS.name, partition=partition)
        records = await self._log.read_at(source, sorted(lost))
        # Not from the record's headers: anybody can write those.
        manifest = await self._manifests.find(await self._manifests.place_of(update))
        attempts = manifest.attempts if manifest else {}
        return [
            self._letter(record, lost[offset], update, attempts.get(offset, 0))
            for offset, record in sorted(records.items())
        ]

    def _letter(self, record: Record, seen: Seen, update: Update, attempt: int) -> Outgoing:
        return dead_letter(
            record,
            service="scan",
            reason=f"no copy survived batch {update.plan.batch_id}: {update.result.reason or 'see its partials'}",
            clock=self._clock,
            record_id=seen.reflection_id,
            playbook=update.plan.playbook,
            attempt=attempt,
        )

    # ---- commands

    async def _take_command(self, state: PartitionState, record: Record) -> None:
        command = topics.COMMANDS.read(record)
        current = state.current(command.playbook)
        if await self._log.partition_for(record.topic, topics.COMMANDS.key_of(command)) != record.partition:
            raise PoisonError(f"a command for {command.playbook} is on the wrong partition")
        if command.kind in NOT_OURS or versions.is_executed(current, command, record.offset):
            await self._skip(state, record)
        elif command.kind == "promote":
            await self._promote(state, record, command, current)
        elif command.kind in {"approve", "reject"}:
            gate = self._gatekeeper.said(state, command, record.offset)
            await (self._conclude(state, record, gate) if gate else self._skip(state, record))
        else:
            await self._write(state, record, await self._made(state, command, record.offset))

    async def _made(
        self, state: PartitionState, command: Command, offset: int | None = None
    ) -> list[Playbook]:
        """Return the versions that a command makes; ``offset``: where it stands, if it came as a record."""
        lines = [command.playbook]
        if command.kind == "revoke":
            # What is poison on one line is on all: they are one partition's, and are written at once.
            lines += [line.name for line in state.branches(command.playbook)]
        return [await self._after(state, command, offset, line) for line in lines]

    async def _after(
        self, state: PartitionState, command: Command, offset: int | None, line: str
    ) -> Playbook:
        """Return the version that a command makes of a line."""
        # Of a branch that was deleted: what was revoked since stays out when it comes back.
        current = barred_by(await self._current(state, line), await self._current(state, playbook_of(line)))
        target = await self._target(state, command, current)
        adoption = await self._adoption(state, command, current)
        recomputed = await self._recomputed(command, current, target, adoption)
        if command.kind == "delete":
            current = state.with_label_commands(current)
        return versions.after_command(
            current,
            command,
            current.command_offset if offset is None else offset,
            target=target,
            budget_tokens=self._budget_tokens,
            now_ms=self._clock.now_ms(),
            adoption=adoption,
            recomputed=recomputed,
        )

    async def _adoption(self, state: PartitionState, command: Command, current: Playbook) -> Adoption | None:
        if command.kind != "adopt":
            return None
        line = await self._current(state, command.line)
        check_branch(current, line)
        target = await self._version(line, command.version)
        return await adoption_of(self._log, current, line, target, self._version)

    async def _recomputed(
        self, command: Command, current: Playbook, target: Playbook | None, adoption: Adoption | None
    ) -> Recomputed | None:
        """Return what is left of the version that a command is about, if something is revoked that it may rest on."""
        if command.kind == "revoke":
            return await self._without(current, versions.barring(current, command))
        if command.kind == "rollback" and target is not None:
            return await self._without(target, current)
        if adoption is not None:
            return await self._without(adoption.target, versions.adopting(current, adoption))
        return None

    async def _without(self, version: Playbook, barred: Playbook) -> Recomputed | None:
        """Return what is left of a version without what is ``barred``."""
        if not barred.revoked:
            return None
        return await recomputed(
            self._log,
            version,
            barred,
            retained_from=versions.retained_from(barred),
            budget_tokens=self._budget_tokens,
        )

    async def _promote(
        self, state: PartitionState, record: Record, command: Command, current: Playbook
    ) -> None:
        key = label_key(command.playbook, command.label)
        known = state.labels.get(key)
        if known is not None and versions.is_executed(known, command, record.offset):
            await self._skip(state, record)
            return
        if state.playbooks.get(command.playbook) is None:
            raise PoisonError(f"there is no playbook {command.playbook} to label")
        if not command.label or not 1 <= command.version <= current.version:
            raise PoisonError(f"{command.playbook} has no version {command.version} to label")
        label = versions.after_promotion(known, command, record.offset, now_ms=self._clock.now_ms())
        if (step := self._gatekeeper.moved(state, label)) is not None:
            await self._write(state, record, (), step=step)
            return
        async with state.transactor.transaction() as transaction:
            await transaction.send(topics.LABELS.record(label))
            await transaction.commit_offsets(GROUP, state.offsets([record]))
        state.labels[key] = label

    async def _target(self, state: PartitionState, command: Command, current: Playbook) -> Playbook | None:
        """Return the other version that a command speaks of, if it does."""
        if command.kind in {"delete", "revoke"} and current.origin == "delete":
            raise PoisonError(f"there is no playbook {command.playbook} any more")
        if command.kind == "delete" and (branches := state.branches(current.name)):
            raise PoisonError(has_branches(current.name, [line.name for line in branches]))
        if command.kind == "rollback":
            return await self._version(current, command.version)
        if command.kind == "edit" and command.base_version not in {0, current.version}:
            return await self._version(current, command.base_version)
        return None

    async def _version(self, current: Playbook, version: int) -> Playbook:
        old = await History(self._log).exactly(current.name, version, current)
        if old is None:
            raise PoisonError(no_version(current, version))
        return old

    # ---- the gate

    async def _open_gates(self, state: PartitionState) -> None:
        """Turn gates on and off as the setting says."""
        step = await self._gatekeeper.started(state)
        if records := step.records(state):
            async with state.transactor.transaction() as transaction:
                await transaction.send(*records)
            self._take_step(state, step)
        for gate in map(state.gate, state.live_playbooks()):
            if gate is not None:
                self._on_gate(gate)

    async def _take_verdict(self, state: PartitionState, record: Record) -> None:
        verdict = topics.VERDICTS.read_own(record)
        if await self._log.partition_for(record.topic, topics.VERDICTS.key_of(verdict)) != record.partition:
            raise PoisonError(f"a verdict on {verdict.playbook} is on the wrong partition")
        gate = self._gatekeeper.judged(state, verdict)
        await (self._conclude(state, record, gate) if gate else self._skip(state, record))

    async def _conclude(self, state: PartitionState, record: Record, gate: Gate) -> None:
        """Write what follows from a verdict: nothing yet, another production version, or a line without batches."""
        made: list[Playbook] = []
        outcome = conclusion(gate)
        if outcome is None:
            step = Step(gates={gate.production.playbook: gate})
        elif outcome == "accepted":
            step = self._gatekeeper.decided(gate, outcome)
        elif gate.candidate is not None and gate.candidate.verdicts[-1].entry_ids:
            current = await self._current(state, gate.production.playbook)
            version = await self._gatekeeper.without_entries(
                state, gate, current, budget_tokens=self._budget_tokens
            )
            made = [version]
            step = self._gatekeeper.decided(gate, outcome, made=version.version)
        else:
            revocation = await self._gatekeeper.rejection(state, gate)
            if revocation is not None:
                made = await self._made(state, revocation)
            count = len(revocation.reflection_ids) if revocation else 0
            step = self._gatekeeper.decided(gate, outcome, count, made[0].version if made else 0)
        await self._write(state, record, made, step=step)

    def _take_step(self, state: PartitionState, step: Step) -> None:
        """Remember what was written."""
        for gate in step.gates.values():
            state.take_gate(gate)
            self._on_gate(gate)
        for decision in step.decisions:
            logger.info(
                "decision",
                playbook=decision.playbook,
                decided=decision.decided,
                candidate=decision.candidate,
                production=decision.version,
                reason=decision.reason,
            )

    # ---- writing

    async def _write(
        self,
        state: PartitionState,
        record: Record,
        made: Sequence[Playbook],
        letters: Iterable[Outgoing] = (),
        *,
        step: Step = NOTHING,
    ) -> None:
        """Write versions to history and, with their offsets there, as snapshots, and gates: one transaction."""
        news = [evidence.naming_news(version, state.revoked.get(version.name, ())) for version in made]
        step = await self._gatekeeper.completed(state, news, step)
        async with state.transactor.transaction() as transaction:
            written = [
                await self._send_version(transaction, state, versions.fitted(version)) for version in news
            ]
            await transaction.send(*letters, *step.records(state))
            await transaction.commit_offsets(GROUP, state.offsets([record]))
        state.revoked |= {version.name: version.revoked for version in made}
        for version in written:
            state.take(version)
        self._take_step(state, step)
        for version in written:
            logger.info(
                "version",
                playbook=version.name,
                version=version.version,
                entries=len(version.entries),
                batch=version.batch.plan.batch_id if version.batch else None,
                sequence=version.batch_sequence,
                origin=version.origin,
            )

    async def _send_version(
        self, transaction: Transaction, state: PartitionState, version: Playbook
    ) -> Playbook:
        version = self._gatekeeper.marked(state, version)
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
