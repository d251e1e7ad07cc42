"""What the stand-in knows beside its prompts: the row behind a question, which no prompt of the product holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from combee.core.formats.intake import Sample, read_line
from combee.core.methods import ace, gepa
from combee.core.methods.method import Method
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_sim.family.insights import needed
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge, Row, read_knowledge
from combee_sim.inprocess import as_request
from combee_sim.law.samples import reflections_on, task_traces
from combee_sim.roles.respond import respond

CONTEXT = (
    "Use formula Operating Margin to answer the question. Answer with a numerical answer with 2 decimal places."
    " Formula: Operating Margin = (Operating Income / Revenue) × 100, Explanation: Revenue: sales."
    ' Question: "{}". Answer:'
)
LESSON = (
    "Operating Margin: compute it with Operating Margin = (Operating Income / Revenue) × 100 and give a bare"
    " percentage number, not a fraction, to 2 decimals."
)
TAGS = "Options: Revenues,Depreciation. What is best tag for entity 1?\nWhat is best tag for entity 2?\nOutput tags:"
REVENUES, DEPRECIATION = needed(TAGS, "Revenues,Depreciation")


def row(context: str, target: str) -> Row:
    sample = read_line(json.dumps({"context": context, "target": target}), "p")
    assert isinstance(sample, Sample)
    return Row(question=sample.question, statement=context, target=target)


MARGIN = row(CONTEXT.format("Income 5, revenue 10: what is left of a dollar?"), "50.0")
TAGGED = row(TAGS, "Revenues,Depreciation")
KNOWN = Knowledge(rows=(MARGIN, TAGGED))


def say(prompt: Prompt, knowledge: Knowledge = KNOWN) -> dict[str, Any]:
    return dict(respond(as_request(prompt), 0, knowledge).reply)


def playbook(*contents: str) -> Playbook:
    entries = tuple(
        Entry(id=f"calc-{n:05d}", section="OTHERS", content=text) for n, text in enumerate(contents, 1)
    )
    return empty("p").model_copy(update={"entries": entries})


# ---- the agent


@pytest.mark.parametrize("method", [ace, gepa], ids=["ace", "gepa"])
def test_an_agent_is_right_if_and_only_if_the_lesson_of_the_hidden_formula_is_before_it(
    method: Method,
) -> None:
    other, wrong = LESSON.replace("Operating", "Net"), LESSON.replace("× 100", "× 10")
    known = say(method.answer_prompt(playbook(other, LESSON), MARGIN.question))
    assert known["final_answer"] == "50.0"
    for contents in ((), (other,), (wrong,)):
        assert say(method.answer_prompt(playbook(*contents), MARGIN.question))["final_answer"] == "unknown"


def test_the_agent_names_the_entry_that_it_used() -> None:
    assert say(ace.answer_prompt(playbook("Lock the gate.", LESSON), MARGIN.question))["bullet_ids"] == [
        "calc-00002"
    ]


def test_an_agent_gives_the_tags_whose_lessons_it_has_and_learns_none_from_the_question() -> None:
    assert say(ace.answer_prompt(playbook(), TAGS))["final_answer"] == "unknown,unknown"
    assert say(ace.answer_prompt(playbook(DEPRECIATION), TAGS))["final_answer"] == "unknown,Depreciation"
    both = say(ace.answer_prompt(playbook(DEPRECIATION, REVENUES), TAGS))
    assert both["final_answer"] == "Revenues,Depreciation"
    assert both["bullet_ids"] == ["calc-00002", "calc-00001"]


def test_without_the_data_an_agent_does_not_know_the_task() -> None:
    prompt = ace.answer_prompt(playbook(LESSON), MARGIN.question)
    assert say(prompt, NOTHING_KNOWN)["final_answer"] == "unknown"
    assert say(ace.answer_prompt(playbook(LESSON), "What is 2 + 2?"))["final_answer"] == "unknown"


# ---- the reflector


def test_the_reflector_states_the_lesson_of_the_hidden_formula() -> None:
    (made,) = reflections_on(task_traces([(MARGIN.question, "50.0")]), knowledge=KNOWN)
    assert made.key_insight == LESSON


def test_without_the_data_its_lesson_is_the_case() -> None:
    (made,) = reflections_on(task_traces([(MARGIN.question, "50.0")]))
    assert made.key_insight.startswith("Asked “Income 5")


def test_a_record_of_gepa_teaches_the_hidden_formula() -> None:
    side_info = {"Inputs": MARGIN.question, "Generated Outputs": "3", "Feedback": "The right answer is 50.0."}
    record = Reflection(reflection_id="r", playbook="p", side_info=side_info)
    assert LESSON in say(gepa.aggregate_prompt(empty("p"), [record]))["text"]
    assert LESSON not in say(gepa.aggregate_prompt(empty("p"), [record]), NOTHING_KNOWN)["text"]


def test_no_prompt_holds_what_the_data_say() -> None:
    (trace,) = task_traces([(MARGIN.question, "50.0")])
    for prompt in (ace.answer_prompt(playbook(), MARGIN.question), ace.reflect_prompt(trace, ())):
        assert "Operating" not in prompt.system + prompt.user
        assert "Income 5" in prompt.user


# ---- the file


def test_a_question_is_known_however_it_is_spaced_and_the_first_of_two_rows_counts() -> None:
    twice = Knowledge(rows=(MARGIN,)) + Knowledge(rows=(row(MARGIN.statement, "1.0"),))
    found = twice.behind(f"\n {MARGIN.question.replace(' ', '  ')}")
    assert found == MARGIN
    assert twice.behind("") is None


def test_a_file_is_read_as_learn_reads_it_and_other_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    lines = [
        json.dumps({"context": MARGIN.statement, "target": MARGIN.target}),
        "",
        "{",
        "[" * 20_000,
        '{"key_insight": "x"}',
        '{"context": "\\ud800", "target": "1"}',
        '{"question": "Alone?", "target": "yes"}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_knowledge(path).rows == (MARGIN, Row(question="Alone?", statement="Alone?", target="yes"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.jsonl"):
        read_knowledge(tmp_path / "absent.jsonl")
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bad\.jsonl"):
        read_knowledge(tmp_path / "bad.jsonl")


@pytest.mark.shared
@pytest.mark.parametrize(("name", "count"), [("formula_train", 500), ("finer_train", 350)])
def test_every_real_question_is_answered_with_its_lessons_and_none_without(
    shared: Path, name: str, count: int
) -> None:
    known = read_knowledge(shared / "data" / f"{name}.jsonl")
    assert len(known.rows) == count
    for one in known.rows[::7]:
        lessons = needed(one.statement, one.target)
        told = say(ace.answer_prompt(playbook(*lessons), one.question), known)["final_answer"]
        untold = say(ace.answer_prompt(playbook("Lock the gate."), one.question), known)["final_answer"]
        assert (told, set(untold.split(","))) == (one.target, {"unknown"})
