"""Outcomes as rows of a table, for playbooks and branches with the latest outcomes, by version; pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from combee.core.evaluation.outcomes.report import (
    OutcomesReport,
    changes_text,
    estimate_text,
    outcomes_report,
)
from combee.dashboard.views.rows import Row
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import Change, Playbook

LINES, VERSIONS = 3, 6


def newest_lines(
    statistics: Mapping[str, OutcomeStatistics], newest: Mapping[str, Playbook]
) -> tuple[OutcomesReport, ...]:
    """Return the reports of the existing playbooks and branches with the latest outcomes."""
    known = sorted(statistics.values(), key=lambda line: (-line.updated_at_ms, line.line))
    lines = (
        outcomes_report(line.line, line, newest[line.line].version) for line in known if line.line in newest
    )
    rows = (
        line.model_copy(update={"versions": line.versions[-VERSIONS:]}) for line in lines if line.versions
    )
    return tuple(islice(rows, LINES))


def outcome_rows(
    lines: Sequence[OutcomesReport], changes: Mapping[tuple[str, int], Iterable[Change]]
) -> list[Row]:
    """Return a row for each version, newest first within each playbook or branch."""
    return [
        {
            "key": f"{line.name} {version.version}",
            "line": line.name,
            "version": version.version,
            "success": estimate_text(version.success, as_percent=True) or "not known",
            "runs": version.runs,
            "unscored": version.unscored,
            "scores": ", ".join(f"{name} {estimate_text(score)}" for name, score in version.scores.items()),
            "changes": changes_text(changes.get((line.name, version.version), ())) or "nothing",
        }
        for line in lines
        for version in reversed(line.versions)
    ]
