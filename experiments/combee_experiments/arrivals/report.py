"""The table, the criteria and the panel of ``arrivals``, for one set of data."""

from collections.abc import Iterator

from combee_experiments.running.cells import Measured
from combee_experiments.running.paired import difference
from combee_experiments.running.report import Panel, Report, Table, Verdict, series_by

FIXED = "fixed 40"
LESSONS = 1.0
"""Lessons: all of the interval of the difference from fixed 40 is minus so many or above."""
STALER = 0.05
"""Staleness: all of the interval of the difference is at most so large a share of fixed 40's."""
LATE_S = 2.0
"""Windows are looked at every second."""
COLUMNS = (
    *("per hour", "policy", "lessons kept", "staleness, s", "p95, s", "longest wait in a free window, s"),
    *("batches", "reflections each", "calls", "tokens read"),
)
TIMES = (
    "Staleness is the time from a reflection's publication to the version that holds it. A call takes a drawn time"
    " (log-normal, sigma 0.5) plus one for its tokens; one batch is in flight at a time."
)
FREE = (
    "A window is free while no batch is in flight; with one in flight it waits under every policy, which staleness"
    " shows."
)
WAITS = (
    "At few arrivals every window closes by time, whatever its size: there the policies differ in nothing but what"
    " they profile."
)


def report_on(name: str, measured: Measured, max_wait_s: float) -> Report:
    """Return what was found on one set of data."""
    return Report(
        tables=(_table(name, measured),),
        verdicts=tuple(_verdicts(name, measured, max_wait_s)),
        panels=(_panel(name, measured),),
        remarks=(TIMES, FREE, WAITS),
    )


def _table(name: str, measured: Measured) -> Table:
    rows = tuple(
        _row(rate, arm, measured.where(arm, per_hour=rate))
        for rate in measured.values("per_hour")
        for arm in measured.arms()
    )
    return Table(title=name, columns=COLUMNS, rows=rows)


def _row(rate: object, arm: str, measured: Measured) -> tuple[str, ...]:
    return (
        f"{rate:,}",
        arm,
        measured.spread("lessons").told(),
        measured.spread("stale_s").told(),
        measured.spread("stale_p95_s").told(),
        measured.spread("waited_most_s").told(),
        measured.spread("batches").told(0),
        measured.spread("size").told(),
        measured.spread("calls").told(0),
        measured.spread("tokens_in").told(0),
    )


def _verdicts(name: str, measured: Measured, max_wait_s: float) -> Iterator[Verdict]:
    for arm in measured.arms():
        if arm == FIXED:
            continue
        for rate in measured.values("per_hour"):
            ours, fixed = measured.where(arm, per_hour=rate), measured.where(FIXED, per_hour=rate)
            lessons = difference(ours.by_seed("lessons"), fixed.by_seed("lessons"))
            stale = difference(ours.by_seed("stale_s"), fixed.by_seed("stale_s"))
            allowed = STALER * fixed.spread("stale_s").mean
            waited = ours.spread("waited_most_s").high
            yield Verdict(
                criterion=f"{name}, {arm} at {rate:,} an hour: lessons and staleness no worse than {FIXED},"
                f" no free window waits longer than {max_wait_s:g} s",
                met=lessons.low >= -LESSONS and stale.high <= allowed and waited <= max_wait_s + LATE_S,
                told=f"lessons {lessons.told()}, staleness {stale.told()} s of"
                f" {fixed.spread('stale_s').mean:.1f}, longest {waited:.1f} s"
                f" ({FIXED}: {fixed.spread('waited_most_s').high:.1f})",
            )


def _panel(name: str, measured: Measured) -> Panel:
    return Panel(
        title=name,
        x="reflections an hour",
        y="staleness, s",
        series=series_by(measured, "per_hour", "stale_s"),
        log_x=True,
    )
