"""One span, reduced to its information about an agent's run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPERATION = "gen_ai.operation.name"
AGENTS = frozenset({"invoke_agent", "invoke_workflow"})
CALLS = frozenset({"chat", "generate_content", "text_completion"})
TOOL = "execute_tool"
EVALUATION = "gen_ai.evaluation.result"
PLAYBOOK, SUCCESS, FEEDBACK = "combee.playbook", "combee.success", "combee.feedback"
OWN = frozenset({PLAYBOOK, SUCCESS, FEEDBACK})
"""Combee's attributes: the playbook of a run, and its result."""
LINK_BYTES = 600
"""Estimated bytes of a span that only links a child to its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation of a trace."""

    trace_id: str
    """Hexadecimal, like ``span_id`` and ``parent_id``."""
    span_id: str
    parent_id: str = ""
    is_entry: bool = False
    """Whether the trace, or its part in this process, begins here."""
    name: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    error: str | None = None
    """Reason for its failure; None: it did not fail."""
    bytes: int = LINK_BYTES

    @property
    def operation(self) -> str:
        """Its GenAI operation in an agent's run; empty: none."""
        return str(self.attributes.get(OPERATION, ""))

    @property
    def is_telling(self) -> bool:
        """Whether a run can be learned from it."""
        return self.operation in AGENTS | CALLS | {TOOL}

    def only_link(self) -> "Span":
        """Return a foreign span reduced to its parent link, Combee's attributes, and judgements of the run."""
        attributes = {name: value for name, value in self.attributes.items() if name in OWN}
        events = tuple(event for event in self.events if event.name == EVALUATION)
        return Span(
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            is_entry=self.is_entry,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            attributes=attributes,
            events=events,
            bytes=max(LINK_BYTES, self.bytes) if attributes or events else LINK_BYTES,
        )
