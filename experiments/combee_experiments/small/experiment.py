"""``small``: batches of 4 to 8 reflections, where each of the paper's two groups holds the whole batch.

With two copies and ⌊√n⌋ = 2 groups both groups read the same reflections, and a third call combines what they say.
Windows that close by time make such batches often.
"""

from collections.abc import Iterator
from dataclasses import replace

from combee.core.batching.limits import PRODUCT
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.arms.material import measure_updates
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.paired import difference
from combee_experiments.running.report import Panel, Report, Table, Verdict, series_by
from combee_experiments.running.setup import Setup

SIZES = (4, 5, 6, 8)
LOST_AT_MOST = 1.0
"""Lessons of 50: the criterion, written down before the first run."""
UNCOPIED = PRODUCT.model_copy(update={"copies": 1})
PAPER = replace(
    ADAPTIVE,
    name="paper: 2 groups of everything",
    policy=PRODUCT.model_copy(update={"small_batches": "paper"}),
)
HALVES = replace(ADAPTIVE, name="2 groups, 1 copy", policy=UNCOPIED, groups=2)
ONE_CALL = replace(ADAPTIVE, name="1 call", policy=UNCOPIED, groups=1)
ARMS = {arm.name: arm for arm in (PAPER, HALVES, ONE_CALL)}
COLUMNS = (
    "n",
    "arm",
    "lessons kept",
    "entries",
    "calls",
    "tokens read",
    "wall time, s",
    "lessons against the paper",
)


def cells(setup: Setup) -> Iterator[Cell]:
    """Three shapes at each size."""
    for data in setup.data:
        for size in SIZES:
            for arm in ARMS:
                for seed in setup.seeds:
                    yield Cell.of(arm, seed, data=data.name, batch_size=size)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from all samples in batches of one size."""
    data = setup.named(cell.text("data"))
    return measure_updates(setup, data, ARMS[cell.arm], cell.number("batch_size"), cell.seed)


def report(setup: Setup, measured: Measured) -> Report:
    """Say for each shape whether it keeps what the paper's keeps, and what it costs."""
    return Report(
        tables=tuple(_table(data.name, measured.where(data=data.name)) for data in setup.data),
        verdicts=tuple(_verdicts(measured)),
        panels=tuple(_panel(data.name, measured.where(data=data.name)) for data in setup.data),
        remarks=(
            "The first shape of a row that meets its criterion with the fewest calls is to be the default.",
            "The same criterion is to hold under every counting rule of the stand-in's law.",
        ),
    )


def _table(name: str, measured: Measured) -> Table:
    rows = tuple(
        _row(size, measured.where(arm, batch_size=size), measured.where(PAPER.name, batch_size=size))
        for size in measured.values("batch_size")
        for arm in measured.arms()
    )
    return Table(title=name, columns=COLUMNS, rows=rows)


def _row(size: object, measured: Measured, paper: Measured) -> tuple[str, ...]:
    against = difference(measured.by_seed("lessons"), paper.by_seed("lessons"))
    return (
        str(size),
        measured.arms()[0],
        measured.spread("lessons").told(),
        measured.spread("entries").told(),
        measured.spread("calls").told(0),
        measured.spread("tokens_in").told(0),
        measured.spread("seconds").told(0),
        "" if measured.arms()[0] == PAPER.name else against.told(),
    )


def _verdicts(measured: Measured) -> Iterator[Verdict]:
    for data in measured.values("data"):
        for arm in (HALVES.name, ONE_CALL.name):
            sizes = measured.where(data=data)
            differences = {
                size: difference(
                    sizes.where(arm, batch_size=size).by_seed("lessons"),
                    sizes.where(PAPER.name, batch_size=size).by_seed("lessons"),
                )
                for size in sizes.values("batch_size")
            }
            if differences:
                worst = min(differences, key=lambda size: differences[size].low)
                yield Verdict(
                    criterion=f"{data}, {arm}: the interval of the difference from the paper's includes or exceeds"
                    f" −{LOST_AT_MOST:g} lesson at every size",
                    met=all(found.high >= -LOST_AT_MOST for found in differences.values()),
                    told=f"the worst is n = {worst}: {differences[worst].told()}",
                )


def _panel(name: str, measured: Measured) -> Panel:
    return Panel(
        title=name,
        x="reflections in a batch",
        y="lessons kept",
        series=series_by(measured, "batch_size", "lessons"),
    )
