"""Candidates at gates and the decisions on them, as rows of tables; pure."""

from collections.abc import Iterable, Iterator

from combee.core.evaluation.outcomes.report import OutcomesReport
from combee.dashboard.views.outcomes import outcome_rows
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import moment
from combee.log.commands.playbook import Candidate
from combee.log.reports.decisions import DecisionReport, VerdictReport

MAX_ROWS = 500
NO_RUNS: Row = {"success": "not known", "runs": 0, "unscored": 0, "scores": ""}


def verdict_rows(verdicts: Iterable[VerdictReport]) -> list[Row]:
    """Return each judge's verdict on a candidate, or its progress."""
    return [
        {**dict(verdict), "by": verdict.by or "–", "at": moment(verdict.at_ms or None)}
        for verdict in verdicts
    ]


def compared_rows(candidate: Candidate, outcomes: OutcomesReport) -> Iterator[Row]:
    """Yield the outcomes of runs with a candidate, and with the version that agents read."""
    known = {row["version"]: row for row in outcome_rows([outcomes], {})}
    for which, number in (("candidate", candidate.version), ("production", candidate.production)):
        if number:
            yield {**NO_RUNS, **known.get(number, {}), "which": which, "version": number}


def audit_rows(trail: Iterable[DecisionReport]) -> list[Row]:
    """Return the newest decisions."""
    rows = [
        {**dict(decided), **{name: getattr(decided, name) or "–" for name in ("by", "reason", "said")}}
        for decided in trail
    ]
    return [row | {"key": at, "at": moment(row["at_ms"] or None)} for at, row in enumerate(rows[:MAX_ROWS])]
