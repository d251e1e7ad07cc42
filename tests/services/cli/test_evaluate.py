"""``combee evaluate`` on a log that services have written."""

import json
from pathlib import Path

import pytest

from combee.cli.playbook.bisect import Culprit, lines
from combee.core.evaluation.intervals import share
from combee.core.evaluation.scoring import Points
from combee.core.playbook.comparison import compare
from combee.core.playbook.versions import empty
from combee.log.evaluation.bisecting import Bisected
from combee.log.evaluation.evaluator import Evaluated
from combee_schemas import topics
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME
from support.reading import learned_from, run, run_json

FUNCTION = "support.evaluation:counted"
"""A playbook's score is its number of lines, over 100."""


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return learned_from(monkeypatch)


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    path = tmp_path / "dev.jsonl"
    samples = [{"context": "", "question": f"What is {n} + {n}?", "target": str(2 * n)} for n in range(30)]
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return path


def test_a_version_is_scored_and_compared_with_another(
    learned: Deployment, exam: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_EVAL_FUNCTION", FUNCTION)
    found = run_json("evaluate", NAME, "--against", "1", "--questions", str(exam))
    assert (found["name"], found["version"], found["against"]["version"]) == (NAME, 2, 1)
    assert (found["questions"], found["known"], found["model_calls"]) == (30, 0, 0)
    assert found["score_low"] < found["score"] < found["score_high"]
    assert found["difference"] == pytest.approx(found["score"] - found["against"]["score"])
    assert found["verdict"] in {"better", "no difference shown"}
    again = run("evaluate", NAME, "2", "--against", "1", "--questions", str(exam))
    assert again.exit_code == 0
    assert "0 answered now, 30 known" in again.stdout
    assert "version 2 − version 1" in again.stdout
    assert len(ledger.records(learned.log, topics.EVALUATIONS)) == 60


@pytest.mark.usefixtures("learned")
def test_a_stand_in_says_that_its_answers_are_simulated(exam: Path) -> None:
    told = run("evaluate", NAME, "--questions", str(exam), "--simulated")
    assert told.exit_code == 0
    assert "the answers are simulated" in told.stderr
    assert "of 30 questions right" in told.stdout


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (None, (), "give --questions FILE, or set COMBEE_EVAL_QUESTIONS"),
        ("", ("--simulated",), "is empty: it has no questions"),
        ('{"key_insight": "x"}\nno json\n', ("--simulated",), "2 lines are not questions"),
        (
            '{"question": "a?", "target": "(b"}\n',
            ("--simulated", "--scorer", "regex"),
            "not a regular expression",
        ),
        ('{"question": "a?", "target": "b"}\n', (), "no model is configured"),
        ('{"question": "a?", "target": "b"}\n', ("--scorer", "guess"), "COMBEE_EVAL_SCORER"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_remedy(
    content: str | None, options: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "dev.jsonl"
    if content is not None:
        file.write_text(content)
        options = ("--questions", str(file), *options)
    told = run("evaluate", NAME, *options)
    assert told.exit_code == 2
    assert says in told.stderr


@pytest.mark.usefixtures("learned")
def test_a_cap_ends_with_1_and_says_what_was_not_asked(exam: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_EVAL_DAILY_TOKENS", "1")
    told = run("evaluate", NAME, "--questions", str(exam), "--simulated")
    assert told.exit_code == 1
    assert "questions were not asked: the cap of evaluations is reached" in told.stderr


def test_bisect_names_the_version_its_batch_and_its_reflections(
    learned: Deployment, exam: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_EVAL_FUNCTION", "support.evaluation:shorter_is_better")
    found = run_json("playbook", "bisect", NAME, "--questions", str(exam))
    assert (found["version"], found["origin"], found["batch"]) == (2, "batch", 2)
    assert found["reflections"] == [f"r-{n}" for n in range(10, 20)]
    assert len(found["diff"]["added"]) == 10
    told = run("playbook", "bisect", NAME, "--questions", str(exam))
    assert f"{NAME} fell with version 2 (batch 2)" in told.stdout
    assert len(ledger.records(learned.log, topics.EVALUATIONS)) == 60


def test_bisect_shows_who_gave_a_command_without_what_steers_a_terminal() -> None:
    points = {f"q{n}": Points(right=float(n % 2)) for n in range(10)}
    worth = {n: Evaluated(playbook=NAME, version=n, points=points) for n in (1, 2)}
    bisected = Bisected(ends=share(points), evaluated=worth, good=1, bad=2)
    before = empty(NAME)
    made = before.model_copy(update={"version": 2, "origin": "edit", "issued_by": "user:eve\x1b[2J"})
    culprit = Culprit(
        bisected=bisected, playbook=made, comparison=compare(before, made), reflections=("r\x1b]0;x\x07",)
    )
    shown = "\n".join(map(str, lines(NAME, culprit)))
    assert "edit by user:eve" in shown
    assert "\x1b" not in shown


@pytest.mark.usefixtures("learned")
def test_bisect_says_where_there_is_nothing_to_find(exam: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_EVAL_FUNCTION", FUNCTION)
    told = run("playbook", "bisect", NAME, "--questions", str(exam))
    assert told.exit_code == 1
    assert "is not worse than version 1" in told.stdout
    turned = run("playbook", "bisect", NAME, "--good", "2", "--bad", "1", "--questions", str(exam))
    assert turned.exit_code == 1
    assert "name an older one" in turned.stderr
