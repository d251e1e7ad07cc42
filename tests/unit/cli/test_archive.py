"""``combee archive`` and ``combee restore`` as far as they need no broker."""

from pathlib import Path

import pytest

from support.reading import run, run_json

GOLDEN = Path(__file__).parents[2] / "golden" / "archive-v1.gz"


@pytest.mark.parametrize("arguments", [(), ("x", "--prefix")], ids=" ".join)
def test_one_playbook_or_all_has_to_be_said(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run("archive", *arguments, "--to", str(tmp_path / "a"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--prefix for all of them" in result.stderr


def test_a_file_is_looked_at_without_a_broker() -> None:
    told = run_json("restore", str(GOLDEN), "--check")
    assert told["playbooks"] == {"support/refunds": 7, "tests/gepa": 1}
    assert (told["batches_in_flight"], told["records"]["reflections"]) == (2, 64)
    assert told["partitions"]["scan.0"] == 3
    said = run("restore", str(GOLDEN), "--check").stdout
    assert "2 playbooks, 2 batches under way" in said
    assert told["sha256"] in said


def test_what_is_no_archive_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(GOLDEN.read_bytes()[:-100])
    result = run("restore", str(tmp_path / "a"), "--check")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is cut off or was altered" in result.stderr
    assert result.stderr.count("\n") == 1
