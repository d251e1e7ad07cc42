"""Error rates on labelled pairs, and the threshold that follows."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from combee.core.text.similarity.embeddings import Thresholds
from combee.core.text.similarity.measuring import LABELS, Pair, Verdicts, pairs_of, proposed, verdicts
from combee.core.text.similarity.saying import judge
from combee.log.evaluation.labelled_pairs import labelled_pairs

PAIRS = labelled_pairs()
TABLE = Path(__file__).parents[5] / "docs/results/tables/similarity-labelled.csv"


def test_there_are_a_hundred_labelled_pairs_and_more_of_each_label() -> None:
    counts = Counter(pair.label for pair in PAIRS)
    assert counts == {"paraphrase": 342, "neighbour": 114, "figure": 402, "negated": 114}
    assert len(set(PAIRS)) == len(PAIRS)
    assert not any(set("{}") & {*pair.text, *pair.lesson} for pair in PAIRS)


def test_no_paraphrase_has_the_frame_of_its_lesson() -> None:
    """No five words in a row."""

    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.casefold().strip(".").split()
        return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}

    shared = [pair for pair in PAIRS if pair.label == "paraphrase" and runs(pair.text) & runs(pair.lesson)]
    assert shared == []


def test_no_pair_with_another_figure_or_a_turn_counts_as_one_lesson_however_near_its_embeddings() -> None:
    yes = [
        pair
        for pair in PAIRS
        if pair.label in {"figure", "negated"} and judge(pair.text, pair.lesson, cosine=1.0).verdict == "yes"
    ]
    assert yes == []


def test_every_pair_with_another_figure_is_refused_before_a_checker_is_asked() -> None:
    asked = [
        pair for pair in PAIRS if pair.label == "figure" and judge(pair.text, pair.lesson).verdict != "no"
    ]
    assert asked == []


def test_words_alone_take_no_other_lesson_for_the_same() -> None:
    assert {told.label: told.yes for told in verdicts(PAIRS) if told.label != "paraphrase"} == dict.fromkeys(
        LABELS[1:], 0
    )


def test_paraphrases_are_asked_about_unless_embeddings_tell_them() -> None:
    without = verdicts(PAIRS)[0]
    assert without.ask / without.pairs > 0.95
    near = verdicts(PAIRS, lambda _text, _lesson: 1.0)[0]
    assert near.yes / near.pairs == pytest.approx(0.44, abs=0.01)


def test_a_lesson_is_paired_with_its_wordings_its_neighbour_its_turn_and_other_figures() -> None:
    lesson = {
        "text": "Wait {5 days}.",
        "same": ["Be patient for {5 days}.", "Do nothing till the sixth day."],
        "near": "Call on Monday.",
        "turned": "Do not wait 5 days.",
        "other": ["7 days"],
    }
    assert list(pairs_of([lesson])) == [
        Pair("paraphrase", "Be patient for 5 days.", "Wait 5 days."),
        Pair("paraphrase", "Do nothing till the sixth day.", "Wait 5 days."),
        Pair("neighbour", "Call on Monday.", "Wait 5 days."),
        Pair("negated", "Do not wait 5 days.", "Wait 5 days."),
        Pair("figure", "Wait 7 days.", "Wait 5 days."),
        Pair("figure", "Be patient for 7 days.", "Wait 5 days."),
    ]


def test_the_proposed_threshold_is_above_what_other_lessons_reach() -> None:
    pairs = [
        Pair("paraphrase", "Reply immediately.", "Answer right now."),
        Pair("paraphrase", "Respond quickly.", "Answer right now."),
        Pair("neighbour", "Greet politely.", "Answer right now."),
    ]
    cosines = {"Reply immediately.": 0.9, "Respond quickly.": 0.7, "Greet politely.": 0.75}
    proposal = proposed(pairs, lambda text, _lesson: cosines[text])
    assert (proposal.meaning, proposal.recognised, proposal.wrong) == (0.755, 0.5, 0.0)
    told = verdicts(pairs, lambda text, _lesson: cosines[text], Thresholds(meaning=proposal.meaning))
    assert told[0] == Verdicts(label="paraphrase", yes=1, ask=1)
    assert told[1] == Verdicts(label="neighbour", ask=1)


def test_no_two_lessons_reach_the_proposed_threshold() -> None:
    pairs = [
        Pair("paraphrase", "Reply immediately.", "Answer right now."),
        Pair("paraphrase", "Put it on ice.", "Store it cold."),
    ]
    proposal = proposed(pairs, lambda _text, lesson: 0.8 if lesson == "Store it cold." else 0.9)
    assert (proposal.meaning, proposal.recognised) == (0.805, 0.5)


def test_a_threshold_may_be_wrong_about_one_pair_in_a_hundred() -> None:
    pairs = [Pair("neighbour", f"Greet number {n:b}.", "Answer right now.") for n in range(200)]
    pairs = [pair for pair in pairs if judge(pair.text, pair.lesson).verdict == "ask"]
    cosines = {pair.text: 0.9 if n < 2 else 0.5 for n, pair in enumerate(pairs)}
    assert proposed(pairs, lambda text, _lesson: cosines[text]).meaning < 0.9


def test_the_page_shows_what_the_rule_says_by_words_alone() -> None:
    with TABLE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["compared by"] == "words alone"]
    shown = [(row["label"], row["yes"], row["no"], row["ask"]) for row in rows]
    assert shown == [
        (told.label, *(f"{count / told.pairs:.1%}" for count in (told.yes, told.no, told.ask)))
        for told in verdicts(PAIRS)
    ]
