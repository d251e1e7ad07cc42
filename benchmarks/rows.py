"""Rows of results: medians with their spread, as a table and as JSON."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure; ``bar`` is what it should not exceed."""

    name: str
    value: float
    unit: str
    bar: float | None
    min: float
    max: float
    runs: int


def row(name: str, values: Sequence[float], unit: str, bar: float | None = None) -> Row:
    """Return the median of ``values`` with their spread."""
    return Row(
        name=name,
        value=round(median(values), 4),
        unit=unit,
        bar=bar,
        min=round(min(values), 4),
        max=round(max(values), 4),
        runs=len(values),
    )


def report(rows: Sequence[Row]) -> None:
    """Print the table and write ``results/latest.json``."""
    machine = f"{platform.machine()}, Python {platform.python_version()}, simulated model"
    table = Table("figure", "median", "min–max", "bar", "runs", title=f"Combee benchmarks ({machine})")
    for one in rows:
        bar = "" if one.bar is None else f"≤ {one.bar}"
        table.add_row(one.name, f"{one.value} {one.unit}", f"{one.min}–{one.max}", bar, str(one.runs))
    Console().print(table)
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n")
