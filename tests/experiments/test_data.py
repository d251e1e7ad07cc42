import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.formats.intake import Sample
from combee_experiments.data.samples import DataError, family, kind_of, load, read_samples, subset


def written(path: Path, *rows: object) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def sample(number: int, question: str = "q") -> Sample:
    return Sample(trace_id=f"s-{number}", playbook="p", question=question, target="t")


GOOD = {"context": "How much?", "target": "4"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ('{"context": "x"}', "unknown fields"),
        ('{"task": "x", "answer": "y"}', "a trace, not a sample"),
        ('{"key_insight": "x"}', "a reflection, not a sample"),
        ('{"context": "x", "target": " "}', "its target is empty"),
        ('{"context": "\\ud800", "target": "1"}', "surrogates"),
        ("[" * 20_000, "line 3"),
        ('{"context": "' + "x" * 1_000_001 + '", "target": "1"}', "longer than"),
    ],
    ids=["no json", "no object", "no target", "trace", "reflection", "empty", "surrogate", "deep", "long"],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path / "some.jsonl", GOOD, "", line)
    with pytest.raises(DataError, match=rf"^some\.jsonl, line 3: .*{said}|^some\.jsonl, {said}"):
        read_samples(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"], ids=["nothing", "blank", "no text"])
def test_a_file_without_samples_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"^some\.jsonl: "):
        read_samples(path)
    with pytest.raises(DataError, match=r"^absent\.jsonl: "):
        read_samples(tmp_path / "absent.jsonl")


def test_a_row_given_twice_counts_twice_and_a_line_separator_inside_a_text_is_no_new_line(
    tmp_path: Path,
) -> None:
    odd = '{"context": "one\u2028two", "question": "three", "target": "4"}'
    found = read_samples(written(tmp_path / "some.jsonl", GOOD, GOOD, odd))
    assert [one.trace_id for one in found] == ["some-00001", "some-00002", "some-00003"]
    assert found[2].question == "one\u2028two\n\nthree"


def test_the_exam_is_the_file_beside_the_training_file_or_a_fifth_held_out(tmp_path: Path) -> None:
    rows = [{"context": f"question {n}", "target": str(n)} for n in range(20)]
    alone = load(written(tmp_path / "x_train.jsonl", *rows))
    assert (len(alone.train), len(alone.exam)) == (16, 4)
    assert not {one.question for one in alone.train} & {one.question for one in alone.exam}
    assert alone == load(tmp_path / "x_train.jsonl")
    assert alone != load(tmp_path / "x_train.jsonl", seed=1)
    written(tmp_path / "x_dev.jsonl", GOOD)
    paired = load(tmp_path / "x_train.jsonl")
    assert (len(paired.train), len(paired.exam), paired.kind) == (20, 1, "text")


def test_one_question_of_another_kind_makes_the_data_plain_text() -> None:
    formula = replace(sample(1), kind="formula")
    assert kind_of([formula, formula]) == "formula"
    assert kind_of([formula, sample(2)]) == "text"


@given(seed=st.integers(), small=st.integers(0, 30), more=st.integers(0, 30))
def test_a_subset_is_fixed_by_its_seed_and_a_prefix_of_every_larger_one(
    seed: int, small: int, more: int
) -> None:
    samples = [sample(n) for n in range(30)]
    fewer, larger = subset(samples, small, seed), subset(samples, min(small + more, 30), seed)
    assert larger[: len(fewer)] == fewer
    assert len(set(fewer)) == small
    assert sorted(subset(samples, None, seed), key=lambda one: one.trace_id) == sorted(
        samples, key=lambda one: one.trace_id
    )


def test_the_built_in_family_is_fixed_by_its_seed_and_its_exam_asks_every_quantity_once() -> None:
    assert family(20, seed=1) == family(20, seed=1) != family(20, seed=Random(2).randrange(2, 9))
    assert (len(family(20).train), len(family(20, quantities=7).exam)) == (20, 7)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "kind", "count", "examined"), [("formula", "formula", 500, 300), ("finer", "finer", 350, 150)]
)
def test_the_shared_data_are_read_and_recognised(
    shared: Path, name: str, kind: str, count: int, examined: int
) -> None:
    found = load(shared / "data" / f"{name}_train.jsonl")
    assert (found.kind, len(found.train), len(found.exam)) == (kind, count, examined)
