"""The status: every playbook and branch by its newest version, and the live picture in words; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from combee.core.evaluation.outcomes.report import outcomes_report
from combee.core.gate.canary_verdict import CanaryReport
from combee.core.gate.gate import Gate
from combee.core.log.live.values import LiveBatch, LivePlaybook, LiveVersion
from combee.core.playbook.budget import budget_text
from combee.core.playbook.probation import counts
from combee.core.playbook.retention import last_shares, warnings
from combee.core.playbook.side_by_side import Today, branch_row
from combee.core.playbook.trust import trust_text
from combee.core.playbook.versions import made_by
from combee.log.reports.controller import sizing_row
from combee.log.reports.cost import today_row
from combee.log.reports.gate import gate_report
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import Playbook


def line_row(playbook: Playbook, lines: Mapping[str, Playbook]) -> dict[str, Any]:
    """Return the fields that every list shows of a playbook or branch; ``lines`` has the playbook of a branch."""
    return {
        "name": playbook.name,
        "version": playbook.version,
        "branch": branch_row(playbook.branch, lines.get(playbook_of(playbook.name))),
        **counts(playbook),
    }


def list_row(playbook: Playbook, lines: Mapping[str, Playbook], labels: Mapping[str, int]) -> dict[str, Any]:
    """Return one line of the list of playbooks; ``labels``: versions by label."""
    return {
        **line_row(playbook, lines),
        "batch_sequence": playbook.batch_sequence,
        "origin": playbook.origin,
        "labels": labels,
        "created_at_ms": playbook.created_at_ms,
    }


def status_row(
    playbook: Playbook,
    lines: Mapping[str, Playbook],
    today: Today,
    decided: BatchSize | None,
    *,
    budget_tokens: int,
    outcomes: OutcomeStatistics | None,
    gate: Gate | None,
    canary: CanaryReport | None,
) -> dict[str, Any]:
    """Return one line of ``status --json``; of outcomes those of the newest version that any run was shown.

    ``budget_tokens`` is the configured token budget.
    """
    runs = outcomes_report("", outcomes, playbook.version).versions
    return {
        **line_row(playbook, lines),
        "made_by": made_by(playbook),
        "budget": budget_text(playbook, budget_tokens) or None,
        "batch_size": today.own.batch_size,
        "sizing": sizing_row(decided),
        "in_flight": today.own.in_flight,
        **today_row(today),
        **last_shares(playbook),
        "trust": trust_text(playbook),
        "warnings": warnings(playbook),
        "audit": playbook.audit.model_dump() if playbook.audit else None,
        "outcomes": runs[-1].model_dump(mode="json") if runs else None,
        "gate": gate_report(gate).model_dump(mode="json") if gate else None,
        "canary": canary.model_dump(mode="json") if canary else None,
    }


# ---- the live picture


def progress_text(batch: LiveBatch) -> str:
    """Return the progress of a batch."""
    if batch.version:
        return f"became version {batch.version}"
    return f"{sum(node.is_settled for node in batch.nodes)} of {len(batch.nodes)} nodes done"


def newest_versions(playbooks: Iterable[LivePlaybook], most: int) -> list[tuple[str, LiveVersion]]:
    """Return the last versions of each playbook, ``most`` at most, with its name; the newest of all come first."""
    made = [(playbook.name, version) for playbook in playbooks for version in playbook.versions[-most:]]
    return sorted(made, key=lambda pair: pair[1].at_ms, reverse=True)
