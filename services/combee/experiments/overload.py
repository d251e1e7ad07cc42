"""``overload``: naive batch sizes against Combee at the same sizes, on the same reflections."""

from collections.abc import Iterator

from combee.core.shuffle import COPIES_FROM
from combee.experiments import paper
from combee.experiments.arms import ADAPTIVE, ARMS, NAIVE, PLAIN
from combee.experiments.cells import Cell, Measured, Numbers
from combee.experiments.data import Data
from combee.experiments.measuring import measure_updates
from combee.experiments.overload_report import report_on
from combee.experiments.report import Report, joined
from combee.experiments.setup import Setup

SIZES = (1, 5, 10, 20, 50, 100)


def sizes(data: Data) -> tuple[int, ...]:
    """Return the paper's batch sizes for these data, as far as there are samples."""
    return tuple(size for size in paper.entries(data.kind) or SIZES if size <= len(data.train))


def cells(setup: Setup) -> Iterator[Cell]:
    """Every arm at every size; below four reflections Combee makes naive's one call, so that is not repeated."""
    for data in setup.data:
        for size in sizes(data):
            for arm in (NAIVE, PLAIN, ADAPTIVE) if size >= COPIES_FROM else (NAIVE,):
                for seed in setup.seeds:
                    yield Cell.of(arm.name, seed, data=data.name, batch_size=size)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from all reflections in batches of this size."""
    data, size = setup.named(cell.text("data")), cell.number("batch_size")
    return measure_updates(setup, data, ARMS[cell.arm], size, cell.seed)


def report(setup: Setup, measured: Measured) -> Report:
    """Compare with the paper's rows and decide the criteria."""
    return joined(report_on(setup, data, measured.where(data=data.name)) for data in setup.data)
