"""The consume loop of reflect and scan: at least once, with many records open.

Handlers raise errors, and the loop decides about the record: wait, dead-letter, or stop. Transactional services
(shuffle, publish) commit on their own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

import structlog
from structlog.contextvars import get_contextvars

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    Consumer,
    DrainingError,
    Log,
    PoisonError,
    Record,
    TopicPartition,
    Tracing,
    UnansweredError,
)
from combee.core.log.watermark import Watermark
from combee.process.worker.dead_letter_limiter import (
    WINDOW_S,
    DeadLetterLimiter,
    HeldBackError,
    PausedRecords,
)
from combee.process.worker.dead_letters import dead_letter, held_back, log_dead_letter
from combee.process.worker.passed_over import PassedOver, PassOverError, note_from, note_text
from combee.process.worker.retry import RETRIABLE, retried, write
from combee_schemas.codec import CodecError

logger = structlog.get_logger()

POLL_S = 0.2
COMMIT_S = 0.1
"""Minimum seconds between two commits while records are open, because each commit delays the next records."""
AGAIN_S = 1.0
"""Seconds between two attempts to finish the records that were passed over."""
NOWHERE = (-1, "")
IDLE_POLL_S = 0.5
"""Poll time-out while no record is open; a turn then only waits for records or a stop."""


class Handler(Protocol):
    """A service's work on one record."""

    @property
    def service(self) -> str:
        """The service's name, which is its consumer group's."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics that it reads."""

    @property
    def bounded_topics(self) -> frozenset[str]:
        """Topics whose partitions pause while ``max_open`` of their records are open."""

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        """Take over newly assigned partitions, with their first offsets."""

    async def handle(self, record: Record) -> None:
        """Do everything this record asks for; returning means it may be committed."""

    def drain(self) -> None:
        """Begin nothing new; waiting records raise DrainingError, those with the model finish."""

    def poisoned(self, record: Record) -> tuple[str, str]:
        """Return the record's own id and its playbook, as far as they can be read."""


class Loop:
    """Runs one handler until told to stop, then drains; ``on_turn`` gets the open records per partition."""

    def __init__(
        self,
        log: Log,
        handler: Handler,
        clock: Clock,
        *,
        max_open: int,
        on_turn: Callable[[Mapping[TopicPartition, int]], None] = lambda _open: None,
        limiter: DeadLetterLimiter | None = None,
        paused: PausedRecords | None = None,
        passed: PassedOver | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._log = log
        self._handler = handler
        self._clock = clock
        self._max_open = max_open
        self._on_turn = on_turn
        self._limiter = limiter or DeadLetterLimiter(clock)
        self._paused = PausedRecords() if paused is None else paused
        self._passed = passed or PassedOver()
        self._again: dict[str, asyncio.Task[None]] = {}
        """By resumed playbook: the task that reads again the records that were passed over while it was paused."""
        self._room_again = asyncio.Semaphore(max(1, max_open // 2))
        """Room for half as many records again, so that a resumed playbook's backlog does not hold up the others."""
        self._tracing = tracing
        self._marks: dict[TopicPartition, Watermark] = {}
        self._tasks: dict[asyncio.Task[None], Record] = {}
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._committed_at = float("-inf")
        self._suspended: set[TopicPartition] = set()
        self._fatal: BaseException | None = None
        self._consumer: Consumer | None = None

    async def run(self, stop: asyncio.Event, *, drain_s: float) -> None:
        """Consume until ``stop``; then finish what was begun within ``drain_s`` and commit.

        Raises
        ------
        FatalError
            If a handler raised an error that is neither poison nor transient.
        """
        self._consumer = await self._log.consumer(
            self._handler.service, self._handler.topics, self._reassigned
        )
        try:
            while not stop.is_set() and self._fatal is None:
                await self._turn(self._consumer)
            await self._drain(self._consumer, drain_s)
        finally:
            try:
                await self._cancel([*self._again.values(), *self._tasks])
            finally:
                await self._consumer.close()
        if self._fatal is not None:
            raise self._fatal

    async def _turn(self, consumer: Consumer) -> None:
        try:
            for record in await consumer.poll(IDLE_POLL_S if self._is_idle() else POLL_S):
                self._begin(record)
            await self._release()
            self._read_again()
            await self._announce_pauses()
            self._balance(consumer)
            if not self._tasks or self._now() >= self._committed_at + COMMIT_S:
                await self._commit(consumer)
            self._on_turn({tp: mark.open for tp, mark in self._marks.items()})
        except RETRIABLE as error:
            logger.warning("log_unavailable", service=self._handler.service, error=str(error))
            await asyncio.sleep(POLL_S)

    def _is_idle(self) -> bool:
        """Return whether every record is finished, and committed."""
        return not self._tasks and all(
            self._reached(tp, mark) == self._committed.get(tp) for tp, mark in self._marks.items()
        )

    def _begin(self, record: Record) -> None:
        mark = self._marks.get(record.source)
        if mark is not None and mark.begin(record.offset):
            self._start(record, mark)

    def _start(self, record: Record, mark: Watermark) -> asyncio.Task[None]:
        task = asyncio.create_task(self._handle(record, mark))
        self._tasks[task] = record
        task.add_done_callback(self._forget)
        return task

    async def _announce_pauses(self) -> None:
        """Announce new pauses in the log, for 'combee status'."""
        for playbook in self._limiter.news():
            await self._log.produce(held_back(self._handler.service, playbook, WINDOW_S, self._clock))

    async def _release(self) -> None:
        """Resume records whose playbook is no longer paused."""
        # Room is counted on bounded topics only: a node waiting for siblings may be waiting for a paused record.
        room = self._max_open - self._busy()
        due = self._paused.due(self._limiter.paused(), room) if self._paused else {}
        for source, offsets in due.items():
            records = await self._log.read_at(source, offsets)
            self._paused.forget(source, offsets)
            mark = self._marks[source]
            for offset in offsets:
                if offset in records:
                    self._start(records[offset], mark)
                else:
                    mark.done(offset)  # it has expired meanwhile

    # ---- records of paused playbooks

    def _read_again(self) -> None:
        """For each resumed playbook, begin to read the records that were passed over."""
        for playbook, starts in self._passed.due().items():
            if playbook not in self._again:
                task = asyncio.create_task(retried(partial(self._catch_up, playbook, starts)))
                self._again[playbook] = task
                task.add_done_callback(partial(self._caught_up, playbook))

    def _caught_up(self, playbook: str, task: asyncio.Task[None]) -> None:
        self._again.pop(playbook, None)
        if not task.cancelled() and task.exception() is not None:
            self._fatal = self._fatal or task.exception()

    async def _catch_up(self, playbook: str, starts: Mapping[TopicPartition, int]) -> None:
        """Handle the records of a playbook that were passed over, one partition after the other."""
        logger.info("taken_up_again", service=self._handler.service, playbook=playbook)
        await self._passed.prepare(playbook, starts)
        for source, first in starts.items():
            end, mark = self._marks[source].next, Watermark(first)
            self._passed.begin(source, playbook)
            tasks = set[asyncio.Task[None]]()
            async with aclosing(self._log.read(source, first, end)) as records:
                async for record in records:
                    if self._passed.is_paused(playbook):
                        return  # paused again: unfinished records are read once more
                    if self._handler.poisoned(record)[1] == playbook:
                        await self._room_again.acquire()
                        mark.begin(record.offset)
                        tasks.add(task := self._start(record, mark))
                        task.add_done_callback(tasks.discard)
                        task.add_done_callback(lambda _task: self._room_again.release())
                    else:
                        mark.pass_to(record.offset + 1)
                    self._passed.reached(source, playbook, mark.low)
            while tasks:
                await asyncio.wait(tasks, timeout=POLL_S)
                self._passed.reached(source, playbook, mark.low)
            mark.pass_to(end)
            self._passed.reached(source, playbook, mark.low)
            if mark.low < end:
                await asyncio.sleep(AGAIN_S)
                return  # paused again meanwhile, or held back because of too many dead letters
            self._passed.end(source, playbook, end)

    def _reached(self, source: TopicPartition, mark: Watermark) -> tuple[int, str]:
        """Return the offset to commit, and the note to commit with it."""
        return self._passed.low(source, mark.low), self._passed.note(source, mark.low)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._fatal = self._fatal or task.exception()

    async def _handle(self, record: Record, mark: Watermark) -> None:
        try:
            with self._tracing.processing(self._handler.service, record):
                finished = await retried(lambda: self._handle_once(record, mark))
                # The span has the same context as the handler's log lines.
                self._tracing.note(
                    {f"combee.{name}": str(value) for name, value in get_contextvars().items()}
                )
        except DrainingError:
            return
        if finished:
            mark.done(record.offset)

    async def _handle_once(self, record: Record, mark: Watermark) -> bool:
        """Return whether the record is finished; a record that is held back stays open under the low watermark.

        A record that is passed over is finished for the loop, but not where it is read again.
        """
        try:
            try:
                await self._handler.handle(record)
            except UnansweredError as error:  # the handler has told the limiter
                reason = str(error)
            except (PoisonError, CodecError) as error:
                self._limiter.unusable()
                reason = str(error)
            else:
                return True
        except PassOverError as error:
            if self._passed.add(record.source, error.playbook, record.offset):
                logger.info("passed_over", service=self._handler.service, playbook=error.playbook)
            return self._marks.get(record.source) is mark
        except HeldBackError as error:
            if self._paused.add(error.playbook, record):
                return False
            # No room to keep it paused: it becomes a dead letter, which 'combee dlq retry' sends again.
            reason = str(error)
        await self._bury(record, reason)
        return True

    async def _bury(self, record: Record, reason: str) -> None:
        record_id, playbook = self._handler.poisoned(record)
        log_dead_letter(record, service=self._handler.service, reason=reason, playbook=playbook)
        self._tracing.failed(reason)
        letter = dead_letter(
            record,
            service=self._handler.service,
            reason=reason,
            clock=self._clock,
            record_id=record_id,
            playbook=playbook,
        )
        await write(self._log, letter)

    async def _reassigned(self, assigned: frozenset[TopicPartition]) -> None:
        """Keep partitions that stay assigned, drop revoked ones, start new ones."""
        assert self._consumer is not None  # noqa: S101 - poll is the only caller
        revoked = [task for task, record in self._tasks.items() if record.source not in assigned]
        await self._cancel([*self._again.values(), *revoked])
        # Revoked partitions are dropped first: if a later step fails and one comes back, it starts afresh.
        self._marks = {tp: mark for tp, mark in self._marks.items() if tp in assigned}
        self._paused.keep(self._marks)
        committed = {tp: await self._consumer.start_offset(tp) for tp in assigned}
        notes = {tp: note_from(await self._consumer.note(tp), at) for tp, at in committed.items()}
        starts = {tp: note.next for tp, note in notes.items()}
        for tp in assigned:
            self._consumer.seek(tp, starts[tp])
        new = {tp: at for tp, at in starts.items() if tp not in self._marks or at > self._marks[tp].next}
        if new:
            # Called before they count as assigned: if the connection breaks here, the next poll repeats the call.
            await self._handler.assigned(new)
        self._marks = {tp: Watermark(starts[tp]) if tp in new else self._marks[tp] for tp in assigned}
        self._passed.assign(assigned, ((tp, notes[tp]) for tp in new))
        self._committed = {tp: (at, note_text(notes[tp])) for tp, at in committed.items()}
        self._paused.keep(assigned - new.keys())
        self._suspended.clear()
        logger.info("assigned", service=self._handler.service, partitions=len(assigned), new=len(new))

    def _bounded(self) -> set[TopicPartition]:
        return {tp for tp in self._marks if tp.topic in self._handler.bounded_topics}

    def _busy(self) -> int:
        """Return the number of bounded topics' records in work."""
        bounded = self._bounded()
        return sum(self._marks[tp].open for tp in bounded) - self._paused.on(bounded)

    def _balance(self, consumer: Consumer) -> None:
        busy = self._busy() >= self._max_open
        if busy and not self._suspended:
            self._suspended = self._bounded()
            consumer.pause(*self._suspended)
        elif not busy and self._suspended:
            consumer.resume(*self._suspended)
            self._suspended = set()

    async def _commit(self, consumer: Consumer) -> None:
        for tp, position in (await consumer.positions()).items():
            if tp in self._marks:
                self._marks[tp].pass_to(position)
        reached = {tp: self._reached(tp, mark) for tp, mark in self._marks.items()}
        known = {tp: self._committed.get(tp, NOWHERE) for tp in reached}
        news = {tp: at for tp, at in reached.items() if at != known[tp] and at[0] >= known[tp][0]}
        if news:
            await consumer.commit(
                {tp: low for tp, (low, _) in news.items()}, {tp: note for tp, (_, note) in news.items()}
            )
            self._committed |= news
            self._committed_at = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _drain(self, consumer: Consumer, drain_s: float) -> None:
        """Finish records with a model call under way; the next worker gets those waiting for siblings or a slot."""
        await self._cancel(list(self._again.values()))
        self._handler.drain()
        deadline = self._clock.monotonic() + drain_s
        while self._tasks and self._fatal is None and self._clock.monotonic() < deadline:
            await asyncio.wait(list(self._tasks), timeout=POLL_S)
            await self._turn_idle(consumer)
        await self._turn_idle(consumer)

    async def _turn_idle(self, consumer: Consumer) -> None:
        try:
            consumer.pause(*self._marks)
            for record in await consumer.poll(0.0):
                # For example after a rebalance. It stays open, so that the next worker gets it.
                if (mark := self._marks.get(record.source)) is not None:
                    mark.begin(record.offset)
            await self._commit(consumer)
        except RETRIABLE as error:
            logger.warning("log_unavailable", service=self._handler.service, error=str(error))

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
