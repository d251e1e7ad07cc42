"""The report on outcomes: success and scores with their intervals, per version and entry; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

from pydantic import Field

from combee.core.evaluation.intervals import Interval, of_mean, wilson
from combee.core.evaluation.outcomes.fold import NO_VERSION, merged
from combee.core.gate.canary_verdict import CanaryReport
from combee_schemas.base import Value
from combee_schemas.outcome import Figures, Measure, OutcomeStatistics, VersionOutcomes

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


# ---- the curve

POINT_RUNS = 20
"""Minimum number of judged runs behind a point of the curve, unless there are fewer: they say next to nothing."""


class Point(FiguresReport):
    """Results of the runs that were shown one version, or some neighbouring ones."""

    first: int
    version: int
    """The last of these versions."""
    at_ms: int = 0
    """Time of the last run."""


class Curve(Value):
    """Success over time, which tells whether a playbook helps."""

    baseline: Point | None = None
    """Results of the runs that were shown no playbook, version 0; None: there are none."""
    points: tuple[Point, ...] = ()

    @property
    def measure(self) -> str:
        """What is drawn: success, or, where no success is known, the score that most runs have; empty: nothing."""
        every = [*self.points, *([self.baseline] if self.baseline else [])]
        if any(figures.success for figures in every):
            return "success"
        runs: Counter[str] = Counter()
        for figures in every:
            runs.update({name: score.n for name, score in figures.scores.items()})
        return next((name for name, _ in runs.most_common(1)), "")

    def of(self, figures: FiguresReport | None) -> Estimate | None:
        """Return what is drawn of some runs."""
        if figures is None:
            return None
        return figures.success if self.measure == "success" else figures.scores.get(self.measure)


def curve_of(statistics: OutcomeStatistics | None, newest: int | None = None) -> Curve:
    """Return a line's curve; versions with few judged runs are pooled with their neighbours."""
    report = statistics.versions if statistics else ()
    known = [outcomes for outcomes in report if newest is None or outcomes.version <= newest]
    baseline = next((outcomes for outcomes in known if outcomes.version == NO_VERSION), None)
    points: list[Point] = []
    last: list[VersionOutcomes] = []
    pooled: list[VersionOutcomes] = []
    for outcomes in known:
        if outcomes.version == NO_VERSION or not _judged(outcomes.figures):
            continue
        pooled.append(outcomes)
        if sum(_judged(each.figures) for each in pooled) >= POINT_RUNS:
            points.append(_point(pooled))
            last, pooled = pooled, []
    if pooled:
        points[-1:] = [_point([*last, *pooled])]
    return Curve(baseline=_point([baseline]) if baseline else None, points=tuple(points))


def _judged(figures: Figures) -> int:
    return figures.runs - figures.unscored


def _point(pooled: Sequence[VersionOutcomes]) -> Point:
    figures = reduce(merged, (outcomes.figures for outcomes in pooled))
    return Point(
        first=pooled[0].version,
        version=pooled[-1].version,
        at_ms=max(outcomes.last_at_ms for outcomes in pooled),
        **dict(figures_report(figures)),
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


def help_text(curve: Curve) -> str:
    """Return in a sentence or two whether the playbook helps; empty: no run has told its outcome."""
    before, last = curve.of(curve.baseline), next(reversed(curve.points), None)
    now = curve.of(last)
    name, as_percent = curve.measure.capitalize(), curve.measure == "success"
    if before and not now:
        return f"{name} is {estimate_text(before, as_percent=as_percent)} without a playbook."
    if last is None or now is None:
        return ""
    after = f"{estimate_text(now, as_percent=as_percent)} with {versions_text(last)}"
    if before is None:
        return f"{name} is {after}. No run without a playbook is known, so there is nothing to compare with."
    verb = "rose" if now.mean > before.mean else "fell" if now.mean < before.mean else "went"
    moved = (
        f"{name} {verb} from {estimate_text(before, as_percent=as_percent)} without a playbook to {after}."
    )
    return moved if _apart(before, now) else f"{moved} The intervals overlap: this may be chance."


def _apart(first: Estimate, second: Estimate) -> bool:
    """Return whether two intervals do not overlap."""
    bounds = (first.low, first.high, second.low, second.high)
    if None in bounds:
        return False
    low, high, other_low, other_high = bounds
    return high < other_low or other_high < low  # type: ignore[operator]  # none is missing


def versions_text(point: Point) -> str:
    """Return the versions of a point."""
    if point.version == NO_VERSION:
        return "no playbook"
    if point.first == point.version:
        return f"version {point.version}"
    return f"versions {point.first} to {point.version}"


def figures_text(figures: FiguresReport) -> str:
    """Return the results of runs in one line."""
    parts = [f"{figures.runs} runs"]
    if figures.success:
        parts.append(f"success {estimate_text(figures.success, as_percent=True)}")
    parts += [f"{name} {estimate_text(score)}" for name, score in figures.scores.items()]
    if figures.unscored:
        parts.append(f"{figures.unscored} unscored")
    return ", ".join(parts)


def changes_text(changes: Mapping[str, int]) -> str:
    """Return a version's changes by kind in signs, such as ``+3 ~1 -2``: entries that came, changed and left."""
    counts = dict.fromkeys("+~-", 0)
    for kind, count in changes.items():
        sign = "-" if kind in GONE else CHANGE_SIGNS.get(kind)
        if sign:
            counts[sign] += count
    return " ".join(f"{sign}{count}" for sign, count in counts.items() if count)
