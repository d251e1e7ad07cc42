"""Judges' verdicts on a candidate, and who decided what about the version that agents read; pure."""

from collections.abc import Iterable, Sequence

from combee.adapters.clock import moment
from combee.core.gate.canary_verdict import CanaryReport, canary_text
from combee.core.playbook.versions import made_by
from combee.core.text.redact import redacted
from combee.log.reports.gate import said, verdict_figures, verdict_text
from combee_schemas.base import Value
from combee_schemas.gate import Decision, Judge, Verdict
from combee_schemas.playbook import CANDIDATE, Label, Origin, Playbook

LEARNED: tuple[Origin, ...] = ("empty", "batch")
"""Origins of versions made without a command."""


class VerdictReport(Value):
    """A judge's verdict on a candidate, or its progress."""

    judge: Judge
    said: str
    why: str = ""
    figures: str = ""
    by: str = ""
    at_ms: int = 0
    """0: not yet."""


def verdict_reports(
    verdicts: Iterable[Verdict], waits_for: Iterable[Judge], canary: CanaryReport | None
) -> list[VerdictReport]:
    """Return each verdict on a candidate, then the judges that are awaited; secrets are not shown."""
    spoken = [
        VerdictReport(
            judge=verdict.judge,
            said=said(verdict),
            why=redacted(verdict.reason),
            figures=verdict_figures(verdict),
            by=redacted(verdict.judged_by),
            at_ms=verdict.judged_at_ms,
        )
        for verdict in verdicts
    ]
    return [*spoken, *(_awaited(judge, canary if judge == "canary" else None) for judge in waits_for)]


def _awaited(judge: Judge, canary: CanaryReport | None) -> VerdictReport:
    if canary is None:
        return VerdictReport(judge=judge, said="is awaited")
    share, deadline = f"{canary.share:.0%} of the callers", moment(canary.deadline_ms) or "–"
    figures = f"{share}, margin {canary.margin:g}, until {deadline} UTC"
    return VerdictReport(judge=judge, said="is awaited", why=canary_text(canary), figures=figures)


class DecisionReport(Value):
    """A decision about the version that agents read."""

    what: str
    version: int
    at_ms: int
    by: str
    reason: str = ""
    said: str = ""
    """The judges' verdicts with their figures."""


def audit_trail(
    decisions: Iterable[Decision], versions: Iterable[Playbook], labels: Iterable[Label]
) -> Sequence[DecisionReport]:
    """Return decisions with their issuers, newest first: at the gate, by commands that made versions, and by labels.

    For a label without a gate only its last move is known. Secrets are not shown.
    """
    trail = [
        *map(_decided, decisions),
        *(
            DecisionReport(
                what=f"version {version.version} from {made_by(version)}",
                version=version.version,
                at_ms=version.created_at_ms,
                by=redacted(version.issued_by),
            )
            for version in versions
            if version.origin not in LEARNED
        ),
        *(
            DecisionReport(
                what=f"{label.label} → version {label.version}",
                version=label.version,
                at_ms=label.moved_at_ms,
                by=redacted(label.issued_by),
            )
            for label in labels
            if not label.gate and label.label != CANDIDATE
        ),
    ]
    return sorted(trail, key=lambda report: (report.at_ms, report.version), reverse=True)


def _decided(decision: Decision) -> DecisionReport:
    verdicts = "; ".join(
        f"{verdict_text(verdict)}{f' ({verdict.judged_by})' if verdict.judged_by else ''}"
        for verdict in decision.verdicts
    )
    return DecisionReport(
        what=_decision_text(decision),
        version=decision.candidate or decision.version,
        at_ms=decision.decided_at_ms,
        by=redacted(decision.decided_by),
        reason=redacted(decision.reason),
        said=redacted(verdicts),
    )


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
