"""The map of the system: every topic in flow order, who writes it and who reads it.

No topic name is spelled anywhere else. On the broker each carries the topic prefix (``combee.reflections``).
"""

from dataclasses import dataclass, field
from typing import Literal

from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.control import BatchSize
from combee_schemas.dead_letter import DeadLetter, HeldBack, Resolution
from combee_schemas.playbook import Label, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial, Update
from combee_schemas.trace import Trace

DAY_MS = 24 * 3600 * 1000
FOR_EVER = -1
SMALL_SEGMENTS = {"segment.bytes": str(16 * 1024 * 1024), "max.compaction.lag.ms": str(10 * 60 * 1000)}
"""A new subscriber of a compacted topic reads little."""

Spread = Literal["traces", "playbooks", "scan", "single"]
"""How a topic is partitioned: by trace, by playbook (all of these alike), by scan node, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: what is in it, how it is kept, who touches it."""

    name: str
    key: str
    message: type[Message]
    spread: Spread
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int = 7 * DAY_MS
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    beside: tuple[type[Message], ...] = ()
    """Further messages in it, which readers of ``message`` pass over."""
    extra: dict[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, str]:
        """Return the broker's configuration of this topic; ``check`` compares the same keys."""
        kept = {} if self.cleanup == "compact" else {"retention.ms": str(self.retention_ms)}
        return {"cleanup.policy": self.cleanup, **kept, **self.extra}


TRACES = Topic(
    name="traces",
    key="trace id",
    message=Trace,
    spread="traces",
    written_by=("agents", "cli", "gateway"),
    read_by=("reflect", "ledger", "gateway"),
)
REFLECTIONS = Topic(
    name="reflections",
    key="playbook",
    message=Reflection,
    spread="playbooks",
    retention_ms=30 * DAY_MS,
    written_by=("agents", "reflect", "shuffle", "cli", "gateway"),
    read_by=("shuffle", "reflect", "publish", "ledger", "gateway"),
)
BATCHES = Topic(
    name="batches",
    key="playbook",
    message=Batch,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("shuffle",),
    read_by=("shuffle", "scan", "publish", "ledger", "replay", "gateway"),
)
MAX_LEVELS = 4


def _scan_topic(level: int) -> Topic:
    return Topic(
        name=f"scan.{level}",
        key="node id" if level == 0 else "parent node id",
        message=Group if level == 0 else Partial,
        spread="scan",
        written_by=("shuffle", "cli") if level == 0 else ("scan", "cli"),
        read_by=("scan", "gateway"),
    )


SCAN = tuple(_scan_topic(level) for level in range(MAX_LEVELS))
UPDATES = Topic(
    name="updates",
    key="playbook",
    message=Update,
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("scan", "shuffle", "cli"),
    read_by=("publish", "scan", "ledger", "gateway"),
)
PLAYBOOKS = Topic(
    name="playbooks",
    key="playbook",
    message=Playbook,
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
    spread="playbooks",
    retention_ms=FOR_EVER,
    written_by=("publish",),
    read_by=("agents", "scan", "publish", "ledger", "replay", "gateway"),
)
LABELS = Topic(
    name="labels",
    key="playbook#label",
    message=Label,
    spread="single",
    cleanup="compact",
    written_by=("publish",),
    read_by=("agents", "publish", "gateway"),
    extra=SMALL_SEGMENTS,
)
COMMANDS = Topic(
    name="commands",
    key="playbook",
    message=Command,
    spread="playbooks",
    written_by=("cli", "gateway"),
    read_by=("shuffle", "publish", "ledger", "gateway"),
)
BATCH_SIZES = Topic(
    name="batch-sizes",
    key="playbook",
    message=BatchSize,
    spread="single",
    cleanup="compact",
    written_by=("control",),
    read_by=("shuffle", "control", "gateway"),
    extra=SMALL_SEGMENTS,
)
DEAD_LETTERS = Topic(
    name="dead-letters",
    key="origin topic",
    message=DeadLetter,
    spread="single",
    retention_ms=90 * DAY_MS,
    written_by=("reflect", "shuffle", "scan", "publish", "cli"),
    read_by=("operators", "shuffle", "ledger", "gateway"),
    beside=(Resolution, HeldBack),
)

TOPICS = (
    TRACES,
    REFLECTIONS,
    BATCHES,
    *SCAN,
    UPDATES,
    PLAYBOOKS,
    HISTORY,
    LABELS,
    COMMANDS,
    BATCH_SIZES,
    DEAD_LETTERS,
)
