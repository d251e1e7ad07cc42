"""ACE's protocol: what of a row an agent is shown, and which of its answers are right."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.formats.ace_protocol import FORMULA_NAME, NUMBER_INSTRUCTION, Score, asked, score
from combee.core.formats.intake import Sample, read_line, verdict
from support.rows import each_row

ROI = (
    "Use formula Return on Investment (ROI) to answer the question. Answer with a numerical answer with 2 decimal"
    " places and with no explanations or other text. Formula: ROI = (Gain - Cost) / Cost, Explanation: Gain: what"
    " came back. Question: {} Answer:"
)
TAGS = (
    'Pick from Revenues,Depreciation.\n1. What is best tag for entity "5" in sentence: "5 % ."\nOutput tags:'
)


def sample(context: str, target: str = "0.2", **others: str) -> Sample:
    found = read_line(json.dumps({"context": context, "target": target, **others}), "p")
    assert isinstance(found, Sample)
    return found


# ---- what is asked


@each_row(
    ("shown", "question"),
    [
        ('"What came of $200,000?".', "What came of $200,000?"),
        ("What came of it?.", "What came of it?"),
        (' "Two spaces before. And a second sentence.".', "Two spaces before. And a second sentence."),
        ("“Curly marks stay”.", "“Curly marks stay”"),
        ("\n3.5 or 4.5\n.", "3.5 or 4.5"),
        ('"Said the Answer: 5. And the Question: why?".', "Said the Answer: 5. And the Question: why?"),
        ('"one mark.', '"one mark'),
        ("no dot", "no dot"),
    ],
)
def test_of_a_formula_row_only_the_question_is_asked_with_the_number_instruction(
    shown: str, question: str
) -> None:
    found = sample(ROI.format(shown))
    assert (found.kind, found.question) == ("formula", question + NUMBER_INSTRUCTION)


@each_row(
    "context",
    [
        "How much? ",
        'Question: "Is the gate locked?". Answer:',
        "Use formula ROI to answer the question. How much?",
        "Use formula ROI to answer the question. Question: how much?",
        'Use formula ROI to answer the question. Question: "". Answer:',
        "Use formula ROI to answer the question. Question: Answer:",
        "Use formula ROI to answer the question. Question: how much? Answer: 5",
        "Question: which? Use formula ROI to answer it. Answer:",
        "Use formula " + "x" * 200 + " to answer the question. Question: how much? Answer:",
        "Instruction: say it. Answer:",
        "Input: a text. Instruction: say it. Answer:",
        "Before it. Instruction: say it. Input: a text. Answer:",
        "Instruction: say it. Input: a text.",
        "Instruction: say it. Input: a text. Answer: 5",
        "Instruction: say it. Input: Answer:",
        "",
        "\0 \u2028",
    ],
)
def test_a_row_of_another_shape_is_asked_as_it_is(context: str) -> None:
    assert asked(context, "", "5") == asked("", context, "5")
    assert (sample(context).kind, sample(context).question) == ("text", context)


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_the_reading(context: str, question: str, target: str) -> None:
    assert asked(context, question, target).kind == "text"


@given(st.text(), st.text())
def test_whatever_the_question_is_nothing_before_it_is_shown(question: str, target: str) -> None:
    found = asked(ROI.format(question), "", target)
    assert ("Explanation" in found.question) == (found.kind == "text")
    assert found.kind == "formula" or not any(
        letter.isprintable() and letter not in ' ".' for letter in question
    )


@each_row("part", ["Question:", "Answer:", "Instruction:", "Input:", "use formula ", "\n", "."])
def test_a_row_of_one_part_over_and_over_is_read_at_once(part: str) -> None:
    started = time.process_time()
    asked(part * 100_000, "", part * 100_000)
    assert time.process_time() - started < 5


def test_instruction_and_input_are_split_and_the_input_comes_first() -> None:
    found = asked("Instruction: Pick tags.\nInput: Sales were 5.\nAnswer: ", "", "Revenues, LongTermDebt")
    assert (found.question, found.kind) == ("Sales were 5.\n\nPick tags.", "finer")


def test_an_instruction_whose_answer_is_no_list_of_labels_is_scored_as_text() -> None:
    for target in ("1,000", "two words", "A,,B", ""):
        assert asked("Instruction: Say it. Input: x. Answer:", "", target).kind == "text"


def test_a_row_that_asks_for_tags_is_whole_and_scored_by_label() -> None:
    assert asked(TAGS, "", "Revenues").question == TAGS
    assert asked(TAGS, "", "Revenues").kind == asked("", TAGS, "x y").kind == "finer"


def test_a_context_beside_a_question_is_material_whatever_its_shape() -> None:
    found = sample(ROI.format('"x".'), question="What is asked?")
    assert (found.kind, found.question) == ("text", ROI.format('"x".') + "\n\nWhat is asked?")


def test_a_sample_keeps_the_id_of_its_line() -> None:
    """Files that were learned before the protocol was followed are known again."""
    found = sample(ROI.format('"x".'), "1.0")
    assert found.trace_id == "t-698c65fbd347cc499061a1f5"


# ---- which answers are right


@each_row(
    ("answer", "target"),
    [
        ("5.0", "5"),
        ("5", "5.0"),
        (" 0.20 ", "0.2"),
        ("1,000", "1000.0"),
        ("1000", "1,000"),
        ("-15,000,000", "-15000000.0"),
        ("1.01e13", "10100000000000.0"),
        ("no solution", "no solution "),
    ],
)
def test_a_formula_answer_is_right_if_it_is_the_same_number_or_else_the_same_text(
    answer: str, target: str
) -> None:
    assert score("formula", answer, target) == Score(right=1, asked=1)


@each_row(
    ("answer", "target"),
    [
        ("8.333", "8.33"),
        ("8.334", "8.33"),
        ("20%", "20.0"),
        ("20%", "0.2"),
        ("$5", "5.0"),
        ("5 years", "5.0"),
        ("4.0x", "4.0"),
        ("−0.5", "-0.5"),
        ("5 million", "5000000.0"),
        ("2.5+2.5", "5.0"),
        ("nan", "5.0"),
        ("nan", "nan"),
        ("inf", "5.0"),
        ("1e999", "5.0"),
        ("No solution", "no solution"),
        ("", "0.0"),
    ],
)
def test_a_formula_answer_that_only_comes_near_is_wrong(answer: str, target: str) -> None:
    assert score("formula", answer, target) == Score(right=0, asked=1)


@each_row(
    ("answer", "right"),
    [
        ("Revenues,LongTermDebt,Depreciation,LineOfCredit", 4),
        (" revenues , LONGTERMDEBT,\ndepreciation,LineOfCredit ", 4),
        ("revenues,'LongTermDebt',[Depreciation],LineOfCredit.", 1),
        ("Revenues,LongTermDebt", 2),
        ("LongTermDebt,Revenues,Depreciation,LineOfCredit", 2),
        ("Other,Revenues,LongTermDebt,Depreciation,LineOfCredit", 0),
        ("Revenues,LongTermDebt,Depreciation,LineOfCredit,More", 4),
        ("Revenues LongTermDebt Depreciation LineOfCredit", 0),
        (",,,", 0),
        ("", 0),
    ],
)
def test_labels_are_scored_one_by_one_in_lower_case_and_accuracy_is_their_share(
    answer: str, right: int
) -> None:
    found = score("finer", answer, "Revenues,LongTermDebt,Depreciation,LineOfCredit")
    assert (found, found.share) == (Score(right=right, asked=4), right / 4)


def test_scores_add_up() -> None:
    assert (Score(right=1, asked=4) + Score(right=1, asked=1)).share == 0.4


def test_other_samples_are_scored_as_before() -> None:
    for answer, target in (("$1,234", "1234.0"), ("20%", "20"), (" The  Gate", "the gate")):
        assert score("text", answer, target).share == 1
    assert score("text", "the gates", "the gate").share == 0


def test_the_feedback_on_a_sample_goes_by_its_rules() -> None:
    assert verdict("20%", "20", "text") == "The answer is right."
    assert verdict("20%", "20", "formula") == "The answer is wrong; the right answer is 20."
    assert verdict("revenues, depreciation", "Revenues,Depreciation", "finer") == "The answer is right."
    assert verdict("Revenues", "Revenues,Depreciation", "finer").startswith("The answer is wrong")


# ---- the real data


@pytest.mark.shared
@pytest.mark.parametrize("name", ["formula_train", "formula_dev"])
def test_no_real_formula_row_shows_its_formula(shared: Path, name: str) -> None:
    lines = (shared / "data" / f"{name}.jsonl").read_text("utf-8").splitlines()
    unnamed = 0
    for line in lines:
        row = json.loads(line)
        found = sample(row["context"], row["target"])
        assert found.kind == "formula"
        hidden = row["context"].partition("Question:")[0]
        assert hidden not in found.question
        assert "Explanation:" not in found.question
        assert "Use formula" not in found.question
        assert score("formula", row["target"], row["target"]).share == 1
        named = FORMULA_NAME.search(row["context"])
        assert named is not None
        long, _, short = named["name"].rstrip(")").partition(" (")
        unnamed += not any(one and one.casefold() in found.question.casefold() for one in (long, short))
    assert unnamed == {"formula_train": 114}.get(name, unnamed)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["finer_train", "finer_dev"])
def test_every_real_finer_row_is_asked_whole_and_scored_by_label(shared: Path, name: str) -> None:
    for line in (shared / "data" / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        found = sample(row["context"], row["target"])
        assert (found.kind, found.question) == ("finer", row["context"])
        assert score("finer", row["target"].upper(), row["target"]) == Score(right=4, asked=4)
