import sys
from pathlib import Path

import pytest

from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize, Observation
from support.deployment import Deployment
from support.reading import put, run, run_json, use_log

NAME = "support/refunds"
DELAYS = ((5, 3.0), (10, 3.9), (20, 5.2))
STANDS = BatchSize(
    playbook=NAME,
    batch_size=66,
    policy="plateau",
    phase="settled",
    reason="beyond 66 larger batches save little",
    numbers={"alpha": 0.6},
    candidates=(5, 10, 20),
    observations=tuple(Observation(batch_size=b, delay_s=d) for b, d in DELAYS),
)


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment()
    use_log(monkeypatch, made.log)
    put(made, topics.BATCH_SIZES, NAME, encode(STANDS.model_copy(update={"batch_size": 5})))
    put(made, topics.BATCH_SIZES, NAME, encode(STANDS))
    return made


@pytest.mark.usefixtures("deployment")
def test_what_stands_is_shown_with_its_reason_its_delays_and_a_plot() -> None:
    shown = run("controller", NAME).stdout
    assert "batches of 66 (plateau, settled)" in shown
    assert STANDS.reason in shown
    assert "a batch of 10 took 3.90 s; by the fit" in shown
    assert "chosen" in shown
    assert "┤" in shown


@pytest.mark.usefixtures("deployment")
def test_programs_get_the_same() -> None:
    found = run_json("controller", NAME)
    assert (found["batch_size"], found["policy"], found["numbers"]) == (66, "plateau", {"alpha": 0.6})
    assert [(one["batch_size"], one["delay_s"]) for one in found["observations"]] == list(DELAYS)
    assert found["fit"]["alpha"] == pytest.approx(0.6, abs=0.05)


@pytest.mark.usefixtures("deployment")
def test_the_picture_is_a_png(tmp_path: Path) -> None:
    assert run("controller", NAME, "--png", str(tmp_path / "c.png")).exit_code == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("deployment")
def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    result = run("controller", NAME, "--png", str(tmp_path / "no" / "c.png"))
    assert result.exit_code == 1
    assert "cannot be written: No such file" in result.stderr


@pytest.mark.usefixtures("deployment")
def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    result = run("controller", NAME)
    assert result.exit_code == 1
    assert "[experiments]'" in result.stderr


@pytest.mark.usefixtures("deployment")
def test_an_unknown_playbook_names_those_there_are() -> None:
    result = run("controller", "nobody")
    assert result.exit_code == 1
    assert "there is no playbook nobody; there are: none yet" in result.stderr
