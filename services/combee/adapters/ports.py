"""The ports: a log, a language model, an embedder, spans and a clock; and the errors that decide about a record."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.errors import (
    CombeeError,
    ConfigurationError,  # noqa: F401 - the errors of the log belong to its protocols; they stand in the schemas
    FatalError,  # noqa: F401 - the same
)
from combee_schemas.model import Prompt, Reply
from combee_schemas.records import Headers, Outgoing, Record, TopicPartition
from combee_schemas.trace_context import TraceContext


class TransientError(CombeeError):
    """A temporary error (broker away, 429, 5xx, time-out): do not commit, back off, go on."""


class PoisonError(CombeeError):
    """A record that can never be used: dead-letter it, commit, go on."""

    usage: Usage = Usage()
    """Usage of the model calls about the record."""


class UnansweredError(PoisonError):
    """A model's reply about a record is unusable, because of the record or of the model."""


class CutOffError(PoisonError):
    """A model's replies were cut off at the length limit: ask about less; poison if that fails, too."""


class FencedError(CombeeError):
    """A newer owner of this transactional id exists: drop that partition's state and carry on."""


class PromptTooLongError(PoisonError):
    """The prompt is too long for the model: split or cut the input and ask again; poison if neither helps."""


class DrainingError(CombeeError):
    """The process is stopping: the record stays open for the next worker."""


# ---- the log (its records are the schemas')


class Transaction(Protocol):
    """Records and offsets that become visible together or not at all."""

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        """Write records; return their offsets."""

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read of ``group``."""


class Transactor(Protocol):
    """An initialised transactional id: a later owner that initialises it fences this one."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction; commits at the end, aborts on an exception. FencedError: ownership moved."""

    async def close(self) -> None:
        """Give the id up."""


OnAssigned = Callable[[frozenset[TopicPartition]], Awaitable[None]]


NO_NOTES: Mapping[TopicPartition, str] = MappingProxyType({})


class Consumer(Protocol):
    """A member of a consumer group that never commits by itself; read-committed."""

    async def poll(self, timeout_s: float) -> Sequence[Record]:
        """Return what has arrived, in order per partition; empty after ``timeout_s``."""

    async def commit(
        self, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] = NO_NOTES
    ) -> None:
        """Commit the next offset to read, per partition, each with a note; partitions no longer owned are ignored."""

    async def note(self, source: TopicPartition) -> str:
        """Return the note on the offset that was committed when the partition was assigned; mostly empty."""

    def seek(self, source: TopicPartition, offset: int) -> None:
        """Go on reading a partition from an offset."""

    async def start_offset(self, source: TopicPartition) -> int:
        """Return where this member started to read the partition after the last rebalance."""

    async def positions(self) -> Mapping[TopicPartition, int]:
        """Return per partition the next offset to be returned: it has passed transaction markers too."""

    def pause(self, *sources: TopicPartition) -> None:
        """Stop fetching from these partitions (membership stays)."""

    def resume(self, *sources: TopicPartition) -> None:
        """Fetch again."""

    async def close(self) -> None:
        """Leave the group."""


class Log(Protocol):
    """A durable, partitioned log of records. Topic names are without prefix: the adapter adds it."""

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        """Write records, all acknowledged by the log (acks=all) on return; return their offsets."""

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> Consumer:
        """Join ``group``; ``on_assigned`` gets the whole assignment after each rebalance."""

    async def transactor(self, name: str) -> Transactor:
        """Initialise the transactional id ``name``, fencing its former owner."""

    def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Read from ``start`` up to ``end`` or the end offset seen at the call, read-committed.

        A commit returns before its markers are written, so records that another client has just committed may be
        missing. To include them, read up to the ends that ``settled`` returns.
        """

    async def read_at(self, source: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
        """Return the records at exactly these offsets (those that still exist)."""

    def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        """Read a topic for ever without a group, whole or from ``starts``; yields None once, when current."""

    async def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has. FatalError: no such topic."""

    async def partition_for(self, topic: str, key: bytes) -> int:
        """Return the partition that a key of this topic belongs on."""

    async def beginnings(self, topic: str) -> Mapping[int, int]:
        """Return the first retained offset of each partition."""

    async def ends(self, topic: str) -> Mapping[int, int]:
        """Return the offset after the last stable record of each partition."""

    async def settled(self, topic: str) -> Mapping[int, int]:
        """Return the end of each partition as it is now, once no transaction is open before it.

        TransientError: one stays open for longer than a transaction may.
        """

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        """Return per partition the first offset at or after this time; the end if there is none."""

    async def retention_ms(self, topic: str) -> int:
        """Return how long a topic keeps its records, as the log is configured; -1: for ever."""

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return a group's committed offsets, for the partitions that have one."""

    async def close(self) -> None:
        """Flush and disconnect."""


# ---- the model


class LanguageModel(Protocol):
    """One call, with retries, limits and the reply's parsing inside.

    TransientError never escapes while the deadline of the caller allows another attempt;
    PoisonError: the reply stayed unusable after the re-ask; PromptTooLongError: ask for less;
    FatalError is never raised here: a permanent model error (401, 404, quota) pauses and retries loudly.
    """

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return a usable reply; a higher priority gets a free slot first."""

    def drain(self) -> None:
        """Start no further call: questions without a call under way raise DrainingError, but for begun work."""

    async def close(self) -> None:
        """Drop connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Vectors in the order of their texts, and their usage."""

    vectors: Sequence[Sequence[float]]
    usage: Usage = NOTHING_SPENT


class Embedder(Protocol):
    """Turns texts into vectors; texts with the same meaning get nearly the same direction."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text. TransientError, PoisonError: there are none; go on without them."""

    async def close(self) -> None:
        """Drop connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request to a model's server, and its result."""

    outcome: Literal["answered", "failed", "refused"]
    """failed: to be retried; refused: the server refuses this prompt, or this form of it."""
    seconds: float
    attempt: int
    """1 for the first; the others are retries."""
    tokens_in: int = 0
    cached_tokens: int = 0
    tokens_out: int = 0


OnModelCall = Callable[[ModelCall], None]


# ---- spans


Notes = Mapping[str, str | int | float | bool]
"""Attributes of a span."""
NOTHING_NOTED: Notes = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A record that waited for others, and the span that it was written in."""

    context: TraceContext
    waited_s: float | None = None
    """None: unknown."""


class Tracing:
    """Spans around a service's work, without influence on it. This base class makes none."""

    def context_of(self, record: Record) -> TraceContext | None:  # noqa: ARG002 - no tracing here
        """Return the span that a record was written in; None: it is unknown or not needed."""
        return None

    def stamped(self, outgoing: Outgoing) -> Outgoing:
        """Return a record that names the current span in its headers."""
        return outgoing

    def processing(self, service: str, record: Record) -> AbstractContextManager[object]:  # noqa: ARG002 - as above
        """Open the span of one record, below the one that it was written in."""
        return nullcontext()

    def gathered(
        self,
        name: str,  # noqa: ARG002 - as above
        origins: Sequence[Origin],  # noqa: ARG002 - as above
        notes: Notes = NOTHING_NOTED,  # noqa: ARG002 - as above
    ) -> AbstractContextManager[object]:
        """Open the span of a result of many records, linked to their spans; each record gets a span for its wait."""
        return nullcontext()

    def span(self, name: str, notes: Notes = NOTHING_NOTED) -> AbstractContextManager[object]:  # noqa: ARG002 - as above
        """Open a span below the current one."""
        return nullcontext()

    def calling(self, name: str, notes: Notes) -> AbstractContextManager[object]:  # noqa: ARG002 - as above
        """Open the span of a request to another server."""
        return nullcontext()

    def serving(self, name: str, headers: Headers) -> AbstractContextManager[object]:  # noqa: ARG002 - as above
        """Open the span of a request that came with these headers."""
        return nullcontext()

    def note(self, notes: Notes) -> None:
        """Add attributes to the current span."""

    def failed(self, reason: str) -> None:
        """Mark the current span as failed."""


NO_TRACING = Tracing()


class Clock(Protocol):
    """Time, so that tests can move it."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; only ever recorded, never decided on."""

    def monotonic(self) -> float:
        """Seconds that never go back; decisions about waiting use these."""
