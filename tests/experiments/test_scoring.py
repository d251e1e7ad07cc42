import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee_experiments.data.samples import Data, Kind, family, load
from combee_experiments.scoring.answers import score
from combee_experiments.scoring.lessons import Lessons, lessons_of
from combee_sim.family.blurring import blurred
from combee_sim.family.falsehoods import invented, opposite
from combee_sim.family.family import lessons
from combee_sim.family.knowledge import NOTHING_KNOWN
from combee_sim.family.lessons import text_of
from combee_sim.family.quantities import QUANTITIES
from combee_sim.family.wordings import all_wordings
from combee_sim.law.samples import reflections_on, task_traces

KINDS: tuple[Kind, ...] = ("family", "formula", "finer", "text")


def test_in_the_family_decimals_are_part_of_the_answer() -> None:
    assert (score("family", "0.50", "0.50").right, score("family", "0.5", "0.50").right) == (1, 0)


HOSTILE = {
    "10 MB": "Revenues," * 1_200_000,
    "nested brackets": "[" * 100_000 + "]" * 100_000,
    "short nested brackets": "[" * 1_900 + "]" * 1_900,
    "code": "__import__('os').abort()",
    "a list of code": "['Revenues', (lambda: 1 / 0)()]",
    "arithmetic bomb": "9**9**9**9",
    "digits": "9" * 3_900,
    "commas": "," * 3_999,
    "signs": "-" * 3_999,
    "spaces": " " * 3_998 + "x",
    "spaces inside": "$" + " " * 3_900 + "x",
    "zeros": "1" + ",0" * 1_900 + "x",
    "nul": "\0",
    "surrogate": "\ud800",
    "escape": "\x1b[2J",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_wrong_at_once_and_hurts_nobody(kind: Kind, answer: str) -> None:
    started = time.process_time()
    assert score(kind, answer, "Cash,1,2,3").right == 0
    assert time.process_time() - started < 5


@given(st.text(max_size=200))
def test_no_text_breaks_the_scoring(text: str) -> None:
    for kind in KINDS:
        assert 0 <= score(kind, text, "1,2").share <= 1


# ---- lessons


def test_a_quantity_counts_only_with_its_own_convention() -> None:
    data = family(300)
    counted, told = lessons_of(data), lessons(QUANTITIES[:50])
    assert len(counted.names) == 50
    assert counted.kept(told) == counted.names
    assert counted.kept([" ".join(told[:1]), told[1].replace("computed as", "computed as one minus")]) == {
        QUANTITIES[0].name
    }
    assert counted.kept(["\n".join(told)]) == counted.names
    assert counted.known(data.exam, told[:25]) == 0.5


FORMULA = tuple(
    f'{{"context": "Use formula {name} to answer the question. Question: what is {n}?. Answer:", "target": "1.0"}}'
    for n, name in enumerate(("Interest Rate", "Interest Rate Parity (IRP)", "EV/EBITDA"))
)


def test_a_formula_is_told_from_one_whose_name_begins_alike(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(FORMULA * 5))
    counted = lessons_of(load(path))
    assert counted.named(["INTEREST RATE parity (IRP): a ratio."]) == {"interest rate parity (irp)"}
    assert counted.named(["Interest rates: …", "no EV/EBITDAs"]) == frozenset()
    assert counted.named(["Interest rate and EV/EBITDA in one entry"]) == {"interest rate", "ev/ebitda"}


def test_a_tag_that_is_a_plain_word_is_not_found_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(
        '{"context": "What is best tag for entity 1?", "target": "Depreciation,LongTermDebt"}\n' * 5
    )
    data = load(path)
    counted = lessons_of(data)
    assert counted.named(["states the depreciation of a LongTermDebtor"]) == frozenset()
    assert counted.named(["Use the tag LongTermDebt here."]) == {"LongTermDebt"}
    told = "Use the tag LongTermDebt for the entity in a sentence that states the long term debt."
    assert counted.known(data.exam, [told]) == 0.5


def said_by_the_reflector(data: Data) -> list[str]:
    traces = task_traces([(one.question, one.target) for one in data.train])
    return [reflection.key_insight for reflection in reflections_on(traces, knowledge=data.knowledge)]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "said"), [("formula_train", 50), ("finer_train", 109), ("", 50)])
def test_a_lesson_is_kept_in_any_wording_and_not_without_its_figures_and_conditions(
    name: str, said: int, shared: Path
) -> None:
    data = load(shared / "data" / f"{name}.jsonl") if name else family()
    counted, told = lessons_of(data), said_by_the_reflector(data)
    assert len(counted.kept(told)) == said
    for n in range(5):
        assert len(counted.kept(all_wordings(text)[n] for text in told)) == said
    assert counted.kept(map(blurred, told)) == frozenset()
    assert len(counted.named(map(blurred, told))) == said


@pytest.mark.parametrize(
    "other",
    [
        "Do not report the {0}",
        "In the first week, report the {0}",
        "Report the {0} Only do so in summer.",
        "Never forget this: do not report the {0}",
    ],
)
def test_a_lesson_with_another_condition_or_a_negation_is_another_lesson(other: str) -> None:
    counted, told = lessons_of(family(300)), lessons(QUANTITIES[:1])[0]
    assert counted.kept([told]) == {QUANTITIES[0].name}
    assert counted.kept([other.format(told.removeprefix("Report the "))]) == frozenset()


@pytest.mark.shared
def test_the_fifty_formulas_are_fifty_lessons_and_the_simulated_reflector_finds_them(shared: Path) -> None:
    data = load(shared / "data" / "formula_train.jsonl")
    counted = lessons_of(data)
    told = said_by_the_reflector(data)
    assert len(counted.names) == 50
    assert counted.kept(told) == counted.names
    assert counted.known(data.exam, told) == 1.0


def test_lessons_are_counted_by_meaning_and_their_wordings_apart() -> None:
    counted, told = lessons_of(family(300)), lessons(QUANTITIES[:3])
    texts = [*all_wordings(told[0])[:4], *all_wordings(told[1])[2:4], "Weigh before packing."]
    numbers = counted.numbers(texts)
    assert (numbers["lessons"], numbers["wordings_per_lesson"]) == (2, 3.0)
    assert (numbers["invented"], numbers["wrong"], numbers["contradicted"]) == (0, 0, 0)
    assert counted.numbers(told)["wordings_per_lesson"] == 1.0
    assert counted.numbers([])["wordings_per_lesson"] == 0.0


def test_what_is_wrong_or_invented_is_no_lesson_kept() -> None:
    counted, (first, second) = lessons_of(family(300)), lessons(QUANTITIES[:2])
    wrong = str(opposite(first))
    made_up = [invented("test", n) for n in range(3)]
    numbers = counted.numbers([first, all_wordings(wrong)[3], wrong, str(opposite(second)), *made_up])
    assert numbers["lessons"] == 1
    assert numbers["wrong"] == 3
    assert numbers["invented"] == 3
    assert numbers["contradicted"] == 1  # one pair of meanings, in however many wordings


def formulas(*told: str) -> Lessons:
    names = [text.partition(":")[0].casefold() for text in told]
    meanings = dict(zip(map(text_of, told), names, strict=True))
    return Lessons(kind="formula", names=frozenset(names), meanings=meanings, knowledge=NOTHING_KNOWN)


def test_a_formula_told_the_wrong_way_round_is_not_kept() -> None:
    told = (
        "Quick Ratio: compute it with Quick Ratio = Cash / Debt and give the plain value, not a percentage, "
        "to 2 decimals."
    )
    counted, wrong = formulas(told), str(opposite(told))
    assert counted.kept(all_wordings(told)) == {"quick ratio"}
    assert counted.kept(all_wordings(wrong)) == frozenset()
    assert counted.numbers([told, wrong])["contradicted"] == 1


def test_a_formula_that_anothers_lesson_mentions_is_not_kept() -> None:
    told = (
        "Net Margin: compute it with Net Margin = Net Income / Revenue and give the plain value, not a percentage, "
        "to 2 decimals."
    )
    other = told.replace("Net Margin", "Net Income")
    assert formulas(told, other).kept([told]) == {"net margin"}
    assert formulas(told, other).named([told]) == {"net margin", "net income"}
