"""``combee archive`` and ``combee restore`` as far as they need no broker."""

import gzip
from pathlib import Path

import pytest

from combee_schemas.archive import HEADER, MAGIC, ArchiveHeader, frame
from combee_schemas.codec import encode
from support.archives import whole_archive
from support.reading import run, run_json


@pytest.fixture(name="golden")
def path_of_an_archive(tmp_path: Path) -> Path:
    (path := tmp_path / "golden").write_bytes(whole_archive())
    return path


@pytest.mark.parametrize("arguments", [(), ("x", "--prefix")], ids=" ".join)
def test_one_playbook_or_all_has_to_be_said(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run("archive", *arguments, "--to", str(tmp_path / "a"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--prefix for all of them" in result.stderr


def test_a_file_is_looked_at_without_a_broker(golden: Path) -> None:
    told = run_json("restore", str(golden), "--check")
    assert told["playbooks"] == {"support/refunds": 7, "tests/gepa": 1}
    assert (told["batches_in_flight"], told["records"]["reflections"]) == (2, 64)
    assert told["partitions"]["scan.0"] == 3
    said = run("restore", str(golden), "--check").stdout
    assert "2 playbooks, 2 batches under way" in said
    assert told["sha256"] in said


def test_what_is_no_archive_is_told_in_a_line(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(golden.read_bytes()[:-100])
    result = run("restore", str(tmp_path / "a"), "--check")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is cut off or was altered" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_file_says_of_its_writer_does_not_steer_a_terminal(tmp_path: Path) -> None:
    header = ArchiveHeader(
        prefix="t", topics=(), messages={"batch": 99}, cut_at_ms=0, written_by="9\x1b]0;x\x07"
    )
    with gzip.open(tmp_path / "a", "wb") as file:
        file.write(MAGIC + frame(HEADER, encode(header)))
    told = run("restore", str(tmp_path / "a"), "--check").stderr
    assert "was written by Combee 9" in told
    assert "\x1b" not in told
