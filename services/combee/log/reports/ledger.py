"""The ledger's report in words; its value stands with the accounting, in ``core/log/ledger``; pure."""

from collections.abc import Iterator

from combee.adapters.clock import moment
from combee.core.log.ledger import LedgerReport


def account_text(report: LedgerReport) -> str:
    """Return the verdict and the fates of reflections in one line."""
    verdict = "clean" if report.good else "VIOLATED"
    return (
        f"{verdict}: {report.reflections} reflections = {report.applied} in the playbook + {report.pending} waiting"
        f" + {report.dead_lettered} dead letters; {report.lost} lost, {report.double} counted twice"
    )


def decision_texts(report: LedgerReport) -> Iterator[str]:
    """Yield what people decided: dropped dead letters, and erasures."""
    if report.dropped:
        yield f"{report.dropped} of the dead-lettered were dropped by an operator ('combee dlq list --all')"
    for erasure in report.erasures:
        gone = ", ".join(f"{count} of {topic}" for topic, count in sorted(erasure.dropped.items()))
        yield (
            f"forgotten: {moment(erasure.erased_at_ms)} UTC by {erasure.issued_by}, a {erasure.selector}"
            f" ({erasure.erasure_id}): {gone or 'no whole record'}; {erasure.entries} entries"
        )


def reading_texts(report: LedgerReport) -> Iterator[str]:
    """Yield what was not judged, and the checkpoint that the reading began with."""
    yield f"horizon: {report.horizon.note}"
    if report.continued_from_ms:
        since = moment(report.continued_from_ms)
        yield f"read on from the checkpoint of {since} UTC; --full reads everything"
