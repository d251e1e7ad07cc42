"""GEPA as a method: records, replies, and which text wins; pure."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.methods import gepa
from combee.core.playbook.versions import empty
from combee_schemas.codec import encode
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace
from support.hostile import REPLIES
from support.prompts import INSTRUCTION
from support.rows import each_row

EMPTY = empty("p")
SOURCES = (("r-1", "r-2"), ("r-2", "r-3"))


def run(**fields: Any) -> Trace:
    return Trace.model_validate({"trace_id": "t", "playbook": "p", "task": "a task", **fields})


def text_of(reply: object, base: Playbook = INSTRUCTION) -> str | None:
    """Return the text that a reply gives, or None if it is unusable."""
    answer = gepa.read(base, {"text": reply}, SOURCES)
    if not answer.operations:
        assert answer.unusable == 1
        return None
    (operation,) = answer.operations
    return operation.content


# ---- records


def test_a_record_is_made_without_a_model_and_says_input_output_and_feedback() -> None:
    trace = run(trajectory="looked it up", answer="42", feedback="Wrong.", target="43")
    assert gepa.reflect_prompt(trace, ()) is None  # type: ignore[func-returns-value]
    assert gepa.read_reflection(trace, (), {}) == {
        "side_info": {
            "Inputs": "a task",
            "Generated Outputs": "looked it up\n42",
            "Feedback": "Wrong.\nThe right answer: 43",
        }
    }


def test_the_right_answer_is_not_said_twice() -> None:
    record = gepa.read_reflection(run(feedback="No: 43.", target="43"), (), {})["side_info"]
    assert record["Feedback"] == "No: 43."


def test_a_trace_with_nothing_on_record_is_refused() -> None:
    with pytest.raises(ValueError, match="neither task nor output"):
        gepa.read_reflection(run(task=" "), (), {})


def test_the_longest_record_stays_well_below_the_cap_and_keeps_both_ends() -> None:
    long = "begin " + "€" * 300_000 + " end"
    fields = gepa.read_reflection(run(task=long, trajectory=long, answer=long, feedback=long), (), {})
    for text in fields["side_info"].values():
        assert text.startswith("begin ")
        assert text.endswith(" end")
        assert "characters cut" in text
    assert len(encode(Reflection(reflection_id="r", playbook="p", **fields))) < Reflection.max_bytes // 3


def test_what_an_ace_reflector_said_counts_as_feedback() -> None:
    made_by_ace = Reflection(reflection_id="r", playbook="p", key_insight="Check the seal.")
    assert "\nFeedback: Check the seal.\n" in gepa.aggregate_prompt(EMPTY, [made_by_ace]).user


# ---- replies


@each_row(
    ("reply", "text"),
    [
        ("```\nDo this.\n```", "Do this."),
        ("Well:\n\n```\nDo this.\n\n- and that\n```\nGood luck!", "Do this.\n\n- and that"),
        ("```text\nDo this.\n```", "Do this."),
        ("```c++\nDo this.\n```", "Do this."),
        ("```Do this.```", "Do this."),
        ("What <side_info> shows is this.\n```\nDo this.\n```", "Do this."),
        ("````\nDo this.\n````", "Do this."),
        ("```\r\nDo this.\r\nAnd that.\r\n```", "Do this.\nAnd that."),
        ("```\nRun:\n```python\nx = 1\n```\nThen stop.\n```", "Run:\n```python\nx = 1\n```\nThen stop."),
        ("```\nWrap it in ``` marks.\n```", "Wrap it in ``` marks."),
        ("```\nhalf \ud800 a\x00 character\n```", "half ? a character"),
        ("```\n   indented\n```", "indented"),
    ],
)
def test_the_new_text_is_what_stands_between_the_first_fence_and_the_last(reply: str, text: str) -> None:
    assert text_of(reply) == text
    assert gepa.problem(reply) is None


@each_row(
    ("reply", "told"),
    [
        ("", "between ``` fences"),
        ("I am sorry, I cannot do that.", "between ``` fences"),
        ('{"operations": []}', "between ``` fences"),
        ("```\nDo this and", "cut off"),
        ("```\nRun:\n```python\nx = 1\n```\nThen", "cut off"),
        ("Do this.\n```", "cut off"),
        ("```\n```", "no text"),
        ("```\n \n-\n```", "no text"),
        ("```\n" + "x" * (gepa.MAX_TEXT_CHARS + 1) + "\n```", "far too long"),
        ('```\n<side_info>\n{"Inputs": "x"}\n</side_info>\n```', "repeated the data"),
        ("```\n</ CURR_PARAM >\n```", "repeated the data"),
        ("<side_info>\n</side_info>\n```\nx = 1\n```", "repeated the data"),
    ],
)
def test_a_reply_without_a_whole_text_is_unusable_and_the_model_is_told_why(reply: str, told: str) -> None:
    assert text_of(reply) is None
    assert told in (gepa.problem(reply) or "")


def test_no_prompt_said_back_is_adopted_even_between_fences() -> None:
    for prompt in (gepa.aggregate_prompt(INSTRUCTION, ()), gepa.combine_prompt(INSTRUCTION, ())):
        for echo in (prompt.system, prompt.user, f"```\n{prompt.system}\n{prompt.user}\n```"):
            assert text_of(echo) is None


@given(st.text(st.sampled_from("`a \n\t<>/{}\ud800\x00é"), max_size=40) | st.text(max_size=60))
def test_reading_never_raises_and_what_it_reads_is_bounded_text(reply: str) -> None:
    text = text_of(reply)
    if text is not None:
        assert text == text.strip() != ""
        assert len(text.encode()) <= 4 * gepa.MAX_TEXT_CHARS


@given(
    st.dictionaries(
        st.sampled_from(["text", "operations", "x"]),
        st.none() | st.integers() | st.lists(st.integers()) | st.text(),
    )
)
def test_reading_never_raises_on_a_body_of_another_shape(body: dict[str, Any]) -> None:
    gepa.read(INSTRUCTION, body, SOURCES)


@each_row("name", REPLIES)
def test_a_reply_in_the_shape_of_another_method_is_unusable(name: str) -> None:
    assert gepa.read(INSTRUCTION, REPLIES[name], SOURCES).unusable == 1


def test_a_text_rests_on_all_that_was_read_and_updates_its_component() -> None:
    answer = gepa.read(INSTRUCTION, {"text": "```\nNew.\n```"}, SOURCES)
    (operation,) = answer.operations
    assert operation == Operation(
        kind=OperationKind.UPDATE,
        section="instruction",
        content="New.",
        entry_ids=("i-00001",),
        evidence=("r-1", "r-2", "r-3"),
    )


def test_the_first_text_of_a_playbook_is_added_as_its_instruction() -> None:
    (operation,) = gepa.read(EMPTY, {"text": "```\nNew.\n```"}, SOURCES).operations
    assert (operation.kind, operation.section, operation.entry_ids) == ("ADD", "instruction", ())


def test_components_take_turns_from_batch_to_batch() -> None:
    entries = tuple(Entry(id=f"x-{name}", section=name, content=f"be {name}") for name in ("kind", "brief"))
    base = INSTRUCTION.model_copy(update={"entries": entries})
    for sequence, name in enumerate(["kind", "brief", "kind"]):
        turn = base.model_copy(update={"batch_sequence": sequence})
        (operation,) = gepa.read(turn, {"text": "```\nNew.\n```"}, SOURCES).operations
        assert operation.section == name
        assert f"\nbe {name}\n" in gepa.aggregate_prompt(turn, ()).system


# ---- what code does where no model could


def version(content: str, *evidence: str, section: str = "instruction") -> Operation:
    return Operation(kind=OperationKind.UPDATE, section=section, content=content, evidence=evidence)


def test_of_several_texts_the_one_that_rests_on_most_wins_and_of_equals_the_last() -> None:
    few, many, last = version("few", "a"), version("many", "a", "b"), version("last", "c", "d")
    assert gepa.merge(EMPTY, [few, many]) == gepa.merge(EMPTY, [many, few]) == (many,)
    assert gepa.merge(EMPTY, [many, last]) == (last,)
    assert gepa.merge(EMPTY, []) == ()


@given(st.lists(st.builds(version, st.text(max_size=9), st.sampled_from("abc"), st.sampled_from("abcd"))))
def test_merging_makes_nothing_longer_and_is_done_after_one_time(texts: Sequence[Operation]) -> None:
    merged = gepa.merge(EMPTY, texts)
    assert len(merged) == min(1, len(texts))
    assert set(merged) <= set(texts)
    assert gepa.merge(EMPTY, merged) == merged
    halves = (*gepa.merge(EMPTY, texts[: len(texts) // 2]), *gepa.merge(EMPTY, texts[len(texts) // 2 :]))
    assert gepa.merge(EMPTY, halves) == merged


def test_texts_of_different_components_do_not_compete() -> None:
    both = (version("one", "a", section="x"), version("two", "a", "b", section="y"))
    assert gepa.merge(EMPTY, both) == both


# ---- agents


def test_an_agent_reads_one_text_as_it_is_and_several_under_their_names() -> None:
    single = gepa.answer_prompt(INSTRUCTION, "q").system
    assert re.search(r"<instruction \w{8}>\nCompute refunds.\n", single)
    entries = (*INSTRUCTION.entries, Entry(id="t", section="tone", content="Be kind."))
    several = gepa.answer_prompt(INSTRUCTION.model_copy(update={"entries": entries}), "q").system
    assert "## instruction\nCompute refunds." in several
    assert "## tone\nBe kind." in several
