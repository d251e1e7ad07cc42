"""The shuffle service without Faust: it reads partitions in order, cuts batches, writes them in transactions.

A delivery by the stream processor only announces records. If a delivered record does not follow the last one, the
shuffler reads the gap from the log. So a lost, repeated or reordered delivery neither loses nor repeats a reflection.

The path of a record to its batch; read the modules in this order:

1. It arrives: ``Shuffler.deliver`` keeps it, and ``turn`` takes one record after the other (``_process_all``,
   ``_process``, ``_apply``). ``_apply_reflection`` gathers what is known of it: source and id, its partition, its
   attempt.
2. The state of the partition takes it (``partition.py``): ``ShuffleState.wait`` puts it into the window of each
   line that learns from it, or counts it as a repeat.
3. ``_close`` asks whether the window may close: ``due`` (``core/batching/window.py``). ``_process`` calls it after
   each record for a window that is full. ``_cut_due``, which begins and ends a turn, calls it for windows that have
   waited long enough, were flushed, or may go on because a version appeared.
4. It asks what the batch must wait for: ``BatchRules.waits_for`` (``rules.py``).
5. ``ShuffleState.take`` removes the batch's reflections from the window, and ``Cutter.cut`` (``cutting.py``) writes
   manifest, groups and offsets in one transaction. They follow from ``plan_batch``, ``plan_shape`` and
   ``make_groups`` (``core/batching/plan.py``, ``core/batching/shuffle.py``); ``Manifests.add`` remembers the batch.

Off the path are ``orders.py`` (batches that no window makes), ``overdue.py`` (batches without a version),
``restoring.py`` (the start), ``attempts.py`` (reflections sent again), ``neighbours.py`` (embeddings), ``app.py``
(Faust).
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    FencedError,
    Log,
    Outgoing,
    PoisonError,
    Record,
    TopicPartition,
    Tracing,
    TransientError,
)
from combee.core.batching.limits import SHUFFLE_LIMITS, ShuffleLimits
from combee.core.batching.window import Waiting, due
from combee.core.names.sources import counted_name
from combee.core.names.tenants import Tenants
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.process.settings.batch import BatchSettings
from combee.process.worker.dead_letters import dead_letter, log_dead_letter
from combee.process.worker.provenance import Provenance
from combee.process.worker.retry import RETRIABLE
from combee.process.worker.views import Playbooks, View
from combee.shuffle.attempts import Attempts
from combee.shuffle.cutting import Cutter
from combee.shuffle.neighbours import Neighbours
from combee.shuffle.orders import Orders
from combee.shuffle.overdue import Overdue
from combee.shuffle.partition import COMMANDS, GROUP, REFLECTIONS, ShuffleState
from combee.shuffle.restoring import Restorer
from combee.shuffle.rules import BatchRules
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import CodecError
from combee_schemas.control import BatchSize
from combee_schemas.dead_letter import claimed_attempt
from combee_schemas.playbook import Playbook
from combee_schemas.topics import key_of

logger = structlog.get_logger()

LOOK_UP_EVERY_S = 60.0
"""Seconds between look-ups of the topics' ends: transaction markers and aborted records take offsets, but are never
delivered."""
DELIVERED_BYTES = 512 << 10
"""Maximum bytes of delivered records kept per partition for the next turn; further ones are read from the log."""
TAKEN_AT_ONCE = 100
"""Number of records after which other tasks of the event loop get a turn."""
READ_AT_ONCE = 5_000
"""Maximum number of records read from the log at once, per topic; other partitions wait meanwhile."""


@dataclass(slots=True)
class _Delivered:
    """Records delivered of one partition and not yet processed."""

    newest: dict[str, int] = field(default_factory=dict)
    """Last offset known to exist, per input topic."""
    records: deque[Record] = field(default_factory=deque)
    size: int = 0

    def add(self, records: Sequence[Record]) -> None:
        """Keep records of one topic, in offset order, as far as there is room."""
        self.note(records[-1].topic, records[-1].offset)
        if self.size < DELIVERED_BYTES:
            self.records += records
            self.size += sum(record.memory for record in records)

    def note(self, topic: str, offset: int) -> None:
        """Note that the log reaches at least up to an offset."""
        self.newest[topic] = max(self.newest.get(topic, -1), offset)

    def take(self) -> Record:
        """Remove the next kept record, and return it."""
        record = self.records.popleft()
        self.size -= record.memory
        return record


class Shuffler:
    """All partitions that this process owns."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        settings: BatchSettings,
        spending: SpendPolicy = UNCAPPED,
        *,
        budget_tokens: int = 0,
        neighbours: Neighbours | None = None,
        tenants: Tenants | None = None,
        provenance: Provenance | None = None,
        tracing: Tracing = NO_TRACING,
        limits: ShuffleLimits = SHUFFLE_LIMITS,
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._states: dict[int, ShuffleState] = {}
        self._delivered: dict[int, _Delivered] = {}
        self._attempts = Attempts(log)
        self._appeared: set[str] = set()
        """Playbooks with a new version since the last restore of a partition began."""
        self._ends_looked_up_at = clock.monotonic()
        self.wake = asyncio.Event()
        tenants = tenants or Tenants({})
        # A tenant's limit counts playbooks of all partitions. Without limits a start decodes only this process's.
        self.playbooks = Playbooks(log, self._published, announces_start=tenants.are_limited)
        self.sizes: View[BatchSize] = View(
            log, topics.BATCH_SIZES, on_change=self._resized, announces_start=False
        )
        self.neighbours = neighbours or Neighbours()
        self.neighbours.on_compared = self.wake.set
        self._provenance = provenance or Provenance()
        self._tracing = tracing
        self._rules = BatchRules(
            clock,
            settings,
            spending,
            tenants,
            budget_tokens=budget_tokens,
            embeddings=self.neighbours.model,
            playbooks=self.playbooks,
            sizes=self.sizes,
        )
        self._cutter = Cutter(
            log=log,
            clock=clock,
            rules=self._rules,
            playbooks=self.playbooks,
            provenance=self._provenance,
            tracing=tracing,
        )
        self._orders = Orders(self._rules, self._cutter, self.neighbours)
        self._overdue = Overdue(self._cutter, limits.retries)
        self._restorer = Restorer(log, clock, self.playbooks, self.sizes, limits)

    # ---- the path of a record

    def deliver(self, records: Sequence[Record]) -> None:
        """Keep delivered records of one partition, in offset order; the next turn processes them."""
        delivered = self._delivered.get(records[-1].partition)
        if delivered is not None:
            delivered.add(records)
            self.wake.set()

    async def turn(self) -> None:
        """Restore partitions that are not loaded, read undelivered records, cut the batches that are due.

        Raises
        ------
        FencedError, TransientError
            After dropping the partition's state: the next turn restores it.
        """
        await self._look_up_ends()
        for number, delivered in sorted(self._delivered.items()):
            try:
                await self._turn(number, delivered)
            except RETRIABLE:
                await self._drop(number)
                raise

    async def _turn(self, number: int, delivered: _Delivered) -> None:
        # Only if this process still owns it: restoring fences the owner.
        if number not in self._states and self._delivered.get(number) is delivered:
            await self._restore(number, delivered)
        state = self._states.get(number)
        if state is None or self._delivered.get(number) is not delivered:
            return  # reassigned meanwhile
        async with state.lock:
            # Only playbooks of this partition: views announce those of all partitions.
            for names in (state.grown, state.to_ask_again):
                names &= {
                    name
                    for name in names
                    if await self._log.partition_for(REFLECTIONS, name.encode()) == number
                }
            # First: a command waits until a batch has ended, and must come before the next batch.
            await self._cut_due(state)
            await self._process_all(state, delivered)
            # Commands first: a flush makes further reflections be read.
            for topic in (COMMANDS, REFLECTIONS):
                if delivered.newest.get(topic, -1) > state.seen[topic]:
                    await self._catch_up(state, topic)
            await self._cut_due(state)

    async def _process_all(self, state: ShuffleState, delivered: _Delivered) -> None:
        """Process delivered records up to the first gap; ``_catch_up`` reads from the log what comes after it."""
        count = 0
        while delivered.records and self._states.get(state.number) is state:
            # One by one, so that each frees its memory. A partition that is lost or reassigned ends the loop.
            record = delivered.take()
            if record.offset == state.seen[record.topic] + 1:
                await self._process(state, record)
            count += 1
            if count % TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _process(self, state: ShuffleState, record: Record) -> None:
        """Process the next record, and close the windows that it fills.

        A full window keeps only offsets of further reflections, so their records are read a second time. Dead
        letters that fill a transaction are written at once, with the offsets: so a restart in a long backlog begins
        after them.
        """
        await self._apply(state, record)
        if state.is_outbox_full:
            await self._cutter.commit(state)
        if record.topic == REFLECTIONS and self._states.get(state.number) is state:
            # ``_cut_due`` checks every other reason to close, and reads again what waits beyond a share: a burst that
            # comes before that would fill the next batch.
            for line in state.lines(key_of(record)):
                window = state.windows.get(line)
                if window is None or window.over_share:
                    continue
                if len(window.waiting) >= self._rules.batch_size(state, line):
                    await self._close(state, line)

    async def _apply(self, state: ShuffleState, record: Record) -> None:
        """Apply one record to the state, in offset order; a bad one becomes a dead letter."""
        try:
            if record.topic == COMMANDS:
                command = topics.COMMANDS.read(record)
                if command.kind in {"consolidate", "branch"}:
                    state.order_batch(record, command)
                elif command.kind == "flush":
                    last = (await self._log.ends(REFLECTIONS))[state.number] - 1
                    through = {"through_offset": min(command.through_offset, last)}
                    state.flushes[record.offset] = command.model_copy(update=through)
                    self._read_on(state, REFLECTIONS, last)  # its reflections may not have been delivered yet
            else:
                await self._apply_reflection(state, record)
        except (CodecError, PoisonError) as error:
            log_dead_letter(record, service=GROUP, reason=str(error))
            state.outbox.append(dead_letter(record, service=GROUP, reason=str(error), clock=self._clock))
        state.seen[record.topic] = record.offset

    async def _apply_reflection(
        self, state: ShuffleState, record: Record, *, line_with_room: str | None = None
    ) -> None:
        """Put a reflection into the window of each line that learns from it.

        ``line_with_room``: it is read a second time, for this line alone, whose window was full before.
        """
        reflection = self._provenance.reflection(record, is_reread=line_with_room is not None)
        home = await self._log.partition_for(REFLECTIONS, reflection.playbook.encode())
        if home != record.partition:
            # A client with another partitioner wrote it. After a crash here it is moved again: a repeat of one id.
            moved = Outgoing(
                topic=REFLECTIONS,
                key=topics.REFLECTIONS.key_of(reflection),
                value=record.value,
                partition=home,
                headers=record.headers_to_copy,
            )
            await self._log.produce(moved)
            return
        # Only a reflection that *reflect* derived shows that its model answers.
        if reflection.usage.calls and self._provenance.is_by_reflect(record, reflection):
            self._overdue.model_heartbeat()
        attempt, failed_on = 0, None
        if (claim := claimed_attempt(record.headers)) is not None:
            attempt, failed_on = await self._attempts.proven(claim, record, reflection)
        if lack := reflection.lack:
            raise PoisonError(lack)
        item = Waiting(
            member=Member(offset=record.offset, reflection_id=reflection.reflection_id, attempt=attempt),
            size=len(record.value or b""),
            seen_at=self._clock.monotonic(),
            body=reflection,
            source=counted_name(reflection.source, "proven"),
            context=self._tracing.context_of(record),
        )
        for line in state.lines(reflection.playbook) if line_with_room is None else [line_with_room]:
            if failed_on not in {None, line}:
                continue
            size = self._rules.batch_size(state, line)
            if state.wait(line, item, batch_size=size, is_reread=line_with_room is not None):
                self._hold_over(state, line)

    def _hold_over(self, state: ShuffleState, line: str) -> None:
        if (share := self._rules.share(state, line)) is not None:
            state.hold_over(line, share)

    async def _cut_due(self, state: ShuffleState) -> None:
        """Cut every batch that is due, emit overdue batches again, commit offsets that no batch committed."""
        is_refilled = True
        while is_refilled:
            if passed := state.recheck(self._clock.monotonic()):
                await self._overdue.look_after(state, passed)
            state.settle_flushes()
            state.end_branches()
            if state.has_orders:
                await self._orders.cut(state)
            lines = state.take_changed(self._clock.monotonic() - self._settings.max_wait_s)
            for line in lines:
                await self._close(state, line)
            state.settle_flushes()
            if not state.is_committed:
                await self._cutter.commit(state)
            is_refilled = await self._refill(state, lines)

    async def _close(self, state: ShuffleState, line: str) -> None:
        """Cut batches from a window as long as it is due and may go on."""
        while (window := state.windows.get(line)) is not None:
            size = self._rules.batch_size(state, line)
            if len(window.waiting) > size:
                self._hold_over(state, line)
            close = due(
                window,
                size,
                max_wait_s=self._settings.max_wait_s,
                now=self._clock.monotonic(),
                newest_offset=state.seen[REFLECTIONS],
            )
            if close is None:
                state.agenda.remind(line, window)
                return
            if waits_for := self._rules.waits_for(state, line):
                if waits_for == "check":
                    state.agenda.blocked.add(line)
                return
            await self._cutter.cut(state, line, state.take(line, close))

    async def _refill(self, state: ShuffleState, lines: Iterable[str]) -> bool:
        """Read reflections that full windows had no room for; return whether there were any."""
        is_refilled = False
        source = TopicPartition(topic=REFLECTIONS, partition=state.number)
        for line in lines:
            size, share = self._rules.batch_size(state, line), self._rules.share(state, line)
            offsets = state.to_read_again(line, size, share)
            if not offsets:
                continue
            records = await self._log.read_at(source, offsets)
            if len(records) < len(offsets):
                raise TransientError(f"{REFLECTIONS}[{state.number}] has lost records of {line} that waited")
            for record in records.values():
                await self._apply_reflection(state, record, line_with_room=line)
            state.agenda.note(line, state.window(line))
            is_refilled = True
        return is_refilled

    # ---- records that were not delivered are read from the log

    async def _look_up_ends(self) -> None:
        """Look up the ends, so that offsets without a record are committed too, before they expire."""
        now = self._clock.monotonic()
        if now - self._ends_looked_up_at < LOOK_UP_EVERY_S:
            return
        self._ends_looked_up_at = now
        for topic in (REFLECTIONS, COMMANDS):
            for number, end in (await self._log.ends(topic)).items():
                if number in self._delivered:
                    self._delivered[number].note(topic, end - 1)

    async def _catch_up(self, state: ShuffleState, topic: str) -> None:
        """Read to the end of a topic; that also passes transaction markers and aborted records.

        A long backlog is read over several turns.
        """
        source = TopicPartition(topic=topic, partition=state.number)
        end, count = (await self._log.ends(topic))[state.number], 0
        async with aclosing(self._log.read(source, state.seen[topic] + 1, end)) as records:
            async for record in records:
                await self._process(state, record)
                count += 1
                if count == READ_AT_ONCE:
                    self._read_on(state, topic, end - 1)
                    return
        state.seen[topic] = max(state.seen[topic], end - 1)

    def _read_on(self, state: ShuffleState, topic: str, last: int) -> None:
        """Request that a partition's topic is read up to an offset, in this turn or the next."""
        if delivered := self._delivered.get(state.number):
            delivered.note(topic, last)
            self.wake.set()

    # ---- partitions come and go

    async def assign(self, partitions: Iterable[int]) -> None:
        """Drop all state and own these partitions; the next turn rebuilds windows from the committed offsets."""
        self._delivered = {number: _Delivered() for number in partitions}
        states, self._states = self._states, {}
        for state in states.values():
            await self._leave(state)
        self.wake.set()

    async def close(self) -> None:
        """Give all partitions up."""
        await self.assign(())

    @property
    def owned(self) -> frozenset[int]:
        """The partitions this process works on."""
        return frozenset(self._delivered)

    async def _restore(self, number: int, delivered: _Delivered) -> None:
        """Fence the former owner, read what it wrote, then read everything that is not committed."""
        appeared = self._appeared = set[str]()
        state, snapshots = await self._restorer.restore(number)
        for snapshot in snapshots:
            self._rules.published(snapshot)
            self._look_at(state, snapshot)
        for topic in (REFLECTIONS, COMMANDS):
            await self._catch_up(state, topic)
        logger.info("restored", service=GROUP, partition=number, seen=state.seen, windows=len(state.windows))
        if self._delivered.get(number) is not delivered:
            await self._leave(state)
            return
        self._states[number] = state
        # Versions that appeared during the restore were not announced to this state.
        for playbook in map(self.playbooks.latest, sorted(appeared)):
            state.manifests.published(playbook.name, playbook.batch_sequence)
            self._look_at(state, playbook)

    async def _drop(self, number: int) -> None:
        state = self._states.pop(number, None)
        if state is not None:
            await self._leave(state)

    async def _leave(self, state: ShuffleState) -> None:
        async with state.lock:
            try:
                await state.transactor.close()
            except (TransientError, FencedError) as error:
                logger.warning("transactor_close", partition=state.number, error=str(error))

    # ---- what other services wrote

    def _published(self, name: str, playbook: Playbook | None) -> None:
        if playbook is None:
            return
        self._appeared.add(name)
        self._rules.published(playbook)
        for state in self._states.values():
            state.manifests.published(name, playbook.batch_sequence)
            state.agenda.changed |= {name, playbook_of(name)}
            if playbook.origin == "delete":
                state.ended.add(name)
            self._look_at(state, playbook)
        if playbook.usage.calls:
            self._overdue.model_heartbeat()
        self.wake.set()

    def _resized(self, line: str, _size: BatchSize | None) -> None:
        for state in self._states.values():
            state.agenda.changed.add(line)
        self.wake.set()

    def _look_at(self, state: ShuffleState, playbook: Playbook) -> None:
        """Remember that a new version may need a batch of its own."""
        if self._settings.consolidate_above:
            state.grown.add(playbook.name)
        if playbook.again:
            state.to_ask_again.add(playbook.name)

    # ---- for the main loop and metrics

    def due_in(self) -> float:
        """Return the seconds until the next window times out."""
        since = [state.agenda.waiting_since for state in self._states.values()]
        oldest = min((at for at in since if at is not None), default=math.inf)
        return max(0.0, oldest + self._settings.max_wait_s - self._clock.monotonic())

    def in_flight(self) -> list[Batch]:
        """Return the batches of these partitions that have no version yet."""
        states = self._states.values()
        return [in_flight.batch for state in states for in_flight in state.manifests.all_in_flight()]

    def held(self) -> Mapping[str, int]:
        """Return how many reflections of these partitions are held back, by reason."""
        return self._rules.held(self._states)
