"""The effect of a record on publish: versions, labels, gate decisions and dead letters of one transaction."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from combee.adapters.ports import Record
from combee.core.gate.gate import Gate
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee_schemas import gate as messages
from combee_schemas.playbook import Label, Playbook
from combee_schemas.scan import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that decisions follow."""

    budget_tokens: int
    """Token budget of a playbook where a batch's manifest does not say it."""
    spending: SpendPolicy = UNCAPPED
    gates: GatePolicy = NO_GATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A reflection of which no copy got through its batch: it becomes a dead letter."""

    record: Record
    seen: Seen
    playbook: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDecision:
    """The records of one transaction; an empty decision commits the record's offset alone."""

    versions: tuple[Playbook, ...] = ()
    """The next versions, which have no place in ``history`` yet."""
    revoked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By line of these versions: all revoked reflections; a version names only the newly revoked ones."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """The new gates, by playbook."""
    labels: tuple[Label, ...] = ()
    """Labels of no gate that a person moves."""
    decisions: tuple[messages.Decision, ...] = ()
    lost: tuple[Lost, ...] = ()
    passed_over: str = ""
    """Why a record that was read has no effect, where that is worth a log line."""

    def with_gate(self, name: str, gate: Gate, *decisions: messages.Decision) -> "PublishDecision":
        """Return the decision with the gate of one more playbook."""
        return replace(self, gates={**self.gates, name: gate}, decisions=(*self.decisions, *decisions))


SKIP = PublishDecision()
"""The record had its effect already, or has none."""

WaitsFor = Literal["manifest", "predecessor"]
"""An update waits for its manifest, or for the update of the batch before."""
