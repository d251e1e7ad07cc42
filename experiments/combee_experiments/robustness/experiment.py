"""``robustness``: the arms under every counting rule, and under every mode in which the stand-in fails.

Two modes are also swept, under the rule in force: the shares of reflections that invent, and that contradict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from combee.adapters.ports import FatalError
from combee_experiments.arms.arms import ARMS
from combee_experiments.arms.material import measure_updates
from combee_experiments.robustness.report import ALL, NONE, SWEPT, report_on
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_sim.law.rules import IN_FORCE, RULES
from combee_sim.modes import NO_MODES, USUAL, Modes, parse_modes

SIZES = (20, 100)
CHECKER = ("false_yes", "false_no")
MODES: Mapping[str, Modes] = {
    NONE: NO_MODES,
    **{name: parse_modes([name]) for name in USUAL if name not in CHECKER},
    "checker errs": parse_modes(CHECKER),
    ALL: parse_modes(USUAL),
}
SWEEP: Mapping[str, Modes] = {name: parse_modes([name]) for name in SWEPT}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every arm and size under every rule, without a mode, with each, and with all.

    Raises
    ------
    FatalError
        If a rule or modes were asked for: this experiment goes through all of them.
    """
    if (setup.law, setup.modes) != (IN_FORCE, NO_MODES):
        raise FatalError("robustness goes through every counting rule and mode: leave out --law and --mode")
    places = [*product(RULES, MODES), *product([IN_FORCE], SWEEP)]
    for data, (law, mode), size, arm in product(setup.data, places, SIZES, ARMS.values()):
        for seed in setup.seeds:
            yield Cell.of(
                arm.name, seed, data=data.name, law=law, mode=mode, batch_size=min(size, len(data.train))
            )


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from reflections of a stand-in that counts and fails as the cell says."""
    failing = replace(setup, law=cell.text("law"), modes={**MODES, **SWEEP}[cell.text("mode")])
    data, size = setup.named(cell.text("data")), cell.number("batch_size")
    return measure_updates(failing, data, ARMS[cell.arm], size, cell.seed)


def report(setup: Setup, measured: Measured) -> Report:
    """Show lessons and what else is in the playbook, and decide the criteria."""
    return joined(report_on(data, measured.where(data=data.name)) for data in setup.data)
