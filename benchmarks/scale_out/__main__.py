"""``python -m benchmarks.scale_out``: write the tables of the scale model to docs/results/tables."""

import csv

from benchmarks.scale_out.costs import TABLES, measured
from benchmarks.scale_out.tables import Lines, inputs, limits_table, needs, simulations, validation


def main() -> None:
    """Write and print them."""
    costs = measured()
    tables = {
        "inputs": inputs(costs),
        "needs": needs(costs),
        "limits": limits_table(costs),
        "simulated": simulations(costs),
        "validation": validation(costs),
    }
    for name, lines in tables.items():
        _write(f"scale-out-{name}", lines)


def _write(name: str, lines: Lines) -> None:
    with (TABLES / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    print(name, *map(" | ".join, lines), "", sep="\n")


if __name__ == "__main__":
    main()
