"""What checking evidence costs honest producers: ``python -m combee_experiments.attacks.price [SEEDS]``.

A reflection is a witness only of a text that it says as a whole, so who says a lesson in other words is none.
"""

import logging
import sys
from statistics import mean

import structlog

from combee_experiments.attacks.protections import CAPPED, OFF
from combee_experiments.attacks.run import unattacked
from combee_experiments.running.report import Table, markdown
from combee_experiments.running.setup import parse_seeds
from combee_experiments.running.virtual_time import run_virtual

WORDINGS = {1: "verbatim", 5: "in five wordings"}
COLUMNS = ("lessons are said", "protection", "reflections that count", "lessons shown", "entries shown")


def table(seeds: tuple[int, ...]) -> Table:
    """Return how many reflections count, and what agents are shown, without any attacker."""
    rows = []
    for wordings, said in WORDINGS.items():
        for arm in (OFF, "several sources", CAPPED):
            runs = [run_virtual(unattacked(seed, arm, wordings)) for seed in seeds]
            counted, lessons, shown = (
                mean(run[name] for run in runs) for name in ("counted", "lessons", "shown")
            )
            rows.append((said, arm, f"{counted:.1%}", f"{lessons:.1f}", f"{shown:.1f}"))
    return Table(title="", columns=COLUMNS, rows=tuple(rows))


def main() -> None:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sys.stdout.write(
        markdown(table(parse_seeds(sys.argv[1] if sys.argv[1:] else "3"))).partition("\n\n")[2] + "\n"
    )


if __name__ == "__main__":
    main()
