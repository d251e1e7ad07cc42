"""Outcomes as a curve and as rows of a table, version by version; pure."""

from collections.abc import Mapping, Sequence

from combee.core.evaluation.outcomes.report import (
    OutcomesReport,
    changes_text,
    estimate_text,
)
from combee.dashboard.views.rows import Row

NOBODY_TELLS = (
    "No run has told its outcome yet, so nobody can say whether the lessons help. Tell it with the run"
    " (run.outcome, or success in a trace), or later (client.outcome, POST /v1/outcomes)."
)


def outcome_rows(
    lines: Sequence[OutcomesReport], changes: Mapping[tuple[str, int], Mapping[str, int]]
) -> list[Row]:
    """Return a row for each version, newest first within each playbook or branch; ``changes`` by kind."""
    return [
        {
            "key": f"{line.name} {version.version}",
            "line": line.name,
            "version": version.version,
            "named": f"version {version.version}" if version.version else "no playbook",
            "success": estimate_text(version.success, as_percent=True) or "not known",
            "runs": version.runs,
            "unscored": version.unscored,
            "scores": ", ".join(f"{name} {estimate_text(score)}" for name, score in version.scores.items()),
            "changes": _changes(changes.get((line.name, version.version))),
        }
        for line in lines
        for version in reversed(line.versions)
    ]


def _changes(changes: Mapping[str, int] | None) -> str:
    if changes is None:
        return "–"
    return changes_text(changes) or "nothing"
