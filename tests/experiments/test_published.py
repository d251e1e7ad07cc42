"""Published tables: rows of the CSV files beside the pages are, to the letter, what is measured today."""

import csv
from pathlib import Path

import pytest
from benchmarks.scale_out import costs, tables

from combee_experiments.copies import experiment as copies
from combee_experiments.data.samples import load
from combee_experiments.running.cells import Measured
from combee_experiments.running.setup import Setup

TABLES = Path(__file__).parents[2] / "docs" / "results" / "experiments" / "tables"
SEEDS = tuple(range(5))
MOST_PER_S = 10_000
"""Runs of the scale model that take less than a second."""


def published(name: str, *first: str) -> list[list[str]]:
    """Return the rows of a table that begin like this."""
    with (TABLES / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.reader(file) if row[: len(first)] == list(first)]


@pytest.mark.shared
def test_copies_of_a_batch_of_twelve(shared: Path) -> None:
    data = load(shared / "data" / "formula_train.jsonl")
    setup = Setup(data=(data,), seeds=SEEDS)
    cells = {cell: copies.measure(setup, cell) for cell in copies.cells(setup) if cell.number("n") == 12}
    assert published("copies.csv", "12") == list(map(list, copies._rows(Measured(cells))))


def test_scale_out_follows_from_the_tables_of_the_benchmarks() -> None:
    """Written anew by ``python -m benchmarks.scale_out`` whenever a table of the benchmarks is."""
    found = costs.measured()

    def written(name: str) -> list[list[str]]:
        with (costs.TABLES / f"scale-out-{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    for name, lines in {
        "inputs": tables.inputs(found),
        "needs": tables.needs(found),
        "limits": tables.limits_table(found),
        "validation": tables.validation(found),
    }.items():
        assert written(name) == [list(line) for line in lines], name
    rows = written("simulated")
    assert rows[0] == list(tables.SIMULATED_HEAD)
    planned = list(tables.scenarios(found))
    assert len(rows) == 1 + len(planned)
    for row, scenario in zip(rows[1:], planned, strict=True):
        if scenario.per_s < MOST_PER_S:
            assert row == list(tables.simulated(found, scenario))
