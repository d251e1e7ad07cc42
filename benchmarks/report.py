"""Results as JSON and as CSV (docs/results/tables/performance.csv); a benchmark replaces only its own rows."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

FOLDER = Path(__file__).parent / "results"
LATEST = FOLDER / "latest.json"
TABLE = FOLDER / "latest.csv"
HEAD = ("figure", "median", "min–max", "runs", "bar", "verdict")
MACHINE = ("taken", "load", "cpu", "memory", "system", "python", "model")
Results = dict[str, dict[str, Any]]


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as a table shows it."""
    bar = "" if row.bar is None else f"{'≥' if row.at_least else '≤'} {row.bar:g}"
    verdict = {None: "", True: "met", False: "missed"}[row.met]
    return (
        row.name,
        f"{row.value:,g} {row.unit}".rstrip(),
        f"{row.min:,g}–{row.max:,g}",
        str(row.runs),
        bar,
        verdict,
    )


def show(console: Console, name: str, rows: Sequence[Row]) -> None:
    """Print one benchmark's rows."""
    table = Table(*HEAD, title=f"{name} (simulated model)")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)


def write(name: str, rows: Sequence[Row], machine: Mapping[str, str]) -> None:
    """Put one benchmark's rows beside the others' in ``results/``."""
    results: Results = json.loads(LATEST.read_text("utf-8")) if LATEST.exists() else {}
    if not isinstance(results, dict):  # the first form was a list of rows
        results = {}
    results[name] = {
        "simulated": True,
        "machine": dict(machine),
        "rows": [{**asdict(row), "met": row.met} for row in rows],
    }
    FOLDER.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines(results))


def lines(results: Results) -> Iterator[Sequence[str]]:
    """Yield the lines of the table of all results."""
    yield "benchmark", *HEAD, *MACHINE
    for name, result in results.items():
        machine = [result["machine"].get(key, "") for key in MACHINE]
        for fields in result["rows"]:
            row = Row(**{key: value for key, value in fields.items() if key != "met"})
            yield name, *cells(row), *machine
