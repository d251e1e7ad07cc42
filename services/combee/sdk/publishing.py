"""Publishing: a bounded buffer, traces that wait for their outcome, and the sender that empties the buffer."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from combee.adapters.ports import FatalError, PoisonError, TransientError
from combee.core.text.shortening import TRACE_TEXTS, cut_all, size
from combee.sdk.logs import LogOnce, logger
from combee.sdk.redaction import Redact, redacted
from combee.sdk.transport import Transport
from combee_schemas.codec import CodecError, encode
from combee_schemas.topics import Published
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TraceContext

Parcel = tuple[Published, TraceContext | None]
"""A message, and the agent's span when it was handed over."""
MAX_PENDING = 1_000
"""Maximum number of traces that wait for their outcome."""
OVERHEAD_BYTES = 512
"""Estimated bytes of a message in addition to its texts."""
MAX_SENT = 200
BYTES_AT_ONCE = 1 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
CLOSING_PAUSE_S = 0.25
UNANSWERED_S = 5.0
"""Seconds without an answer after which a deployment counts as away: aiokafka tries to connect for ever, silently."""
LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Counts since the client was made, in messages."""

    published: int = 0
    """Messages accepted into the buffer."""
    delivered: int = 0
    """Messages acknowledged by the log."""
    waiting: int = 0
    """Buffered messages without acknowledgement."""
    held: int = 0
    """Traces that wait for their outcome."""
    dropped: int = 0
    """Messages that will never be delivered: buffer full, invalid, or refused."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Number of redacted finds by kind."""

    @property
    def is_complete(self) -> bool:
        """Whether every message handed over has been delivered."""
        return not (self.waiting or self.held or self.dropped)


class PendingTraces:
    """Traces that wait for their outcome, each until its time is over; bounded, for any thread."""

    def __init__(self) -> None:
        self._traces: dict[tuple[str, str], tuple[Trace, TraceContext | None, float]] = {}
        """Trace, span and deadline by playbook and trace id."""
        self._lock = threading.Lock()

    def put(self, trace: Trace, context: TraceContext | None, within_s: float) -> Parcel | None:
        """Add a trace; return the one it replaces, or the oldest if there are too many now."""
        key = (trace.playbook, trace.trace_id)
        with self._lock:
            displaced = self._traces.pop(key, None)
            self._traces[key] = trace, context, time.monotonic() + within_s
            if len(self._traces) > MAX_PENDING:
                displaced = self._traces.pop(next(iter(self._traces)))
            return displaced[:2] if displaced else None

    def pop(self, trace_id: str) -> list[tuple[Trace, TraceContext | None]]:
        """Remove and return the traces of an id, one per playbook."""
        with self._lock:
            keys = [key for key in self._traces if key[1] == trace_id]
            return [self._traces.pop(key)[:2] for key in keys]

    def due(self, *, everything: bool = False) -> list[Parcel]:
        """Remove and return the traces whose time is over, or all."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, (_, _, until) in self._traces.items() if everything or until <= now]
            return [self._traces.pop(key)[:2] for key in over]

    def __len__(self) -> int:
        return len(self._traces)


def approximate_bytes(message: Published) -> int:
    """Return a message's estimated size in bytes; cheap, because the caller waits for it."""
    total = OVERHEAD_BYTES
    for value in message.__dict__.values():
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Mapping):
            total += sum(
                len(name) + (len(entry) if isinstance(entry, str) else 9) for name, entry in value.items()
            )
    return total


class Outbox:
    """A buffer that refuses rather than grows; messages stay until they are acknowledged."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Parcel, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.accepted = 0
        """Number of messages accepted."""

    def put(self, message: Published, context: TraceContext | None = None) -> bool:
        """Add a message; return False if there is no room for it."""
        size = approximate_bytes(message)
        with self._lock:
            full = len(self._waiting) >= self._max_messages
            if full or (self._waiting and self._bytes + size > self._max_bytes):
                return False
            self._waiting.append(((message, context), size))
            self._bytes += size
            self.accepted += 1
        return True

    def first(self, most: int, most_bytes: int) -> Sequence[Parcel]:
        """Return the oldest messages, at least one if there are any, without removing them."""
        parcels: list[Parcel] = []
        total = 0
        with self._lock:
            for parcel, size in self._waiting:
                total += size
                if len(parcels) == most or (parcels and total > most_bytes):
                    break
                parcels.append(parcel)
        return parcels

    def done(self, count: int) -> None:
        """Remove the oldest ``count`` messages."""
        with self._lock:
            for _ in range(count):
                self._bytes -= self._waiting.popleft()[1]

    def __len__(self) -> int:
        return len(self._waiting)


def fit(trace: Trace) -> Trace:
    """Return a trace that fits a record; ``original_bytes`` has its texts' size (UTF-8).

    Raises
    ------
    CodecError
        If it does not fit however its texts are cut.
    """
    texts = {name: text for name in TRACE_TEXTS if (text := getattr(trace, name))}
    original, room = sum(map(size, texts.values())), Trace.max_bytes - 4096
    if original <= room and _fits(trace):
        return trace
    room -= sum(size(name) + size(text) for name, text in trace.metadata.items())
    shorter = trace.model_copy(
        update={**cut_all(texts, room), "original_bytes": trace.original_bytes or original}
    )
    if not _fits(shorter):
        raise CodecError(f"a trace whose texts are cut to {room} bytes still exceeds {Trace.max_bytes}")
    return shorter


def bounded(message: Published) -> Published:
    """Return a message about as large as it may be: a huge trace is cut before it is buffered and redacted."""
    if not isinstance(message, Trace) or approximate_bytes(message) <= Trace.max_bytes:
        return message
    try:
        return fit(message)
    except CodecError:
        return message  # the sender drops and reports it


def _fits(trace: Trace) -> bool:
    try:
        return len(encode(trace)) <= Trace.max_bytes
    except CodecError:
        return False


class Sender:
    """Empties an outbox into a transport; runs on the background loop."""

    def __init__(self, outbox: Outbox, transport: Transport, redact: Redact | None, once: LogOnce) -> None:
        self._outbox = outbox
        self._transport = transport
        self._redact = redact
        self._log_once = once
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._closing = asyncio.Event()
        self._is_away = False
        self._answered_s = -math.inf
        self.is_idle = False
        """Whether it waits for ``wake``: the outbox was empty."""
        self.delivered = 0
        self.refused = 0

    def wake(self) -> None:
        """Check the outbox again."""
        self._wake.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            batch = self._outbox.first(MAX_SENT, BYTES_AT_ONCE)
            if batch:
                prepared = ((self._prepared(message), context) for message, context in batch)
                await self._send([(message, context) for message, context in prepared if message is not None])
                self._outbox.done(len(batch))
                continue
            self._empty.set()
            self._wake.clear()
            self.is_idle = True
            if not len(self._outbox):  # otherwise a message was added after the last read
                await self._wake.wait()
            self.is_idle = False
            self._empty.clear()

    async def drained(self) -> None:
        """Wait until the outbox is empty."""
        while len(self._outbox):
            self._empty.clear()
            self._wake.set()
            await self._empty.wait()

    async def drained_or_away(self, away_s: float) -> None:
        """Wait until the outbox is empty, or until the deployment is away and has not answered for ``away_s`` (s)."""
        self._closing.set()
        since_s = time.monotonic()
        draining = asyncio.create_task(self.drained())
        try:
            while not draining.done():
                await asyncio.wait({draining}, timeout=LOOK_S)
                if self._is_away and time.monotonic() - max(since_s, self._answered_s) >= away_s:
                    return
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, at the end only for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
                await asyncio.sleep(CLOSING_PAUSE_S)

    def _away(self, error: object) -> None:
        self._is_away = True
        if isinstance(error, FatalError):
            self._log_once.warn("sending", "sending fails, messages are kept and sent later: %s", error)
        else:
            self._log_once.outage("sending", error)

    def _prepared(self, message: Published) -> Published | None:
        """Return the redacted message, None for a message that cannot be sent, which is counted."""
        try:
            clean = redacted(message, self._redact) if self._redact else message
            if isinstance(clean, Trace):
                return fit(clean)
        except CodecError as error:
            self._refuse(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - a user's redactor may raise anything; nothing is sent unredacted
            self._refuse(f"redaction failed with {type(error).__name__}; look at your redact function")
            return None
        return clean

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self._log_once.warn("refused", "a message was dropped: %s; more are only counted", why)

    async def _send(self, parcels: Sequence[Parcel]) -> None:
        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while parcels:
            unanswered = loop.call_later(UNANSWERED_S, self._away, f"no answer for {UNANSWERED_S:g} s")
            try:
                contexts = [context for _, context in parcels]
                await self._transport.send(
                    [message for message, _ in parcels], *([contexts] if any(contexts) else [])
                )
            except PoisonError as error:
                self._answered()
                if len(parcels) == 1:
                    self._refuse(str(error))
                    return
                for parcel in parcels:  # find the refused message; repeats are harmless
                    await self._send([parcel])
                return
            except (TransientError, FatalError) as error:
                unanswered.cancel()
                self._away(error)
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self.delivered += len(parcels)
                self._answered()
                logger.debug("delivered %d messages", len(parcels))
                return
            finally:
                unanswered.cancel()

    def _answered(self) -> None:
        self._is_away = False
        self._answered_s = time.monotonic()
        self._log_once.answered("sending")
        self._log_once.over("sending", "sending works again")
