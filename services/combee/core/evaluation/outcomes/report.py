"""The report on outcomes: success and scores with their intervals, per version and entry; pure."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from combee.core.evaluation.intervals import Interval, of_mean, wilson
from combee.core.gate.canary_verdict import CanaryReport
from combee_schemas.base import Value
from combee_schemas.outcome import Figures, Measure, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Change

CHANGE_SIGNS: Mapping[str, str] = {"add": "+", "import": "+", "promote": "+", "update": "~"}
"""What left has ``-``; what changed nothing that is shown is left out."""
GONE = ("remove", "merge", "evict", "expire", "delete")


class Estimate(Value):
    """A mean with its 95 % interval; without bounds where there is too little for one."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int


class FiguresReport(Value):
    """How a number of runs went."""

    runs: int
    unscored: int
    """Of these: runs of which neither a score nor success is known."""
    success: Estimate | None = None
    """Share of successes among the runs of which that is known; None: of none."""
    scores: dict[str, Estimate] = Field(default_factory=dict)


class VersionReport(FiguresReport):
    """How the runs went that were shown one version."""

    version: int
    last_at_ms: int = 0


class EntryReport(Value):
    """How the runs went that used one entry; and how many were shown it."""

    entry_id: str
    shown: int
    used: FiguresReport


class OutcomesReport(Value):
    """Does it help? The outcomes of a playbook, or of a branch."""

    name: str
    versions: tuple[VersionReport, ...] = ()
    """Newest last."""
    earlier: FiguresReport | None = None
    """All versions before those, together."""
    entries: tuple[EntryReport, ...] = ()
    unplaced: int = 0
    """Runs that did not say which version they were shown."""
    canary: CanaryReport | None = None
    """How far the candidate's canary is; None: there is none under way."""


def success_of(figures: Figures) -> Interval | None:
    """Return the share of successes (Wilson); None where none is known."""
    n = figures.successes + figures.failures
    return wilson(figures.successes / n, n) if n else None


def _success(figures: Figures) -> Estimate | None:
    share = success_of(figures)
    return Estimate(mean=share.mean, low=share.low, high=share.high, n=share.n) if share else None


def _score(measure: Measure) -> Estimate:
    interval = of_mean(measure.mean, measure.m2, measure.n)
    bounds = {"low": interval.low, "high": interval.high} if interval else {}
    return Estimate(mean=measure.mean, n=measure.n, **bounds)


def figures_report(figures: Figures) -> FiguresReport:
    """Return figures with their intervals."""
    return FiguresReport(
        runs=figures.runs,
        unscored=figures.unscored,
        success=_success(figures),
        scores={measure.name: _score(measure) for measure in figures.scores},
    )


def outcomes_report(
    name: str,
    statistics: OutcomeStatistics | None,
    newest: int | None = None,
    canary: CanaryReport | None = None,
) -> OutcomesReport:
    """Return the report on the outcomes of a line; without statistics it is empty.

    Of versions after the ``newest`` nothing is in it: anybody can name one.
    """
    if statistics is None:
        return OutcomesReport(name=name, canary=canary)
    return OutcomesReport(
        name=name,
        versions=tuple(
            VersionReport(
                version=outcomes.version,
                last_at_ms=outcomes.last_at_ms,
                **dict(figures_report(outcomes.figures)),
            )
            for outcomes in statistics.versions
            if newest is None or outcomes.version <= newest
        ),
        earlier=figures_report(statistics.earlier) if statistics.earlier.runs else None,
        entries=tuple(
            EntryReport(entry_id=entry.entry_id, shown=entry.shown, used=figures_report(entry.used))
            for entry in statistics.entries
        ),
        unplaced=statistics.unplaced,
        canary=canary,
    )


def newest_outcomes(statistics: OutcomeStatistics) -> VersionOutcomes | None:
    """Return the outcomes of the newest version that a run was shown."""
    return statistics.versions[-1] if statistics.versions else None


# ---- in words


def estimate_text(estimate: Estimate | None, *, as_percent: bool = False) -> str:
    """Return an estimate in words; empty without one."""
    if estimate is None:
        return ""
    factor, digits, unit = (100, 0, " %") if as_percent else (1, 3, "")
    mean = f"{estimate.mean * factor:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return mean
    return f"{mean} ({estimate.low * factor:.{digits}f} to {estimate.high * factor:.{digits}f})"


def figures_text(figures: FiguresReport) -> str:
    """Return how runs went in one line."""
    parts = [f"{figures.runs} runs"]
    if figures.success:
        parts.append(f"success {estimate_text(figures.success, as_percent=True)}")
    parts += [f"{name} {estimate_text(score)}" for name, score in figures.scores.items()]
    if figures.unscored:
        parts.append(f"{figures.unscored} unscored")
    return ", ".join(parts)


def changes_text(changes: Iterable[Change]) -> str:
    """Return what a version changed, such as ``+3 ~1 -2``: entries that came, changed and left."""
    counts = dict.fromkeys("+~-", 0)
    for change in changes:
        sign = "-" if change.kind in GONE else CHANGE_SIGNS.get(change.kind)
        if sign:
            counts[sign] += 1
    return " ".join(f"{sign}{count}" for sign, count in counts.items() if count)
