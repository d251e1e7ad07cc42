"""The report on outcomes: success and scores with their intervals, per version and entry; pure."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from combee.core.evaluation.intervals import Interval, of_mean, wilson
from combee.core.gate.canary_verdict import CanaryReport
from combee_schemas.base import Value
from combee_schemas.outcome import Figures, Measure, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Change

CHANGE_SIGNS: Mapping[str, str] = {"add": "+", "import": "+", "promote": "+", "update": "~"}
"""Sign per kind of change; ``-`` for entries that left. Changes invisible to agents are left out."""
GONE = ("remove", "merge", "evict", "expire", "delete")


class Estimate(Value):
    """A mean with its 95 % interval; bounds are missing if there is too little data."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int


class FiguresReport(Value):
    """Results of a number of runs."""

    runs: int
    unscored: int
    """Runs with neither score nor success, part of the runs."""
    success: Estimate | None = None
    """Share of successes among the runs with known success; None: there are none."""
    scores: dict[str, Estimate] = Field(default_factory=dict)


class VersionReport(FiguresReport):
    """Results of the runs that were shown one version."""

    version: int
    last_at_ms: int = 0


class EntryReport(Value):
    """Results of the runs that used one entry, and the number of runs shown it."""

    entry_id: str
    shown: int
    used: FiguresReport


class OutcomesReport(Value):
    """Outcomes of a playbook or a branch, which tell whether it helps."""

    name: str
    versions: tuple[VersionReport, ...] = ()
    """Newest last."""
    earlier: FiguresReport | None = None
    """All older versions together."""
    entries: tuple[EntryReport, ...] = ()
    unplaced: int = 0
    """Runs that did not say which version they were shown."""
    canary: CanaryReport | None = None
    """The candidate's canary; None: none is running."""


def success_of(figures: Figures) -> Interval | None:
    """Return the share of successes (Wilson); None if none is known."""
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
    """Return the report on a line's outcomes; without statistics it is empty.

    Versions above ``newest`` are left out: anybody can name one.
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
    """Return an estimate in words; empty if there is none."""
    if estimate is None:
        return ""
    factor, digits, unit = (100, 0, " %") if as_percent else (1, 3, "")
    mean = f"{estimate.mean * factor:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return mean
    return f"{mean} ({estimate.low * factor:.{digits}f} to {estimate.high * factor:.{digits}f})"


def figures_text(figures: FiguresReport) -> str:
    """Return the results of runs in one line."""
    parts = [f"{figures.runs} runs"]
    if figures.success:
        parts.append(f"success {estimate_text(figures.success, as_percent=True)}")
    parts += [f"{name} {estimate_text(score)}" for name, score in figures.scores.items()]
    if figures.unscored:
        parts.append(f"{figures.unscored} unscored")
    return ", ".join(parts)


def changes_text(changes: Iterable[Change]) -> str:
    """Return a version's changes, such as ``+3 ~1 -2``: entries that came, changed and left."""
    counts = dict.fromkeys("+~-", 0)
    for change in changes:
        sign = "-" if change.kind in GONE else CHANGE_SIGNS.get(change.kind)
        if sign:
            counts[sign] += 1
    return " ".join(f"{sign}{count}" for sign, count in counts.items() if count)
