"""Outcomes of the fault suite are kept once each, whoever writes them, and summed in the table."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.faults import results


def outcome(fault: str, seed: int, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("lost", "double", "dead_lettered", "calls", "extra_calls"), 0)
    return {
        "fault": fault,
        "seed": seed,
        "acknowledged": 210,
        **counts,
        "ready_s": None,
        "recovery_s": 1.5,
        **more,
    }


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / results.TABLE_FILE).read_text("utf-8").splitlines()))


def test_an_outcome_replaces_the_one_of_the_same_fault_and_seed(tmp_path: Path) -> None:
    for lost in (3, 0):
        results.add(tmp_path, outcome("kill", 1, lost=lost))
    results.add(tmp_path, outcome("kill", 2, recovery_s=2.5))

    kept = json.loads((tmp_path / results.JSON_FILE).read_text())["outcomes"]
    assert [(run["seed"], run["lost"]) for run in kept] == [(1, 0), (2, 0)]
    [row] = rows(tmp_path)
    assert (row["fault"], row["runs"], row["acknowledged"], row["lost"]) == ("kill", "2", "420", "0")
    assert (row["ready again (s)"], row["next work (s)"]) == ("–", "2.5 (1.5–2.5)")


def test_what_differs_between_faults_stands_in_the_row_of_each(tmp_path: Path) -> None:
    results.add(tmp_path, outcome("freeze", 1, lost=1, acknowledged=200))
    results.add(tmp_path, outcome("kill", 1, extra_calls=3))

    freeze, kill = rows(tmp_path)
    assert (freeze["acknowledged"], freeze["lost"], freeze["extra calls"]) == ("200", "1", "0")
    assert (kill["acknowledged"], kill["lost"], kill["extra calls"]) == ("210", "0", "3")


def test_writers_at_the_same_time_lose_no_outcome(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: results.add(tmp_path, outcome("kill", seed)), range(40)))

    [row] = rows(tmp_path)
    assert row["runs"] == "40"
