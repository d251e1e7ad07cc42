"""The core of every client: publishing and reading, on its own background thread."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from combee.adapters.opentelemetry.current import current_context
from combee.sdk.background import Background, close_at_exit
from combee.sdk.logs import LogOnce, logger
from combee.sdk.publishing import Delivery, Outbox, PendingTraces, Sender, bounded
from combee.sdk.reading import Notify, PlaybookRef, Reader
from combee.sdk.redaction import Redact, Redactor
from combee.sdk.transport import Transport
from combee.sdk.view import PlaybookView
from combee_schemas.outcome import Outcome
from combee_schemas.topics import Published
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TraceContext

T = TypeVar("T")

PENDING_CHECK_S = 0.25
RESTART_S = 1.0
AWAY_S = 1.5
"""Seconds after which closing gives up on a deployment that does not answer."""
END_S = 0.5
"""Minimum seconds for disconnecting."""
GRACE_S = 1.0
"""Seconds to wait for the background beyond its own time limit."""
WAIT_S = 2.0
LONGEST_S = 86_400.0


class ClientCore:
    """The base of clients: starts at its first use, so that it may be created before a fork; never raises.

    ``connect`` makes a transport without connecting it; it is called again in a forked process.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        *,
        max_messages: int,
        max_bytes: int,
        redact: Redact | None,
        cache_dir: Path | None,
    ) -> None:
        self._make_transport = connect
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._redact = redact
        self._cache_dir = cache_dir
        self._log_once = LogOnce()
        self._starting = threading.Lock()
        self._counting = threading.Lock()
        self._pid = -1
        self._closed = False
        self._connect()

    def _connect(self) -> None:
        """Create the parts that belong to one process."""
        self._transport = self._make_transport()
        self._outbox = Outbox(max_messages=self._max_messages, max_bytes=self._max_bytes)
        self._pending = PendingTraces()
        self._reader = Reader(self._transport, self._cache_dir, self._log_once)
        self._sender = Sender(self._outbox, self._transport, self._redact, self._log_once)
        self._background: Background | None = None
        self._tasks: list[Future[None]] = []
        self._dropped = 0

    def start(self) -> Background:
        """Return the background thread, started in this process if necessary."""
        if self._background is not None and self._pid == os.getpid():
            return self._background
        with self._starting:
            if self._background is not None and self._pid != os.getpid():
                self._connect()  # a fork copies the memory but no thread
            if self._background is None:
                self._pid = os.getpid()
                background = Background()
                work = (self._sender.run, self._reader.run, self._publish_overdue)
                self._tasks = [background.submit(self._forever(coroutine)) for coroutine in work]
                self._background = background
                close_at_exit(self)
        return self._background

    async def _forever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 - nothing else would report it
                # An agent must not notice any error, and waiting messages must still be sent.
                logger.exception("the background work of Combee's client failed; it is restarted")
                await asyncio.sleep(RESTART_S)

    # ---- publishing

    def hand_over(self, message: Published) -> bool:
        """Buffer a message with the agent's current span, if there is one; return False for a dropped one."""
        return self._buffer(message, current_context())

    def _buffer(self, message: Published, context: TraceContext | None) -> bool:
        """Buffer a message; without room it is dropped, counted and logged once, and False returned."""
        if self._closed:
            self.drop("the client is closed")
            return False
        if problem := message.lack:
            self.drop(problem)
            return False
        background = self.start()
        if not self._outbox.put(bounded(message), context):
            self.drop(
                "the buffer is full; is the broker unavailable? raise max_messages or max_bytes, or publish less"
            )
            return False
        if self._sender.is_idle:
            self._sender.is_idle = False
            background.call(self._sender.wake)
        return True

    def drop(self, why: str) -> None:
        """Count a message that cannot be sent; each reason is logged once."""
        with self._counting:
            self._dropped += 1
        self._log_once.warn(why, "a message was dropped: %s; more are only counted", why)

    def hold(self, trace: Trace, within_s: float) -> None:
        """Hold a trace until its outcome comes or its time is over."""
        if self._closed:
            self.drop("the client is closed")
            return
        self.start()
        displaced = self._pending.put(trace, current_context(), within_s)
        if displaced is not None:
            self._buffer(*displaced)

    def complete(self, trace_id: str, changes: Mapping[str, object], alone: Outcome | None) -> None:
        """Complete a run's held traces of all playbooks; without one, send the outcome alone."""
        traces = self._pending.pop(trace_id)
        if not traces and alone is not None:
            self.hand_over(alone)
        elif not traces:
            self.drop(
                "the client is closed"
                if self._closed
                else "an outcome has no held trace; pass outcome_within_s to trace(), or playbook to outcome()"
            )
        for trace, context in traces:
            self._buffer(trace.model_copy(update=dict(changes)), context)

    async def _publish_overdue(self) -> None:
        while True:
            await asyncio.sleep(PENDING_CHECK_S)
            for parcel in self._pending.due():
                self._buffer(*parcel)

    @property
    def counts(self) -> Delivery:
        """Counts of all messages handed over so far."""
        redact = self._redact
        return Delivery(
            published=self._outbox.accepted,
            delivered=self._sender.delivered,
            waiting=len(self._outbox),
            held=len(self._pending),
            dropped=self._dropped + self._sender.refused,
            redacted=dict(redact.counts) if isinstance(redact, Redactor) else {},
        )

    async def _delivered_at_last(self, timeout_s: float) -> Delivery:
        """Deliver waiting messages; return after ``timeout_s`` (s), or ``AWAY_S`` without any answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._sender.drained_or_away(AWAY_S)
        return self.counts

    async def _delivered(self, timeout_s: float) -> Delivery:
        """Deliver waiting messages; return after ``timeout_s`` (s) at the latest."""
        try:
            async with asyncio.timeout(self._seconds(timeout_s)):
                await self._sender.drained()
        except TimeoutError:
            self._log_once.warn("flush", "%d messages are not delivered yet", len(self._outbox))
        return self.counts

    # ---- reading

    def read(self, ref: PlaybookRef, timeout_s: float = WAIT_S) -> PlaybookView:
        """Return a playbook from memory; wait at most ``timeout_s`` (s) for an unknown one."""
        known = self._known(ref)
        if known is not None:
            return known
        return self._wait(self._fetched(ref, timeout_s), lambda: self._reader.answer(ref))

    async def awaited_read(self, ref: PlaybookRef, timeout_s: float = WAIT_S) -> PlaybookView:
        """Return the result of ``read`` without blocking the caller's event loop."""
        known = self._known(ref)
        if known is not None:
            return known
        return await self._awaited(self._fetched(ref, timeout_s), lambda: self._reader.answer(ref))

    def _known(self, ref: PlaybookRef) -> PlaybookView | None:
        """Return the answer from memory, None if waiting may help."""
        if ref.problem:
            self._log_once.warn(
                ref.problem, "a playbook cannot be read, its fallback is used: %s", ref.problem
            )
        if self._closed or ref.problem:
            return self._reader.answer(ref)
        background = self.start()
        if self._reader.note_request(ref):
            background.call(lambda: self._reader.begin(ref))
        return self._reader.known(ref)

    async def _fetched(self, ref: PlaybookRef, timeout_s: float) -> PlaybookView:
        """Return the answer after at most ``timeout_s`` (s): a received playbook, a saved one, or the fallback."""
        return await self._reader.fetched(ref, self._seconds(timeout_s))

    def subscribe(self, name: str, label: str, notify: Notify) -> Callable[[], None]:
        """Call ``notify`` on the background thread with the playbook and its changes; return how to end it."""
        if problem := PlaybookRef(name=name, label=label).problem:
            self._log_once.warn(problem, "a playbook cannot be followed: %s", problem)
            return lambda: None
        background = self.start()
        background.call(lambda: self._reader.subscribe((name, label), notify))
        return lambda: background.call(lambda: self._reader.unsubscribe((name, label), notify))

    async def _known_all(self, timeout_s: float) -> bool:
        """Wait until all playbooks of the deployment are known; False after ``timeout_s`` (s)."""
        return await self._reader.ready(self._seconds(timeout_s))

    # ---- waiting and closing

    def _wait(self, work: Coroutine[Any, Any, T], otherwise: Callable[[], T]) -> T:
        """Run a coroutine in the background and wait for it; return ``otherwise()`` if waiting would never end."""
        try:
            return self._submit(work).result()
        except CancelledError:
            return otherwise()

    async def _awaited(self, work: Coroutine[Any, Any, T], otherwise: Callable[[], T]) -> T:
        """As ``_wait``, without blocking the caller's event loop."""
        try:
            return await asyncio.wrap_future(self._submit(work))
        except (CancelledError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return otherwise()

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        background = self._background
        if self._closed or (background is not None and background.is_here):
            work.close()
            raise CancelledError
        return self.start().submit(work)

    def shut_down(self, timeout_s: float) -> Delivery:
        """Deliver buffered and held messages, disconnect, end the thread; a repeat does nothing.

        ``timeout_s`` (s) is for a deployment that answers; without an answer it ends after about 2 s.
        """
        timeout_s = self._seconds(timeout_s)
        background = self._background
        if background is None or self._pid != os.getpid() or self._closed:
            self._closed = True
            return self.counts
        for parcel in self._pending.due(everything=True):
            self._buffer(*parcel)
        self._closed = True
        ends = time.monotonic() + timeout_s
        try:
            counts = background.submit(self._delivered_at_last(timeout_s)).result(timeout_s + GRACE_S)
            left_s = END_S if counts.waiting else max(END_S, ends - time.monotonic())
            background.submit(self._end(left_s)).result(left_s + GRACE_S)
        except TimeoutError:
            # A user's redactor blocks the thread, which is a daemon and keeps no program alive.
            counts = self.counts
        self._log_counts(counts)
        background.stop()
        return counts

    def _log_counts(self, counts: Delivery) -> None:
        if counts.redacted:
            logger.info("redacted before sending: %s", counts.redacted)
        if not counts.is_complete:
            logger.warning(
                "closed with %d messages not delivered and %d dropped", counts.waiting, counts.dropped
            )

    def _seconds(self, timeout_s: float) -> float:
        """Return a valid time-out in seconds."""
        if isinstance(timeout_s, int | float) and not math.isnan(timeout_s):
            return min(max(0.0, timeout_s), LONGEST_S)
        self._log_once.warn(
            "timeout", "timeout_s must be a number of seconds, not %r; it is taken as %g s", timeout_s, WAIT_S
        )
        return WAIT_S

    async def _end(self, timeout_s: float) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(timeout_s):
                await self._transport.close()
        except Exception as error:  # noqa: BLE001 - the agent must not notice, and there is nothing left to save
            logger.debug("disconnecting: %s", type(error).__name__)
