"""The tables, criteria and panels of ``overload``, for one set of data."""

from statistics import fmean

from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN
from combee_experiments.data import paper
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured, Spread
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.lessons import BESIDE
from combee_sim.modes import NO_MODES

COMBEE = (PLAIN.name, ADAPTIVE.name)
WORST_OFF, MEAN_OFF = 0.35, 0.20
LESSONS_KEPT = 0.90
WALL = 0.15
SAME = "At batch size 1 all arms are the same (fewer than four reflections are not copied): one call per reflection."
FITTED = (
    "The stand-in's law was fitted to naive entries per update on Formula, and to nothing else: that naive "
    "follows the Formula row is its calibration, not a finding. FiNER and everything about Combee are predictions "
    "of that law (docs/design/simulation.md), no evidence about real models."
)
ACCURACY = (
    "Accuracy of the stand-in is the share of exam questions whose lesson the playbook holds; it starts at 0, the "
    "paper's starts at what the model knows already: only the directions can be compared, never the levels."
)


def report_on(setup: Setup, data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    tables = (
        _entries(data, measured),
        _worth(data, measured),
        _retention(data, measured),
        _time(data, measured),
        *((_beside(data, measured),) if setup.modes != NO_MODES else ()),
    )
    return Report(
        tables=tables,
        verdicts=tuple(_verdicts(data, measured)),
        panels=_panels(data, measured),
        remarks=(SAME, FITTED, ACCURACY) if setup.simulated else (SAME,),
    )


def _sizes(measured: Measured) -> list[int]:
    return [int(one) for one in measured.values("batch_size")]


def _told(measured: Measured, arm: str, size: int, name: str, digits: int = 1) -> str:
    """Return one number of one arm; at batch size 1 every arm is naive."""
    found = measured.where(arm, batch_size=size) or measured.where(NAIVE.name, batch_size=size)
    return found.spread(name).told(digits)


def _entries(data: Data, measured: Measured) -> Table:
    published = paper.entries(data.kind)
    rows = []
    for size in _sizes(measured):
        naive = measured.where(NAIVE.name, batch_size=size).spread("proposed")
        wanted = published.get(size)
        rows.append(
            (
                str(size),
                str(wanted) if wanted else "–",
                naive.told(0),
                f"{naive.mean / wanted - 1:+.0%}" if wanted else "–",
                *(_told(measured, arm, size, "proposed", 0) for arm in COMBEE),
                *(_told(measured, arm, size, "entries", 0) for arm in (NAIVE.name, *COMBEE)),
            )
        )
    columns = ("batch size", "paper, naive", "naive", "off", *COMBEE)
    kept = tuple(f"{arm}: in the playbook" for arm in (NAIVE.name, *COMBEE))
    return Table(
        title=f"{data.name}: entries",
        columns=(*columns, *kept),
        rows=tuple(rows),
        note="Entries are what updates propose over the whole run, repeats included as in the paper: what the model"
        " names as known counts, too; the last three columns are what is in the playbook at the end.",
    )


def _worth(data: Data, measured: Measured) -> Table:
    published = paper.accuracy(data.kind)
    there = max(numbers["lessons_there"] for _, numbers in measured)
    rows = tuple(
        (
            str(size),
            *(_told(measured, arm, size, "lessons") for arm in (NAIVE.name, *COMBEE)),
            *(_told(measured, arm, size, "accuracy", 2) for arm in (NAIVE.name, *COMBEE)),
            f"{published[size]:.3f}" if size in published else "–",
        )
        for size in _sizes(measured)
    )
    arms = (NAIVE.name, *COMBEE)
    columns = (*(f"lessons, {arm}" for arm in arms), *(f"accuracy, {arm}" for arm in arms), "paper, naive")
    return Table(
        title=f"{data.name}: lessons of {there:.0f}, and accuracy",
        columns=("batch size", *columns),
        rows=rows,
    )


def _retention(data: Data, measured: Measured) -> Table:
    shown = (("said", "said"), ("verified", "verified"), ("in the playbook", "kept"))
    arms = (NAIVE.name, *COMBEE)
    rows = tuple(
        (str(size), *(_told(measured, arm, size, name, 2) for arm in arms for _, name in shown))
        for size in _sizes(measured)
    )
    columns = tuple(f"{arm}: {told}" for arm in arms for told, _ in shown)
    return Table(
        title=f"{data.name}: retention",
        columns=("batch size", *columns),
        rows=rows,
        note="The share of a batch's reflections that the model accounts for, that are verified in what it wrote, and"
        " that are in the playbook: the audit that every version carries. An omitted reflection may say what another"
        " says.",
    )


def _time(data: Data, measured: Measured) -> Table:
    arms = (NAIVE.name, *COMBEE)
    rows = tuple(
        (
            str(size),
            *(_told(measured, arm, size, "seconds", 0) for arm in arms),
            *(_told(measured, arm, size, "calls", 0) for arm in arms),
        )
        for size in _sizes(measured)
    )
    columns = (*(f"seconds, {arm}" for arm in arms), *(f"update calls, {arm}" for arm in arms))
    return Table(
        title=f"{data.name}: wall time of the updates",
        columns=("batch size", *columns),
        rows=rows,
        note="Update calls only, from the first reflection to the last version; `speed` runs the agents too.",
    )


def _beside(data: Data, measured: Measured) -> Table:
    arms = (NAIVE.name, *COMBEE)
    rows = tuple(
        (
            str(size),
            *(
                " / ".join(_told(measured, arm, size, number, digits) for arm in arms)
                for _, number, digits in BESIDE
            ),
        )
        for size in _sizes(measured)
    )
    return Table(
        title=f"{data.name}: what else is in the playbook ({' / '.join(arms)})",
        columns=("batch size", *(name for name, *_ in BESIDE)),
        rows=rows,
    )


def _verdicts(data: Data, measured: Measured) -> list[Verdict]:
    found = []
    if off := _off(data, measured):
        worst, mean = max(off, key=abs), fmean(map(abs, off))
        found.append(
            Verdict(
                criterion=f"{data.name}: naive follows the paper's collapse: 35 % at each size, 20 % on average",
                met=abs(worst) <= WORST_OFF and mean <= MEAN_OFF,
                told=f"worst {worst:+.0%}, mean {mean:.0%}",
            )
        )
    first, *_, last = _sizes(measured) * 2
    for arm in COMBEE if last > first == 1 else ():
        alone, batched = measured.where(NAIVE.name, batch_size=first), measured.where(arm, batch_size=last)
        kept = batched.spread("lessons").mean / alone.spread("lessons").mean
        wall = batched.spread("seconds").mean / alone.spread("seconds").mean
        lessons = f"{batched.spread('lessons').told()} of {alone.spread('lessons').told()}: {kept:.0%}"
        found += (
            Verdict(
                criterion=f"{data.name}: {arm} at {last} keeps ≥ 90 % of the lessons that batch size 1 keeps",
                met=kept >= LESSONS_KEPT,
                told=lessons,
            ),
            Verdict(
                criterion=f"{data.name}: … in ≤ 15 % of its wall time",
                met=wall <= WALL,
                told=f"{batched.spread('seconds').mean:,.0f} s of {alone.spread('seconds').mean:,.0f} s: {wall:.1%}",
            ),
        )
    return found


def _off(data: Data, measured: Measured) -> list[float]:
    published = paper.entries(data.kind)
    naive = measured.where(NAIVE.name)
    return [
        naive.where(batch_size=size).spread("proposed").mean / published[size] - 1
        for size in _sizes(measured)
        if size in published
    ]


def _panels(data: Data, measured: Measured) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            title=f"{data.name}: {title}",
            x="batch size",
            y=title,
            series=tuple(_series(measured, arm, name) for arm in (NAIVE.name, *COMBEE))
            + (_published(data) if name == "proposed" else ()),
            log_x=True,
        )
        for title, name in (
            ("entries proposed", "proposed"),
            ("lessons kept", "lessons"),
            ("retention", "kept"),
        )
    )


def _series(measured: Measured, arm: str, name: str) -> Series:
    points = (
        (size, measured.where(arm, batch_size=size) or measured.where(NAIVE.name, batch_size=size))
        for size in _sizes(measured)
    )
    return Series(name=arm, points=tuple((float(size), found.spread(name)) for size, found in points))


def _published(data: Data) -> tuple[Series, ...]:
    points = tuple((float(size), Spread(values=(count,))) for size, count in paper.entries(data.kind).items())
    return (Series(name="paper, naive", points=points, style="paper"),) if points else ()
