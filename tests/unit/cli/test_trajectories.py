"""``combee learn --from FORMAT DIR`` finds the runs in a folder, and says what it leaves out."""

import io
import json
import shutil
from pathlib import Path

import pytest
import typer
from rich.console import Console

from combee.cli.learn.trajectories import FORMATS, read_folder
from combee_schemas.trace import Trace
from support.rows import each_row

SAMPLES = Path(__file__).parents[2] / "golden" / "trajectories"


def read(folder: Path, name: str, tokens: int = 2_000) -> tuple[list[Trace], int, str]:
    """Return the runs, how many were rejected, and what was said of them."""
    said = io.StringIO()
    traces, rejected = read_folder(
        str(folder), name, "p", trace_tokens=tokens, err=Console(file=said, width=200)
    )
    return traces, rejected, said.getvalue()


@each_row(
    ("name", "count"),
    [("atif", 1), ("harbor", 2), ("terminal-bench", 2), ("appworld", 2), ("claude-code", 1), ("codex", 2)],
)
def test_every_format_s_runs_are_found_wherever_they_lie_in_the_folder(
    tmp_path: Path, name: str, count: int
) -> None:
    # Copied, as one sample is a link to another's file.
    traces, rejected, said = read(shutil.copytree(SAMPLES / name, tmp_path / name), name)

    assert (len(traces), rejected, said) == (count, 0, "")
    assert {trace.source.name for trace in traces if trace.source} == {name}
    assert len({trace.trace_id for trace in traces}) == count


def test_the_samples_are_of_every_format() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == set(FORMATS)


def test_a_trace_says_which_run_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    traces, _, _ = read(SAMPLES / "harbor", "harbor")

    assert [trace.metadata["path"] for trace in traces] == [
        "2026-10-01__10-00-00/serve-site__Ef45Gh6",
        "2026-10-01__10-00-00/sum-file__Ab12Cd3",
    ]
    assert "1 of 3 files are not runs" in capsys.readouterr().err


def test_a_run_that_lies_there_twice_is_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(SAMPLES / "claude-code", tmp_path / name)

    assert len(read(tmp_path, "claude-code")[0]) == 1


def test_a_broken_run_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder = shutil.copytree(SAMPLES / "harbor", tmp_path / "jobs")
    (broken,) = folder.glob("*/sum-file*/agent/trajectory.json")
    broken.write_text("{")
    traces, rejected, said = read(folder, "harbor")

    assert (len(traces), rejected) == (1, 1)
    assert "sum-file__Ab12Cd3/result.json: agent/trajectory.json: not JSON" in said


@pytest.mark.parametrize("agent", ["a text", [1]])
def test_a_run_of_another_shape_is_named_and_the_others_are_read(tmp_path: Path, agent: object) -> None:
    folder = shutil.copytree(SAMPLES / "harbor", tmp_path / "jobs")
    (odd,) = folder.glob("*/sum-file*/agent/trajectory.json")
    odd.write_text(json.dumps(json.loads(odd.read_text()) | {"agent": agent}))
    traces, rejected, said = read(folder, "harbor")

    assert (len(traces), rejected) == (1, 1)
    assert "sum-file__Ab12Cd3/result.json: not a run of harbor" in said


@pytest.mark.parametrize(
    ("pattern", "place"),
    [("*/sum-file*/result.json", "result.json"), ("*/sum-file*/agent/trajectory.json", "agent/")],
)
def test_a_link_out_of_the_folder_is_named_and_not_read(tmp_path: Path, pattern: str, place: str) -> None:
    folder = shutil.copytree(SAMPLES / "harbor", tmp_path / "jobs")
    (file,) = folder.glob(pattern)
    file.symlink_to(file.rename(tmp_path / "elsewhere.json"))
    traces, rejected, said = read(folder, "harbor")

    assert (len(traces), rejected) == (1, 1)
    assert place in said
    assert "is a link out of the folder" in said


def test_what_is_personal_is_taken_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(SAMPLES / "claude-code", tmp_path / "projects")
    (session,) = folder.glob("*/3f6f*.jsonl")
    text = session.read_text("utf-8").replace("Fix them.", "Fix them for ann@example.com.")
    session.write_text(text, encoding="utf-8")
    (trace,), _, _ = read(folder, "claude-code")

    assert trace.task.endswith("Fix them for [email].")
    assert "example.com" not in trace.trajectory
    assert "redacted before sending: 2 email" in capsys.readouterr().err


@pytest.mark.parametrize(("folder", "name"), [(SAMPLES / "codex", "cursor"), (Path(__file__), "codex")])
def test_an_unknown_format_or_no_folder_is_a_usage_error(folder: Path, name: str) -> None:
    with pytest.raises(typer.Exit) as refused:
        read(folder, name)

    assert refused.value.exit_code == 2
