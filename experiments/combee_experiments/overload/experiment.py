"""``overload``: naive batch sizes against Combee at the same sizes, on the same reflections."""

from collections.abc import Iterator

from combee.core.batching.shuffle import COPIES_FROM
from combee_experiments.arms.arms import ADAPTIVE, ARMS, NAIVE, PLAIN
from combee_experiments.arms.material import measure_updates
from combee_experiments.data import paper
from combee_experiments.data.samples import Data
from combee_experiments.overload.report import report_on
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup

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
