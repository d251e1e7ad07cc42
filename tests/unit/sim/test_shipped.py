"""What examples/ ship fits together: the runs teach what the held-out questions ask (a simulation)."""

import json

from combee_sim.family.conventions import read_convention
from combee_sim.family.family import read_question
from combee_sim.family.insights import insight
from support.shown import ROOT

EXAMPLES = ROOT / "examples"
LINES = [json.loads(line) for line in (EXAMPLES / "runs.jsonl").read_text("utf-8").splitlines()]
QUESTIONS = [json.loads(line) for line in (EXAMPLES / "heldout.jsonl").read_text("utf-8").splitlines()]


def test_a_playbook_that_learned_the_shipped_runs_answers_the_shipped_questions() -> None:
    lessons = [insight(run["task"], run["answer"], run.get("target")) for run in LINES if "trace_id" in run]
    learned = {rule.quantity: rule for rule in map(read_convention, lessons) if rule is not None}

    assert len(QUESTIONS) >= 8
    assert len(learned) >= 4
    for question in QUESTIONS:
        asked = read_question(question["question"])
        assert asked is not None
        assert learned[asked.quantity].answer(asked.operands) == question["target"]
        assert asked.naive() != question["target"]  # without the lesson it is wrong
    assert not {run["task"] for run in LINES if "task" in run} & {row["question"] for row in QUESTIONS}
