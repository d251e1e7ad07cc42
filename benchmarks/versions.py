"""``python -m benchmarks.versions NAME``: keep the speed figures of today's published table as those of a version.

They become the column NAME of docs/results/tables/performance-by-version.csv; the columns of other versions stay.
"""

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import ROLES

TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
SOURCE, TARGET = TABLES / "performance.csv", TABLES / "performance-by-version.csv"
FIGURE = "figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure that is kept: a row of a benchmark, or the sum of the rows of all services."""

    benchmark: str
    name: str
    unit: str
    of_services: bool = False

    def rows(self) -> list[str]:
        """Return the names of its rows."""
        return [f"{self.name}: {role}" for role in ROLES] if self.of_services else [self.name]


FIGURES = (
    *(
        Figure(benchmark="overhead", name=f"overhead, {case}", unit="× ideal")
        for case in ("n = 40, L = 1 s", "n = 144, L = 0.5 s", "n = 400, L = 0.5 s")
    ),
    Figure(benchmark="throughput", name="through shuffle", unit="reflections/s"),
    Figure(benchmark="throughput", name="from publish to playbook, instant model", unit="reflections/s"),
    Figure(benchmark="throughput", name="processor time per reflection", unit="ms", of_services=True),
    *(
        Figure(benchmark="throughput", name=f"processor time per reflection: {role}", unit="ms")
        for role in ROLES
    ),
    Figure(benchmark="processor", name="the same with full playbooks, by that with empty ones", unit="×"),
    Figure(benchmark="scaling", name="1 → 4 scan workers", unit="× faster"),
    Figure(benchmark="gateway", name="gateway, nobody looks: processor time per reflection", unit="ms"),
    Figure(benchmark="gateway", name="gateway, nobody looks: memory (RSS)", unit="MB"),
    Figure(benchmark="many", name="start of all services, 10,000 playbooks", unit="s"),
    Figure(benchmark="restart", name="restart-to-ready, 1000 versions", unit="s"),
    Figure(benchmark="idle", name="processor time per idle second", unit="ms", of_services=True),
    Figure(benchmark="startup", name="combee --help", unit="ms"),
    Figure(benchmark="up", name="combee status", unit="s"),
    Figure(benchmark="up", name="completion of a playbook's name", unit="s"),
    Figure(benchmark="up", name="memory of combee up (PSS): all processes with the broker", unit="MB"),
)


def kept(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the figures that a table of results has, with their units; none for those it lacks."""
    medians = {(row["benchmark"], row["figure"], row["median"].partition(" ")[2]): row for row in rows}
    found = {}
    for figure in FIGURES:
        parts = [medians.get((figure.benchmark, name, figure.unit)) for name in figure.rows()]
        numbers = [float(part["median"].split(" ")[0].replace(",", "")) for part in parts if part]
        found[f"{figure.name}, {figure.unit}"] = f"{sum(numbers):.4g}" if len(numbers) == len(parts) else ""
    return found


def with_column(
    table: Sequence[Mapping[str, str]], version: str, figures: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return a table with a version's column, new or replaced; a figure that nobody keeps any more keeps its past."""
    before = {row[FIGURE]: row for row in table}
    versions = [name for name in (table[0] if table else {}) if name not in {FIGURE, version}]
    return [
        {
            FIGURE: name,
            **{earlier: before.get(name, {}).get(earlier, "") for earlier in versions},
            version: figures.get(name, ""),
        }
        for name in dict.fromkeys((*figures, *before))
    ]


def main() -> None:
    """Add the column."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("version", metavar="NAME", help="such as 0.1, or now")
    version = parser.parse_args().version
    table = with_column(_read(TARGET) if TARGET.exists() else [], version, kept(_read(SOURCE)))
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
