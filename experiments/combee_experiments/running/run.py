"""Running an experiment: measure every cell that has not been measured yet, then report on all of them.

An experiment is a module with the three functions of ``Experiment``; its name and one sentence about it stand
in ``catalogue.py``. ``measure`` does the work of one cell and starts its own event loop for it, with
``setup.run``: virtual time on the stand-in, real time on a real model.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from combee_experiments.running.cells import Cell, Measured, Numbers, in_order
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.running.store import Store


class Experiment(Protocol):
    """What the module of an experiment has."""

    def cells(self, setup: Setup, /) -> Iterable[Cell]:
        """Return everything there is to measure, in the order of the tables; cheap, and asks no model."""

    def measure(self, setup: Setup, cell: Cell, /) -> Numbers:
        """Measure one cell; the same cell gives the same numbers on the stand-in."""

    def report(self, setup: Setup, measured: Measured, /) -> Report:
        """Report on what was measured: pure; every planned cell is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is."""

    done: int
    total: int
    next: str
    """The cell that is measured now; empty at the end."""


def run(
    experiment: Experiment,
    setup: Setup,
    store: Store,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[Measured, Report]:
    """Measure what the store does not hold yet, one cell after the other, and report.

    Whatever ends it early leaves the finished cells in the store.
    """
    planned = tuple(experiment.cells(setup))
    known = {cell: numbers for cell in planned if (numbers := store.find(setup.identity(cell))) is not None}
    for cell in _missing(planned, known):
        on_progress(Progress(done=len(known), total=len(planned), next=str(cell)))
        known[cell] = experiment.measure(setup, cell)
        store.add(setup.identity(cell), known[cell])
    on_progress(Progress(done=len(known), total=len(planned), next=""))
    measured = in_order(planned, known)
    return measured, experiment.report(setup, measured)


def _missing(planned: Sequence[Cell], known: dict[Cell, Numbers]) -> list[Cell]:
    return [cell for cell in planned if cell not in known]
