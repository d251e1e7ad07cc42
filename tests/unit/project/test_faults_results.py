"""Outcomes of the fault suite are kept once each, whoever writes them, and summed in the table."""

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


def test_an_outcome_replaces_the_one_of_the_same_fault_and_seed(tmp_path: Path) -> None:
    for lost in (3, 0):
        results.add(tmp_path, outcome("kill", 1, lost=lost))
    results.add(tmp_path, outcome("kill", 2, recovery_s=2.5))

    found = json.loads((tmp_path / results.JSON_FILE).read_text())["outcomes"]
    assert [(one["seed"], one["lost"]) for one in found] == [(1, 0), (2, 0)]
    page = (tmp_path / results.TABLE_FILE).read_text()
    assert "| kill | 420 | 0 | 0 | 0 | – | 2.5 (1.5–2.5) |" in page
    assert "In every row: runs 2, lost 0, double 0." in page


def test_what_differs_between_faults_has_a_column(tmp_path: Path) -> None:
    results.add(tmp_path, outcome("freeze", 1, lost=1, acknowledged=200))
    results.add(tmp_path, outcome("kill", 1))

    page = (tmp_path / results.TABLE_FILE).read_text()
    assert "In every row: runs 1, double 0." in page
    assert "| freeze | 200 | 1 |" in page


def test_what_most_faults_have_is_said_once(tmp_path: Path) -> None:
    for fault, extra in (("freeze", 0), ("kill", 3), ("storm", 0)):
        results.add(tmp_path, outcome(fault, 1, extra_calls=extra))

    page = (tmp_path / results.TABLE_FILE).read_text()
    assert "Where a cell is empty: acknowledged 210, dead letters 0, extra calls 0." in page
    assert "| kill |  |  | 0 | 3 |" in page
    assert "| storm |  |  | 0 |  |" in page


def test_writers_at_the_same_time_lose_no_outcome(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: results.add(tmp_path, outcome("kill", seed)), range(40)))

    assert "In every row: runs 40," in (tmp_path / results.TABLE_FILE).read_text()
