"""The map of the system: every topic in flow order, its writers and readers, and the partition of its messages.

Topic names and key rules are defined only here. On the broker each name carries the topic prefix
(``combee.reflections``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from combee_schemas.answer import Answer
from combee_schemas.archive import FORMAT, Restoring
from combee_schemas.base import DAY_MS, Message
from combee_schemas.batch import Batch
from combee_schemas.canary import CanaryStatistics
from combee_schemas.codec import CodecError, decode, encode
from combee_schemas.command import Command
from combee_schemas.control import BatchSize
from combee_schemas.dead_letter import DeadLetter, HeldBack, Resolution
from combee_schemas.digests import spread
from combee_schemas.erasure import Erasure
from combee_schemas.errors import OtherVersionError
from combee_schemas.evaluation import Evaluation
from combee_schemas.gate import Decision, Verdict
from combee_schemas.murmur2 import hashed
from combee_schemas.outcome import Outcome, OutcomeStatistics
from combee_schemas.playbook import Label, Playbook, deleted_key, label_key
from combee_schemas.records import Outgoing, Record
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial, Update
from combee_schemas.trace import Trace

FOR_EVER = -1
SMALL_SEGMENTS = {"segment.bytes": str(16 * 1024 * 1024), "max.compaction.lag.ms": str(10 * 60 * 1000)}
"""Small segments keep compacted topics short, so that a new subscriber reads little."""

TIMES = "message.timestamp.type"
"""Kafka's setting for the origin of timestamps, which retention depends on."""
BROKERS_TIME, PRODUCERS_TIME = {TIMES: "LogAppendTime"}, {TIMES: "CreateTime"}

Spread = Literal["traces", "playbooks", "scan", "single"]
"""How a topic is partitioned: by trace, by playbook (such topics have equal partition counts), by scan node, or not
at all."""

M = TypeVar("M", bound=Message)
K = TypeVar("K", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(Generic[M]):
    """One topic: its content, partitioning, retention, writers and readers."""

    name: str
    key: str
    """The key, in words."""
    message: type[M]
    key_from: Callable[[M], str]
    other_keys: Callable[[M], tuple[str, ...]] = lambda _message: ()
    """Returns additional keys that a message may have."""
    placed_by: Callable[[M, int], int] | None = None
    """Returns a message's partition, given the count; None: the default partitioner decides by the key."""
    spread: Spread
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int = 7 * DAY_MS
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    beside: tuple[type[Message], ...] = ()
    """Additional message types in the topic, skipped by readers of ``message``."""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether agents write the topic, so that it may hold a record by anybody."""
        return "agents" in self.written_by

    def key_of(self, message: M) -> bytes:
        """Return the key that a message is written under."""
        return self.key_from(message).encode()

    def place(self, message: M, partitions: int) -> int | None:
        """Return a message's partition, given the count; None: its key decides."""
        return None if self.placed_by is None else self.placed_by(message, partitions)

    def record(self, message: M, *, partition: int | None = None) -> Outgoing:
        """Return the record of a message; ``partition`` if the writer knows it.

        Raises
        ------
        CodecError
            If it cannot be encoded, or is too large.
        """
        return Outgoing(topic=self.name, key=self.key_of(message), value=encode(message), partition=partition)

    def tombstone(self, key: str, *, partition: int | None = None) -> Outgoing:
        """Return the record that deletes a key of a compacted topic."""
        return Outgoing(topic=self.name, key=key.encode(), value=None, partition=partition)

    def read(self, record: Record | Outgoing) -> M:
        """Return the message in a record.

        Raises
        ------
        CodecError
            If its bytes are invalid.
        OtherVersionError
            If another release wrote it to a topic that only services write.
        """
        return self.decoded(record.value, self.message)

    def decoded(self, value: bytes | None, kind: type[K]) -> K:
        """Return a message of one of the topic's types; ``read`` documents the errors.

        Another release's message in a topic that agents write is an ordinary CodecError: anybody can claim a version.
        """
        try:
            return decode(value, kind)
        except OtherVersionError as error:
            if not self.is_open:
                raise
            raise CodecError(error.for_a_dead_letter) from error

    def read_or_none(self, record: Record | None) -> M | None:
        """Return the message in a record; None if it cannot be read.

        Raises
        ------
        OtherVersionError
            As for ``read``: records by a service of another release are not skipped.
        """
        try:
            return self.read(record) if record else None
        except CodecError:
            return None

    def read_own(self, record: Record) -> M:
        """Return the message in a record that has its own key.

        Raises
        ------
        CodecError
            As for ``read``, and under a foreign key: such a record in a compacted topic belongs to no message.
        """
        message, key = self.read(record), key_of(record)
        own = self.key_from(message)
        if key != own and key not in self.other_keys(message):
            raise CodecError(f"a {message.type} of {own} under the key {key[:200]!r}")
        return message

    def under(self, key: str, records: Iterable[Record]) -> Iterator[M]:
        """Yield the messages of the records that have this key; unreadable ones are skipped."""
        for record in records:
            message = self.read_or_none(record) if record.key == key.encode() else None
            if message is not None:
                yield message

    def config(self) -> dict[str, str]:
        """Return the broker's configuration of this topic; ``check`` compares the same keys."""
        kept = {} if self.cleanup == "compact" else {"retention.ms": str(self.retention_ms)}
        times = BROKERS_TIME if self.is_open else {}
        return {"cleanup.policy": self.cleanup, **kept, **times, **self.extra}


AnyTopic = Topic[Any]


def key_of(record: Record | Outgoing) -> str:
    """Return a record's key as text."""
    return (record.key or b"").decode(errors="replace")


TRACES = Topic(
    name="traces",
    key="trace id",
    message=Trace,
    key_from=lambda trace: trace.trace_id,
    spread="traces",
    written_by=("agents", "cli", "gateway"),
    read_by=("reflect", "ledger", "gateway"),
)
REFLECTIONS = Topic(
    name="reflections",
    key="playbook",
    message=Reflection,
    key_from=lambda reflection: reflection.playbook,
    spread="playbooks",
    retention_ms=30 * DAY_MS,
    written_by=("agents", "reflect", "shuffle", "cli", "gateway"),
    read_by=("shuffle", "reflect", "scan", "publish", "ledger", "gateway"),
)
BATCHES = Topic(
    name="batches",
    key="playbook",
    message=Batch,
    key_from=lambda batch: batch.plan.playbook,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("shuffle",),
    read_by=("shuffle", "scan", "publish", "ledger", "replay", "gateway"),
)
MAX_LEVELS = 4
"""Maximum number of levels: with 32 children per node, four levels combine more groups than a batch can have."""

GROUPS = Topic(
    name="scan.0",
    key="node id",
    message=Group,
    key_from=lambda group: group.node_id,
    # Round robin: by key hash, 6 groups on 6 partitions nearly always collide.
    placed_by=lambda group, count: (spread(group.plan.batch_id, 1 << 30) + group.index) % count,
    spread="scan",
    written_by=("shuffle", "cli"),
    read_by=("scan", "gateway"),
)


def _partials(level: int) -> Topic[Partial]:
    return Topic(
        name=f"scan.{level}",
        key="parent node id",
        message=Partial,
        key_from=lambda partial: partial.parent_id,
        placed_by=lambda partial, count: spread(partial.parent_id, count),
        spread="scan",
        written_by=("scan", "cli"),
        read_by=("scan", "gateway"),
    )


PARTIALS = tuple(_partials(level) for level in range(1, MAX_LEVELS))
SCAN: tuple[AnyTopic, ...] = (GROUPS, *PARTIALS)
"""The scan's topics by level."""
ANSWERS = Topic(
    name="answers",
    key="hash of the request",
    message=Answer,
    key_from=lambda answer: answer.request,
    spread="scan",
    retention_ms=30 * DAY_MS,  # as long as reflections: a replay must not ask the model again
    written_by=("scan",),
    read_by=("replay",),
)
UPDATES = Topic(
    name="updates",
    key="playbook",
    message=Update,
    key_from=lambda update: update.plan.playbook,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("scan", "shuffle", "cli"),
    read_by=("publish", "scan", "ledger", "gateway"),
)
PLAYBOOKS = Topic(
    name="playbooks",
    key="playbook",
    message=Playbook,
    key_from=lambda playbook: deleted_key(playbook.name) if playbook.origin == "delete" else playbook.name,
    other_keys=lambda playbook: (playbook.name, deleted_key(playbook.name)),
    spread="playbooks",
    cleanup="compact",
    written_by=("publish",),
    read_by=("agents", "reflect", "shuffle", "scan", "publish", "control", "ledger", "gateway"),
    extra=SMALL_SEGMENTS,
)
HISTORY = Topic(
    name="history",
    key="playbook",
    message=Playbook,
    key_from=lambda playbook: playbook.name,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("publish",),
    read_by=("agents", "scan", "publish", "evaluate", "ledger", "replay", "gateway"),
)
LABELS = Topic(
    name="labels",
    key="playbook#label",
    message=Label,
    key_from=lambda label: label_key(label.playbook, label.label),
    spread="single",
    cleanup="compact",
    written_by=("publish",),
    read_by=("agents", "publish", "control", "evaluate", "ledger", "gateway"),
    extra=SMALL_SEGMENTS,
)
COMMANDS = Topic(
    name="commands",
    key="playbook",
    message=Command,
    key_from=lambda command: command.playbook,
    spread="playbooks",
    written_by=("cli", "gateway"),
    read_by=("shuffle", "publish", "ledger", "gateway"),
)
BATCH_SIZES = Topic(
    name="batch-sizes",
    key="playbook",
    message=BatchSize,
    key_from=lambda size: size.playbook,
    spread="single",
    cleanup="compact",
    written_by=("control",),
    read_by=("shuffle", "control", "gateway"),
    extra=SMALL_SEGMENTS,
)
OUTCOMES = Topic(
    name="outcomes",
    key="playbook",
    message=Outcome,
    key_from=lambda outcome: outcome.playbook,
    spread="playbooks",
    retention_ms=30 * DAY_MS,
    written_by=("agents", "reflect", "control", "cli", "gateway"),
    read_by=("control", "gateway"),
)


def _statistics(message: type[M], key: str, key_from: Callable[[M], str]) -> Topic[M]:
    return Topic(
        name="outcome-statistics",
        key=key,
        message=message,
        key_from=key_from,
        spread="playbooks",
        cleanup="compact",
        written_by=("control",),
        read_by=("control", "gateway", "cli"),
        beside=tuple(kind for kind in (OutcomeStatistics, CanaryStatistics) if kind is not message),
        extra=SMALL_SEGMENTS,
    )


OUTCOME_STATISTICS = _statistics(OutcomeStatistics, "playbook", lambda statistics: statistics.line)
CANARY_STATISTICS = _statistics(
    CanaryStatistics, "playbook#canary", lambda statistics: label_key(statistics.playbook, "canary")
)
"""The topic holds two message types."""
VERDICTS = Topic(
    name="verdicts",
    key="playbook",
    message=Verdict,
    key_from=lambda verdict: verdict.playbook,
    spread="playbooks",
    retention_ms=30 * DAY_MS,  # the decision records what counted
    written_by=("evaluate", "control"),
    read_by=("publish", "gateway"),
)
DECISIONS = Topic(
    name="decisions",
    key="playbook",
    message=Decision,
    key_from=lambda decision: decision.playbook,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("publish",),
    read_by=("ledger", "gateway", "cli"),
)
EVALUATIONS = Topic(
    name="evaluations",
    key="what was asked",
    message=Evaluation,
    key_from=lambda evaluation: evaluation.asked,
    spread="single",
    cleanup="compact",
    written_by=("cli", "evaluate"),
    read_by=("cli", "evaluate"),
    extra=SMALL_SEGMENTS,
)


def _dead_letters(message: type[M], key: str, key_from: Callable[[M], str]) -> Topic[M]:
    return Topic(
        name="dead-letters",
        key=key,
        message=message,
        key_from=key_from,
        spread="single",
        retention_ms=90 * DAY_MS,
        written_by=("reflect", "shuffle", "scan", "publish", "control", "cli", "gateway"),
        read_by=("operators", "shuffle", "ledger", "gateway"),
        beside=tuple(kind for kind in (DeadLetter, Resolution, HeldBack) if kind is not message),
    )


DEAD_LETTERS = _dead_letters(DeadLetter, "origin topic", lambda letter: letter.origin_topic)
RESOLUTIONS = _dead_letters(Resolution, "origin topic", lambda decision: decision.origin_topic)
HELD_BACK = _dead_letters(HeldBack, "its type", lambda pause: pause.type)
"""The topic holds three message types."""
ERASURES = Topic(
    name="erasures",
    key="erasure id",
    message=Erasure,
    key_from=lambda erasure: erasure.erasure_id,
    spread="single",
    retention_ms=FOR_EVER,
    written_by=("cli",),
    read_by=("ledger", "gateway"),
)

TOPICS: tuple[AnyTopic, ...] = (
    TRACES,
    REFLECTIONS,
    BATCHES,
    *SCAN,
    ANSWERS,
    UPDATES,
    PLAYBOOKS,
    HISTORY,
    LABELS,
    COMMANDS,
    BATCH_SIZES,
    OUTCOMES,
    OUTCOME_STATISTICS,
    VERDICTS,
    DECISIONS,
    EVALUATIONS,
    DEAD_LETTERS,
    ERASURES,
)
BY_NAME: Mapping[str, AnyTopic] = {topic.name: topic for topic in TOPICS}

Published = Trace | Reflection | Outcome
"""Messages that agents send."""


def outgoing(message: Published) -> Outgoing:
    """Return the record of an agent's message."""
    return next(topic for topic in TOPICS if topic.message is type(message)).record(message)


_BY_PLAYBOOK = frozenset(topic.name for topic in TOPICS if topic.spread == "playbooks")


def placing_key(topic: str, key: bytes) -> bytes:
    """Return the part of a key that determines its partition."""
    return key.partition(b"@")[0].partition(b"#")[0] if topic in _BY_PLAYBOOK else key


def partition_of(topic: str, key: bytes, partitions: int) -> int:
    """Return the partition of a key, given the number of partitions.

    Kafka's default partitioner decides. In topics keyed by playbook, branches (``NAME@BRANCH``) and the bookkeeping
    of deleted playbooks (``NAME#deleted``) share their playbook's partition.
    """
    return hashed(placing_key(topic, key)) % partitions


RESTORING = Topic(
    name="restoring",
    key="the archive's SHA-256",
    message=Restoring,
    key_from=lambda restoring: restoring.archive,
    spread="single",
    retention_ms=FOR_EVER,
    written_by=("cli",),
    read_by=("cli",),
)
"""Exists only while an archive is restored into a prefix. No service runs at that time, so it is not on the map."""
FORMAT_MARK = f"format-{FORMAT}"
"""A topic without records whose name states the prefix's format; it is created before the others."""
