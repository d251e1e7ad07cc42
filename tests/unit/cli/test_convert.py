"""``combee playbook convert`` needs no broker and says what is wrong, and where."""

import json
from pathlib import Path

from support.reading import run, run_json
from support.rows import each_row

ACE = "## A\n[a-00001] helpful=1 harmful=0 :: one\n\n## B\n[b-00002] helpful=0 harmful=2 :: zwei ✓\n"


def test_ace_survives_the_way_through_every_format(tmp_path: Path) -> None:
    source = tmp_path / "notes v2.txt"
    source.write_text(ACE, "utf-8")
    for form in ("json", "md", "ace"):
        between, back = tmp_path / f"p.{form}", tmp_path / "back.txt"
        assert run("playbook", "convert", str(source), "--to", form, "--out", str(between)).exit_code == 0
        assert run("playbook", "convert", str(between), "--to", "ace", "--out", str(back)).exit_code == 0
        assert back.read_bytes() == ACE.encode()


def test_standard_input_is_read_and_standard_output_written() -> None:
    result = run("playbook", "convert", "-", "--to", "md", "--name", "a/b", stdin=ACE)
    assert result.exit_code == 0
    assert result.stdout.startswith("# a/b (version 0)\n\n## A\n\n- `a-00001` (+1 -0) one\n")
    assert result.stderr == ""


def test_json_says_what_was_converted(tmp_path: Path) -> None:
    source = tmp_path / "x.txt"
    source.write_text(ACE, "utf-8")
    said = run_json("playbook", "convert", str(source), "--to", "ace")
    assert said == {"name": "x", "version": 0, "format": "ace", "sections": 2, "entries": 2, "text": ACE}
    out = tmp_path / "x.json"
    said = run_json("playbook", "convert", str(source), "--to", "json", "--out", str(out))
    assert said["out"] == str(out)
    assert len(json.loads(out.read_text("utf-8"))["entries"]) == 2


@each_row(
    ("raw", "words"),
    [
        (b"hello\n", "standard input: line 1: expected"),
        (b"## A\n[x] \xff\n", "standard input: line 2: not UTF-8"),
        (b'{"entries": 3}', "standard input: entries"),
        (b'{"entries": [', "standard input: Invalid JSON"),
        (b"## A\n[x] one\n[x] two\n", "line 3: the id 'x' is taken by line 2"),
    ],
)
def test_bad_input_exits_1_with_file_and_line(raw: bytes, words: str) -> None:
    result = run("playbook", "convert", "-", "--to", "json", stdin=raw)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("combee: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_cannot_be_read_or_written_exits_1(tmp_path: Path) -> None:
    missing = run("playbook", "convert", str(tmp_path / "no.txt"), "--to", "ace")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    out = run("playbook", "convert", "-", "--to", "ace", "--out", str(tmp_path / "no" / "x"), stdin=ACE)
    assert out.exit_code == 1
    assert "cannot write" in out.stderr


def test_nothing_in_is_an_empty_playbook_out() -> None:
    assert json.loads(run("playbook", "convert", "-", "--to", "json", stdin="").stdout)["entries"] == []
