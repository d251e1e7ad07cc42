"""Results as JSON and as a Markdown table; a benchmark that ran again replaces only its own rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

FOLDER = Path(__file__).parent / "results"
LATEST = FOLDER / "latest.json"
TABLE = FOLDER / "latest.md"
HEAD = ("figure", "median", "min–max", "runs", "bar", "")
Results = dict[str, dict[str, Any]]


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as a table shows it."""
    bar = "" if row.bar is None else f"{'≥' if row.at_least else '≤'} {row.bar:g}"
    verdict = {None: "", True: "met", False: "missed"}[row.met]
    return (
        row.name,
        f"{row.value:,g} {row.unit}",
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
    TABLE.write_text(markdown(results), "utf-8")


def markdown(results: Results) -> str:
    """Return all results as one document: what holds for all of them first."""
    machines = [found["machine"] for found in results.values()]
    shared = {
        key: value for key, value in machines[0].items() if all(one.get(key) == value for one in machines)
    }
    head = f"Simulated; {_told(shared)}. Median (smallest–largest) of the runs; one run has no range.\n"
    return "\n".join([head, *(_section(name, found, shared) for name, found in results.items())])


def _section(name: str, found: Mapping[str, Any], shared: Mapping[str, str]) -> str:
    rows = [Row(**{key: value for key, value in one.items() if key != "met"}) for one in found["rows"]]
    told = {key: value for key, value in found["machine"].items() if key not in shared}
    lines, before = list[str](), ""
    for row in rows:
        _, median, spread, _, bar, verdict = cells(row)
        group, _, rest = row.name.partition(": ")
        figure = f"… {rest}" if rest and group == before else row.name
        value = f"{median} ({spread})" if row.runs > 1 else median.rstrip()
        judged = f", bar {bar}: {verdict if row.met else f'**{verdict}**'}" if bar else ""
        lines.append(f"- {figure}: {value}{judged}")
        before = group
    head = _told({**told, "runs": str(max(row.runs for row in rows))})
    return "\n".join([f"**{name}** ({head})", "", *lines, ""])


def _told(machine: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in machine.items())
