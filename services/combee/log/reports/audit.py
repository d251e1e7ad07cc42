"""The origin and changes of a version, and the audit of its batch; pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

from combee.adapters.clock import moment
from combee.core.log.ledger import Calls
from combee.core.playbook.comparison import CHANGE_WORDS
from combee.core.playbook.retention import coverage_text, effects_text, percent, shares
from combee.core.playbook.shown import counts, counts_text
from combee.core.playbook.versions import VersionSummary, made_by, version_summary
from combee_schemas.plan import Outcomes
from combee_schemas.playbook import AppliedBatch, Playbook


class VersionDetails(VersionSummary):
    """One version without its entries, with the runs behind its batch and its calls."""

    made_by: str
    scores: dict[str, float]
    successes: int
    failures: int
    planned_calls: int
    skips: int
    splits: int
    re_asks: int
    checks: int
    hedges: int
    left_out: int
    tokens: dict[str, int]


def version_details(playbook: Playbook) -> VersionDetails:
    """Return the report on a version."""
    plan = playbook.batch.plan if playbook.batch else None
    return VersionDetails.model_validate(
        {
            **dict(playbook.usage),
            **dict(plan.outcomes if plan else Outcomes()),
            **dict(version_summary(playbook)),
            "made_by": made_by(playbook),
            "planned_calls": sum(plan.widths) if plan else 0,
            "tokens": playbook.usage.tokens(),
        }
    )


def version_text(playbook: Playbook) -> str:
    """Return one version in one line, without its name."""
    counted = counts(playbook)
    entries = "entry" if counted["entries"] == 1 else "entries"
    made, by = moment(playbook.created_at_ms), f" by {playbook.issued_by}" if playbook.issued_by else ""
    origin = _batch_text(playbook, playbook.batch) if playbook.batch else playbook.origin + by
    changes = changes_text(Counter(change.kind for change in playbook.changes))
    when = f", {made} UTC" if made else ""
    return f"{counts_text(**counted)} {entries}; from {origin}{when}; {changes}"


def changes_text(counts: Mapping[str, int]) -> str:
    """Return the number of changes of each kind in a version."""
    return (
        ", ".join(f"{count} {CHANGE_WORDS.get(kind, kind)}" for kind, count in counts.items()) or "no change"
    )


def _batch_text(playbook: Playbook, batch: AppliedBatch) -> str:
    plan = batch.plan
    if plan.branch is not None:
        return f"a fork of version {plan.branch.version} of {plan.branch.of}"
    if plan.reason == "consolidate":
        article = "an" if plan.automatic else "a"
        return f"{article} {made_by(playbook)}, batch {plan.sequence}{', degraded' if batch.degraded else ''}"
    stale = (
        f", made on version {plan.base_version}, {plan.staleness} batches earlier" if plan.staleness else ""
    )
    again = ", asked about again" if plan.reason == "revoke" else ""
    degraded = ", degraded" if batch.degraded else ""
    return f"batch {plan.sequence} of {plan.reflections} reflections{again}{stale}{degraded}"


def audit_texts(batch: AppliedBatch) -> Iterator[str]:
    """Yield the results of a batch's runs, what became of its reflections, and its number of calls."""
    outcomes, judged = batch.plan.outcomes, batch.plan.outcomes.successes + batch.plan.outcomes.failures
    runs = [f"{outcomes.successes} of {judged} succeeded"] if judged else []
    if runs := [*runs, *(f"{name} {mean:.3g}" for name, mean in outcomes.scores.items())]:
        yield f"runs: {', '.join(runs)}"
    if batch.audit:
        yield f"retention: {percent(shares(batch.audit)['retention'])}: {effects_text(batch.audit)}"
        yield f"coverage: {coverage_text(batch.audit)}"
    if batch.plan.widths:
        yield Calls.of(batch.usage, sum(batch.plan.widths)).text
