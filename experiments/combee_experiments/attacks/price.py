"""What the postures cost honest producers: ``python -m combee_experiments.attacks.price [SEEDS]``.

A reflection is a witness only of a text that it says as a whole, so who says a lesson in other words is none.
"""

import logging
import sys
from collections.abc import Sequence
from statistics import mean

import structlog

from combee_experiments.attacks.protections import LAB, PUBLIC, TEAM
from combee_experiments.attacks.run import unattacked
from combee_experiments.running.cells import Numbers
from combee_experiments.running.report import Table, markdown
from combee_experiments.running.setup import parse_seeds
from combee_experiments.running.virtual_time import run_virtual

WORDINGS = {1: "verbatim", 5: "in five wordings"}
COLUMNS = (
    *("lessons are said", "posture", "reflections that count", "lessons shown", "entries shown", "waiting"),
    *("rounds to be shown", "the longest"),
)
SAID = {
    **{(wordings, arm): arm.partition(",")[0] for wordings in WORDINGS for arm in (LAB, TEAM, PUBLIC)},
}


def table(seeds: tuple[int, ...]) -> Table:
    """Return how many reflections count, and what agents are shown, without any attacker."""
    rows = []
    for (wordings, arm), posture in SAID.items():
        runs = [run_virtual(unattacked(seed, arm, wordings)) for seed in seeds]
        rows.append((WORDINGS[wordings], posture, *_figures(runs)))
    runs = [run_virtual(unattacked(seed, TEAM, pair=True)) for seed in seeds]
    rows.append(("verbatim, by two sources 95:5", "team", *_figures(runs)))
    return Table(title="", columns=COLUMNS, rows=tuple(rows))


def _figures(runs: Sequence[Numbers]) -> tuple[str, ...]:
    names = ("lessons", "shown", "waiting", "delay", "longest_delay")
    counted = mean(run["counted"] for run in runs)
    return f"{counted:.1%}", *(f"{mean(run[name] for run in runs):.1f}" for name in names)


def main() -> None:
    """Print the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sys.stdout.write(markdown(table(parse_seeds(sys.argv[1] if sys.argv[1:] else "1"))))


if __name__ == "__main__":
    main()
