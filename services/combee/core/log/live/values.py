"""Values of a live picture: frozen, JSON by ``model_dump(mode="json")``."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from combee.core.playbook.retention import WarningKind
from combee_schemas.base import Value
from combee_schemas.plan import Branch, CloseReason
from combee_schemas.playbook import Audit
from combee_schemas.scan import NodeStatus

NodeState = Literal["waiting", "ready", "done", "left_out"]
"""waiting: children are unfinished; ready: its call may run; done: its result is in the log; left_out: the root went
on without it."""


class Stage(Value):
    """One topic of the flow."""

    name: str
    offsets: int
    """Number of offsets over all partitions: one per record, and one per transaction and partition for its marker."""
    rate_per_s: float = 0.0
    """Offsets per second over the last 10 s."""
    lag: int | None = None
    """Number of offsets that its readers have not committed; None: no group commits here."""
    lag_s: float | None = None
    """Waiting time of the oldest of them in seconds; None: nothing waits."""


class LiveNode(Value):
    """One aggregator call of a batch."""

    node_id: str
    level: int
    index: int
    parent_id: str = ""
    """Id of the parent; empty at the root."""
    state: NodeState = "waiting"
    status: NodeStatus | None = None
    """Result status, once done."""
    reason: str = ""
    operations: int = 0
    seen: int = 0
    """Number of reflections below it."""
    tokens_in: int = 0
    """Input tokens of its own call and all calls below it."""
    tokens_out: int = 0
    at_ms: int | None = None
    """Time its result was written."""

    @property
    def is_settled(self) -> bool:
        """Whether no further result is expected."""
        return self.state in {"done", "left_out"}


class LiveBatch(Value):
    """One batch with its tree, leaves first."""

    batch_id: str
    playbook: str
    sequence: int
    method: str = "ace"
    reflections: int = 0
    copies: int = 0
    """Number of copies; 0: the manifest has not been read."""
    widths: tuple[int, ...] = ()
    reason: CloseReason | None = None
    automatic: bool = False
    """Whether a consolidation ran without a request."""
    shape_reason: str = ""
    closed_at_ms: int = 0
    version: int | None = None
    """The version it became; None: still in flight."""
    done_at_ms: int | None = None
    nodes: tuple[LiveNode, ...] = ()

    @property
    def about(self) -> str:
        """The batch's subject in words."""
        if self.reason == "consolidate":
            return f"consolidates entries{', automatically' if self.automatic else ''}"
        if self.reason == "branch":
            return "begins a branch"
        if self.reason == "revoke":
            return f"{self.reflections} reflections, asked about again after a revocation"
        why = f", closed by {self.reason}" if self.reason else ""
        return f"{self.reflections} reflections{why}"


class LiveVersion(Value):
    """One version of a playbook, without its entries."""

    version: int
    at_ms: int
    origin: str = "batch"
    batch_id: str = ""
    entries: int = 0
    """Number of entries shown to agents."""
    proposed: int = 0
    batch_size: int = 0
    reflections: int = 0
    retention: float | None = None
    audit: Audit | None = None
    """Audit of its batch; None: no batch, or no reflection got through."""
    tokens: int = 0
    cost: float = 0.0
    """Cost in the currency of the price table."""
    close_reason: str = ""
    changes: dict[str, int] = Field(default_factory=dict)
    """Number of its changes by kind."""
    seconds: float = 0.0
    """Seconds from its batch's closing to the version."""


class LiveSize(Value):
    """A decision of the controller."""

    at_ms: int
    batch_size: int
    reason: str = ""


class LivePlaybook(Value):
    """One playbook: its window, its batch size and its versions."""

    name: str
    version: int = 0
    entries: int = 0
    """Number of entries shown to agents."""
    proposed: int = 0
    waiting: int = 0
    """Number of reflections in its window; repeats count until the window closes."""
    waiting_since_ms: int | None = None
    batch_size: int = 0
    batch_size_reason: str = ""
    sizes: tuple[LiveSize, ...] = ()
    retention: float | None = None
    retention_recent: tuple[float, ...] = ()
    omitted: float | None = None
    """Omitted share of the last batch's reflections."""
    omitted_recent: tuple[float, ...] = ()
    warnings: dict[WarningKind, str] = Field(default_factory=dict)
    """Warnings about the last batch, by kind."""
    versions: tuple[LiveVersion, ...] = ()
    """Newest last."""
    spend_tokens: int = 0
    """Tokens spent today."""
    spend_cost: float = 0.0
    branch: Branch | None = None
    """Set in a branch: its origin and its own settings."""
    paused: str = ""
    """Why its next batch waits for the next day, by the configured cap or the last recorded one."""
    changed_at_ms: int = 0

    @property
    def window(self) -> str:
        """Its window in words."""
        return window_text(self.waiting, self.batch_size)


def window_text(waiting: int, batch_size: int, of: str = " of ") -> str:
    """Return a window in words; more than one batch waits after a burst, or once batches have become smaller."""
    return f"{waiting} waiting" if waiting > batch_size else f"{waiting}{of}{batch_size}"


class LiveDeadLetter(Value):
    """A record that could not be used."""

    id: str = ""
    """Its id for ``combee dlq``, such as ``0-17``."""
    decision: str = ""
    """What an operator decided about it, retried or dropped; empty: it is open."""
    service: str
    reason: str
    origin: str
    """Original record, as ``topic[partition]@offset``."""
    record_id: str = ""
    playbook: str = ""
    at_ms: int = 0


class Snapshot(Value):
    """State of a deployment at one moment."""

    revision: int
    at_ms: int
    stages: tuple[Stage, ...] = ()
    playbooks: tuple[LivePlaybook, ...] = ()
    """Playbooks, last changed first."""
    playbooks_total: int = 0
    batches: tuple[LiveBatch, ...] = ()
    """Batches, newest first."""
    dead_letters: int = 0
    """Number of open dead letters, those that were decided among the last 100 excepted."""
    dead_letters_recent: tuple[LiveDeadLetter, ...] = ()
    """Dead letters, newest first."""
    unreadable: dict[str, str] = Field(default_factory=dict)
    """Sources that cannot be read at present (a topic, ``offsets of`` one, ``lag of`` a service), and why."""


def current_batch(batches: Sequence[LiveBatch]) -> LiveBatch | None:
    """Return the oldest batch in flight, otherwise the newest batch."""
    in_flight = [batch for batch in batches if batch.version is None]
    return in_flight[-1] if in_flight else next(iter(batches), None)
