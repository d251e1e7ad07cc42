"""What examples/ ship fits together: the runs teach what the held-out questions ask (a simulation)."""

import json

from combee_sim.family import desk
from combee_sim.family.insights import insight
from support.shown import ROOT

EXAMPLES = ROOT / "examples"
LINES = [json.loads(line) for line in (EXAMPLES / "runs.jsonl").read_text("utf-8").splitlines()]
QUESTIONS = [json.loads(line) for line in (EXAMPLES / "heldout.jsonl").read_text("utf-8").splitlines()]


def test_a_playbook_that_learned_the_shipped_runs_answers_the_shipped_questions() -> None:
    runs = [run for run in LINES if "trace_id" in run]
    learned = {insight(run["task"], run["answer"], run["target"], run["feedback"]) for run in runs}

    assert len(QUESTIONS) >= 8
    for question in QUESTIONS:
        rule = desk.asked(question["question"])
        assert rule is not None
        assert rule.wordings[0] in learned
        assert rule.answer == question["target"] != rule.usual  # without the lesson it is wrong
    assert not {run["task"] for run in runs} & {row["question"] for row in QUESTIONS}


def test_every_shipped_run_says_how_it_went_and_teaches_a_rule_in_the_desks_words() -> None:
    runs = [run for run in LINES if "trace_id" in run]

    assert [run for run in runs if run["success"] is not (run["answer"] == run["target"])] == []
    for run in runs:
        lesson = insight(run["task"], run["answer"], run["target"], run["feedback"])
        assert desk.rule_in(lesson) is not None, lesson
