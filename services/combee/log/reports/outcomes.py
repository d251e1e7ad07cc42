"""Reports on the outcomes of all playbooks; pure."""

from collections.abc import Mapping
from itertools import islice

from combee.core.evaluation.outcomes.fold import NO_VERSION
from combee.core.evaluation.outcomes.report import OutcomesReport, outcomes_report
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import Playbook

LINES = 100


def newest_lines(
    statistics: Mapping[str, OutcomeStatistics], newest: Mapping[str, Playbook]
) -> tuple[OutcomesReport, ...]:
    """Return the reports of the existing playbooks and branches with outcomes, the latest first."""
    known = sorted(statistics.values(), key=lambda line: (-line.updated_at_ms, line.line))
    lines = (
        outcomes_report(line.line, line, newest[line.line].version if line.line in newest else 0)
        for line in known
        if line.line in newest or _is_baseline(line)
    )
    return tuple(islice((line for line in lines if line.versions), LINES))


def _is_baseline(line: OutcomeStatistics) -> bool:
    """Return whether all runs were shown no playbook: it may still come."""
    return all(outcomes.version == NO_VERSION for outcomes in line.versions)
