"""Candidates at gates and the decisions on them, as rows of tables; pure."""

from collections.abc import Iterable, Iterator

from combee.core.evaluation.outcomes.report import OutcomesReport
from combee.core.gate.canary_verdict import CanaryReport, canary_text
from combee.core.playbook.versions import made_by
from combee.core.text.redact import redacted
from combee.dashboard.views.outcomes import outcome_rows
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import moment
from combee.log.commands.playbook import Candidate
from combee.log.reports.gate import said, verdict_figures, verdict_text
from combee_schemas.gate import Decision
from combee_schemas.playbook import CANDIDATE, Label, Origin, Playbook

LEARNED: tuple[Origin, ...] = ("empty", "batch")
"""Origins of versions made without a command."""
MAX_ROWS = 500
NO_RUNS: Row = {"success": "not known", "runs": 0, "unscored": 0, "scores": ""}


def verdict_rows(candidate: Candidate, canary: CanaryReport | None) -> list[Row]:
    """Return each judge's verdict on a candidate, or its progress."""
    spoken = [
        {
            "judge": verdict.judge,
            "said": said(verdict),
            "why": redacted(verdict.reason),
            "figures": verdict_figures(verdict),
            "by": redacted(verdict.judged_by) or "–",
            "at": moment(verdict.judged_at_ms or None),
        }
        for verdict in candidate.verdicts
    ]
    awaited = [
        {
            "judge": judge,
            "said": "is awaited",
            "why": canary_text(canary) if judge == "canary" and canary else "",
            "figures": _canary_figures(canary) if judge == "canary" and canary else "",
            "by": "–",
            "at": "–",
        }
        for judge in candidate.waits_for
    ]
    return [*spoken, *awaited]


def _canary_figures(canary: CanaryReport) -> str:
    share, deadline = f"{canary.share:.0%} of the callers", moment(canary.deadline_ms)
    return f"{share}, margin {canary.margin:g}, until {deadline} UTC"


def compared_rows(candidate: Candidate, outcomes: OutcomesReport) -> Iterator[Row]:
    """Yield the outcomes of runs with a candidate, and with the version that agents read."""
    known = {row["version"]: row for row in outcome_rows([outcomes], {})}
    for which, number in (("candidate", candidate.version), ("production", candidate.production)):
        if number:
            yield {**NO_RUNS, **known.get(number, {}), "which": which, "version": number}


def audit_rows(
    decisions: Iterable[Decision], versions: Iterable[Playbook], labels: Iterable[Label]
) -> list[Row]:
    """Return decisions with their issuers, newest first: at the gate, by commands that made versions, and by labels.

    For a label without a gate only its last move is known.
    """
    rows = [
        *map(_decision_row, decisions),
        *(
            _audit_row(
                f"version {version.version} from {made_by(version)}",
                version.version,
                version.created_at_ms,
                version.issued_by,
            )
            for version in versions
            if version.origin not in LEARNED
        ),
        *(
            _audit_row(
                f"{label.label} → version {label.version}", label.version, label.moved_at_ms, label.issued_by
            )
            for label in labels
            if not label.gate and label.label != CANDIDATE
        ),
    ]
    rows.sort(key=lambda row: (row["at_ms"], row["version"]), reverse=True)
    return [row | {"key": number} for number, row in enumerate(rows[:MAX_ROWS])]


def _decision_row(decision: Decision) -> Row:
    verdicts = "; ".join(
        f"{verdict_text(verdict)}{f' ({verdict.judged_by})' if verdict.judged_by else ''}"
        for verdict in decision.verdicts
    )
    about = decision.candidate or decision.version
    row = _audit_row(_decision_text(decision), about, decision.decided_at_ms, decision.decided_by)
    return row | {"reason": redacted(decision.reason) or "–", "said": redacted(verdicts) or "–"}


def _audit_row(what: str, version: int, at_ms: int, by: str) -> Row:
    return {
        "what": what,
        "version": version,
        "at_ms": at_ms,
        "at": moment(at_ms or None),
        "by": redacted(by) or "–",
        "reason": "–",
        "said": "–",
    }


def _decision_text(decision: Decision) -> str:
    """Return a gate's decision in words."""
    about = decision.candidate or decision.version
    before = f"version {decision.before}" if decision.before else "no version"
    if decision.decided == "opened":
        return f"gate opened: {', '.join(decision.judges)}"
    if decision.decided == "moved":
        return f"production moved past the judges: {before} → version {decision.version}"
    text = f"version {about} {decision.decided}"
    if decision.decided == "rejected":
        parts = decision.verdicts[-1] if decision.verdicts else None
        named = ", ".join((*parts.entry_ids, *parts.sources)) if parts else ""
        text += f" in part ({named})" if named else ""
        text += f", agents go on reading {before}"
        if decision.taken_back:
            made = f", version {decision.made} is without them" if decision.made else ""
            text += f"; {decision.taken_back} reflections taken back{made}"
    return text
