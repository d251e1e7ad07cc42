"""Outcomes of the fault suite as JSON and as docs/results/tables/reliability.csv."""

import csv
import fcntl
import io
import itertools
import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

JSON_FILE = "reliability.json"
TABLE_FILE = "reliability.csv"
HEAD = (
    *("fault", "runs", "acknowledged", "lost", "double", "dead letters", "model calls", "extra calls"),
    *("ready again (s)", "next work (s)"),
)


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """Return CSV: the names of the columns and a row per fault, in the order in which they come."""
    faults: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for outcome in outcomes:
        faults[outcome["fault"]].append(outcome)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEAD, *itertools.starmap(_row, faults.items())])
    return text.getvalue()


def _row(fault: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ("acknowledged", "lost", "double", "dead_lettered", "calls", "extra_calls")
    sums = [sum(run[name] for run in runs) for name in names]
    waits = [sorted(run[name] for run in runs if run[name] is not None) for name in ("ready_s", "recovery_s")]
    return [fault, *map(str, (len(runs), *sums)), *map(_spread, waits)]


def _spread(waits: Sequence[float]) -> str:
    if not waits:
        return "–"
    middle = waits[len(waits) // 2]
    return f"{middle:.1f}" if len(waits) == 1 else f"{middle:.1f} ({waits[0]:.1f}–{waits[-1]:.1f})"


def add(folder: Path, outcome: Mapping[str, Any]) -> None:
    """Add an outcome to both files; it replaces an earlier one of the same fault and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / JSON_FILE).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the suite may run in several processes
        file.seek(0)
        before = json.loads(file.read() or '{"outcomes": []}')["outcomes"]
        kept = [run for run in before if (run["fault"], run["seed"]) != (outcome["fault"], outcome["seed"])]
        outcomes = sorted([*kept, outcome], key=lambda run: (run["fault"], run["seed"]))
        machine = {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        }
        file.truncate(0)
        file.write(json.dumps({"simulated": True, "machine": machine, "outcomes": outcomes}, indent=1) + "\n")
        (folder / TABLE_FILE).write_text(table(outcomes), "utf-8")
