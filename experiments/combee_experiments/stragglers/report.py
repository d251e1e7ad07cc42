"""The tables and criteria of ``stragglers``."""

from collections.abc import Iterator, Sequence

from combee_experiments.running.cells import Measured, Value
from combee_experiments.running.paired import Difference, difference
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

CHOICE, TIMES, LESSONS = "choice", "times", "lessons"
ALL, PLAIN, ON = "wait for all", "plain", "stragglers"
BARRED = ("log-normal 1", "Pareto 1.6")
MEAN, P95 = 0.65, 0.5
HEDGES = 0.1
FEWER = -1.0
NOTE = (
    "Times are from the closing of a batch of 100 (ten groups, two copies) to its version, in medians of a call; "
    "means over the seeds of each run's mean and 95th percentile."
)
SAME = (
    "The n-th call of a run takes the same time in both arms, but after the first batch it is another call."
)
COUNTED = (
    "Begun are all calls, those included that were cancelled. Counted is what the versions say (calls + skips − "
    "splits − asked again); it is the plan, the calls of checks and the hedges."
)


def report_on(names: Sequence[str], measured: Measured) -> Report:
    """Return what was found."""
    times, learned = measured.where(asks=TIMES), measured.where(asks=LESSONS)
    tables = [_times(times), _choice(measured.where(asks=CHOICE))]
    tables += [_lessons(name, learned.where(data=name)) for name in names]
    verdicts = [*_fast(times), *_frugal(times), *(v for name in names for v in _kept(name, learned))]
    return Report(
        tables=tuple(tables),
        verdicts=tuple(sorted(verdicts, key=lambda verdict: verdict.met)),
        panels=(_panel(times),),
        remarks=(NOTE, SAME, COUNTED),
    )


def _panel(measured: Measured) -> Panel:
    kinds = [measured.where(times=kind) for kind in measured.values("times")]
    series = tuple(
        Series(
            name=arm,
            points=tuple(
                (own.spread("mean_s").mean, own.spread("p95_s"))
                for own in (found.where(arm) for found in kinds)
            ),
            style="points",
        )
        for arm in (PLAIN, ON)
    )
    return Panel(title="What a batch takes", x="mean, medians of a call", y="95th percentile", series=series)


def _ratio(measured: Measured, name: str, arm: str = ON, than: str = PLAIN) -> float:
    return measured.where(arm).spread(name).mean / measured.where(than).spread(name).mean


def _by_times(measured: Measured) -> Iterator[tuple[Value, str, Measured, Measured]]:
    """Yield each distribution of times and each arm, with what was measured under those times, and by that arm."""
    for kind in measured.values("times"):
        alike = measured.where(times=kind)
        yield from ((kind, arm, alike, alike.where(arm)) for arm in alike.arms())


def _times(measured: Measured) -> Table:
    rows = [
        (
            str(kind),
            arm,
            f"{own.spread('mean_s').mean:.2f}",
            f"{_ratio(alike, 'mean_s', arm):.2f} ×",
            f"{own.spread('p95_s').mean:.2f}",
            f"{_ratio(alike, 'p95_s', arm):.2f} ×",
            f"{own.spread('planned').mean:,.0f}",
            f"{own.spread('begun').mean:,.0f}",
            f"{own.spread('counted').mean:,.0f}",
            f"{own.spread('hedges').mean:.1f}",
            f"{own.spread('left_out').mean:.1f}",
        )
        for kind, arm, alike, own in _by_times(measured)
    ]
    columns = (
        *("times", "arm", "mean", "of plain", "p95", "of plain"),
        *("calls planned", "begun", "counted", "hedges", "left out"),
    )
    return Table(title="What a batch takes", columns=columns, rows=tuple(rows))


def _choice(measured: Measured) -> Table:
    rows = [
        (
            str(kind),
            arm,
            f"{_ratio(alike, 'mean_s', arm, ALL):.2f} ×",
            f"{_ratio(alike, 'p95_s', arm, ALL):.2f} ×",
            f"{own.spread('left_out').mean:.2f}",
            f"{own.spread('hedges').mean:.2f}",
        )
        for kind, arm, alike, own in _by_times(measured)
    ]
    columns = ("times", "rule", "mean", "p95", "groups left out per batch", "hedges per batch")
    note = (
        "Drawn times alone. A group is late at so many medians of its siblings; quantiles are of the combine."
    )
    return Table(title="How the constants were chosen", columns=columns, rows=tuple(rows), note=note)


def _lessons(name: str, measured: Measured) -> Table:
    rows = []
    for carry in measured.values("carry"):
        found = measured.where(carry=carry)
        for arm in found.arms():
            own = found.where(arm)
            rows.append(
                (
                    "on" if carry else "off",
                    arm,
                    own.spread("lessons").told(),
                    _difference(found).told(2) if arm == ON else "–",
                    f"{own.spread('left_out').mean:.1f}",
                )
            )
    columns = ("carry", "arm", "lessons", "difference, paired, 95 %", "left out")
    return Table(title=f"{name}: lessons kept, times log-normal 1", columns=columns, rows=tuple(rows))


def _difference(measured: Measured) -> Difference:
    """Return the paired difference in lessons."""
    on, plain = (measured.where(arm).by_seed("lessons") for arm in (ON, PLAIN))
    return difference(on, plain)


def _fast(measured: Measured) -> Iterator[Verdict]:
    for kind in BARRED:
        for name, words, most in (("mean_s", "the mean", MEAN), ("p95_s", "the 95th percentile", P95)):
            ratio = _ratio(measured.where(times=kind), name)
            yield Verdict(
                criterion=f"{kind}: {words} of a batch's time is ≤ {most:g} × of the plain tree's",
                met=ratio <= most,
                told=f"{ratio:.2f} ×",
            )


def _frugal(measured: Measured) -> Iterator[Verdict]:
    worst = max(numbers["begun"] / numbers["planned"] for _, numbers in measured.where(ON))
    yield Verdict(
        criterion="at most 10 % more calls are begun than planned, in every run",
        met=worst <= 1 + HEDGES,
        told=f"at most {worst - 1:+.1%}",
    )
    wrong = sum(numbers["counted"] != numbers["planned"] + numbers["hedges"] for _, numbers in measured)
    yield Verdict(
        criterion="calls = nodes + checks − skips + splits + asked again + hedges, in every run",
        met=not wrong,
        told=f"{len(measured) - wrong} of {len(measured)} runs",
    )


def _kept(name: str, measured: Measured) -> Iterator[Verdict]:
    for carry in measured.values("carry"):
        gained = _difference(measured.where(data=name, carry=carry))
        yield Verdict(
            criterion=f"{name}, carry {'on' if carry else 'off'}: the interval of the paired difference in "
            "lessons includes or exceeds −1",
            met=gained.high >= FEWER,
            told=gained.told(2),
        )
