"""A run's results on disk: ``result.json`` and ``tables/`` for programs, ``table.md`` and ``plot.png`` for people."""

import csv
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from combee_experiments.running.cells import Measured
from combee_experiments.running.plot import draw
from combee_experiments.running.report import Report, markdown, told
from combee_experiments.running.setup import Setup, fingerprint, summary
from combee_sim.law.rules import IN_FORCE
from combee_sim.modes import NO_MODES

CELLS, RESULT, TABLE, TABLES, PLOT = "cells.jsonl", "result.json", "table.md", "tables", "plot.png"
CRITERIA = "criteria.csv"


def environment() -> dict[str, object]:
    """Return what ran: versions, and the kind of machine; nothing that names it."""
    return {
        "combee": version("combee"),
        "code": fingerprint(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def circumstances(setup: Setup) -> str:
    """Return in one sentence what the numbers come from."""
    seeds = f"{len(setup.seeds)} seeds, mean (smallest–largest)"
    where = environment()
    ran = f"combee {where['combee']}, Python {where['python']}, {where['system']}, {where['cpus']} CPUs"
    if not setup.simulated:
        return (
            f"Model {setup.model_name}, real; wall times are real seconds. A lesson counts as kept where it is named:"
            f" what a real model says about it is not checked. {seeds}. {ran}."
        )
    return (
        f"**Simulated**: the stand-in model answers, no real model was asked. Times are virtual seconds: each model "
        f"call takes {_pace(setup)}, {setup.concurrency} at once, and nothing is slept."
        f"{_failing(setup)} {seeds}. {ran}."
    )


def _failing(setup: Setup) -> str:
    """Name what differs from the stand-in as it usually is."""
    law = f" Counting rule: {setup.law}." if setup.law != IN_FORCE else ""
    return law + (f" Modes: {', '.join(setup.modes.summary())}." if setup.modes != NO_MODES else "")


def _pace(setup: Setup) -> str:
    spread = f" (log-normal, sigma {setup.latency.sigma:g})" if setup.latency.sigma else ""
    return f"{setup.latency.median_s:g} s{spread}"


def as_json(name: str, setup: Setup, measured: Measured, report: Report) -> dict[str, Any]:
    """Return a whole result as one JSON document."""
    return {
        "experiment": name,
        **summary(setup),
        "environment": environment(),
        "verdicts": [{**asdict(verdict), "verdict": verdict.word} for verdict in report.verdicts],
        "tables": [asdict(table) for table in report.tables],
        "remarks": list(report.remarks),
        "cells": [{**cell.as_json(), "numbers": dict(numbers)} for cell, numbers in measured],
    }


def as_markdown(name: str, setup: Setup, report: Report) -> str:
    """Return a result as people read it."""
    return "\n\n".join(_parts(name, setup, report)) + "\n"


def _parts(name: str, setup: Setup, report: Report) -> Iterator[str]:
    yield f"## {name}"
    yield circumstances(setup)
    if report.verdicts:
        yield "\n".join(f"- {told(verdict)}" for verdict in report.verdicts)
    yield from map(markdown, report.tables)
    if report.remarks:
        yield "\n".join(f"- {remark}" for remark in report.remarks)


def write(
    folder: Path, name: str, setup: Setup, measured: Measured, report: Report, *, plot: bool
) -> tuple[Path, ...]:
    """Write a result and return its files."""
    folder.mkdir(parents=True, exist_ok=True)
    result, table, picture = folder / RESULT, folder / TABLE, folder / PLOT
    document = as_json(name, setup, measured, report)
    result.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    table.write_text(as_markdown(name, setup, report), encoding="utf-8")
    tables = _write_tables(folder / TABLES, report)
    if not (plot and report.panels):
        return result, table, tables
    label = "simulated" if setup.simulated else setup.model_name
    draw(report.panels, f"{name} ({label}, {len(setup.seeds)} seeds; bars: smallest to largest)", picture)
    return result, table, tables, picture


def _write_tables(folder: Path, report: Report) -> Path:
    """Write each table as ``NUMBER-TITLE.csv``, and the verdicts as ``criteria.csv``; tables of earlier runs go."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    for number, table in enumerate(report.tables, 1):
        write_csv(folder / f"{number}-{_file_name(table.title)}.csv", [table.columns, *table.rows])
    if decided := [(verdict.criterion, verdict.word, verdict.told) for verdict in report.verdicts]:
        write_csv(folder / CRITERIA, [("criterion", "verdict", "figures"), *decided])
    return folder


def _file_name(title: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def write_csv(path: Path, rows: Iterable[Iterable[str]]) -> None:
    """Write rows, the head first."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
