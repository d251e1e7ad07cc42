"""Whether a text says a lesson: yes, no, or a model has to be asked."""

from collections.abc import Sequence
from math import cos, radians, sin

import pytest

from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds, model_and_thresholds
from combee.core.text.similarity.saying import Judgement, Statements, judge
from support.rows import each_row

RETURNS = "A customer may return unworn shoes within 14 days of delivery."
LOOSE = Thresholds(meaning=0.8)


def at(degrees: float, *, dimensions: int = 2) -> Sequence[float]:
    return [cos(radians(degrees)), *([0.0] * (dimensions - 2)), sin(radians(degrees))]


@each_row(
    "text",
    [
        RETURNS,
        "a customer may return unworn shoes  within 14 days of delivery",
    ],
)
def test_the_same_words_in_their_order_say_a_lesson(text: str) -> None:
    assert judge(text, RETURNS) == Judgement("yes", 1.0, "words")


@each_row(
    ("text", "lesson"),
    [
        ("Follow its policy, not our policy", "Follow our policy, not its policy"),
        ("Charge the fee to our account", "Charge our fee to the account"),
        ("Prefer those tools over these tools", "Prefer these tools over those tools"),
        ("Trust what was listed before what is listed", "Trust what is listed before what was listed"),
    ],
)
def test_the_same_words_with_a_small_one_in_another_place_do_not_say_a_lesson(text: str, lesson: str) -> None:
    assert judge(text, lesson).verdict == "ask"


@each_row(
    "text",
    [
        "A customer may return unworn shoes within 30 days of delivery.",
        "Unworn footwear goes back within 30 days.",
        "Return unworn shoes within three weeks.",
        "Unworn shoes go back during the first 2 months.",
        "Unworn shoes go back until day 30.",
    ],
)
def test_another_figure_in_place_of_the_lessons_means_no_whatever_embeddings_say(text: str) -> None:
    for cosine in (None, 1.0):
        assert judge(text, RETURNS, cosine=cosine, thresholds=LOOSE).verdict == "no"


@each_row(
    ("text", "lesson"),
    [
        ("Unworn shoes may come back after delivery.", RETURNS),
        (RETURNS, "Unworn shoes may come back after delivery."),
        ("Never promise a date.", "Avoid to name a day."),
        ("Nobody returns worn footwear in 14 days.", RETURNS),
        (f"{RETURNS} Except on Sundays.", RETURNS),
        (f"{RETURNS} Refunds take 3 weeks.", RETURNS),
    ],
)
def test_a_figure_or_a_negation_that_one_side_merely_lacks_is_asked_about_and_never_yes(
    text: str, lesson: str
) -> None:
    if judge(text, lesson).verdict != "no":
        assert judge(text, lesson, cosine=1.0, thresholds=LOOSE).verdict == "ask"


def test_a_figure_that_is_merely_lacking_is_no_conflict() -> None:
    assert judge("Unworn shoes may come back after delivery.", RETURNS, cosine=1.0).verdict == "ask"


def test_embeddings_decide_about_other_words_from_the_threshold_on() -> None:
    text = "Unworn footwear goes back up to 14 days after it arrived."
    assert judge(text, RETURNS).verdict == "ask"
    assert judge(text, RETURNS, cosine=0.79, thresholds=LOOSE) == Judgement("ask", 0.79, "meaning")
    assert judge(text, RETURNS, cosine=0.8, thresholds=LOOSE) == Judgement("yes", 0.8, "meaning")


def test_a_model_that_was_not_measured_counts_only_for_nearly_identical_texts() -> None:
    text = "Unworn footwear goes back up to 14 days after it arrived."
    assert judge(text, RETURNS, cosine=0.95).verdict == "ask"
    assert judge(text, RETURNS, cosine=UNMEASURED.meaning).verdict == "yes"


@each_row(
    ("text", "lesson"),
    [
        (
            "Look up a payment before you ask for the order number.",
            "Ask for the order number before you look up a payment.",
        ),
        ("Give feedback in public and praise in private.", "Give feedback in private and praise in public."),
        ("Follow the older instruction.", "Follow the newer instruction."),
        ("Refund opened food.", "Refund opened food in summer."),
        ("Refund opened food, and skip the fraud check.", "Refund opened food."),
        (f"{RETURNS} Be kind.", RETURNS),
    ],
)
def test_embeddings_are_not_believed_where_one_word_or_the_order_can_turn_the_lesson(
    text: str, lesson: str
) -> None:
    assert judge(text, lesson, cosine=1.0, thresholds=LOOSE).verdict == "ask"


def test_a_lesson_finds_the_statement_that_says_it_among_many() -> None:
    texts = [f"Shelf {n} holds the goods of supplier {n}." for n in range(50)]
    statements = Statements([*texts, f"{RETURNS} Be kind.", RETURNS.removesuffix(".")])
    assert statements.saying(RETURNS) == {51: Judgement("yes", 1.0, "words")}


def test_the_nearest_statements_are_to_be_asked_about_and_contradictions_are_not() -> None:
    statements = Statements(
        [
            "Shoes may be returned.",
            "A customer may return unworn shoes within 30 days of delivery.",
            "Be kind.",
            "A customer may return shoes.",
        ]
    )
    assert statements.to_ask_about(RETURNS, 2) == [3, 0]
    assert statements.to_ask_about(RETURNS, 1) == [3]
    assert statements.to_ask_about("Nothing in common", 5) == []


def test_embeddings_find_the_statement_that_shares_no_word() -> None:
    lesson, said, near, far = "Answer right now.", "Reply immediately.", "Call back.", "Store it cold."
    vectors = {lesson: at(0), said: at(20), near: at(45), far: at(90)}
    statements = Statements([far, near, said], vectors=vectors, thresholds=LOOSE)
    ((place, judgement),) = statements.saying(lesson).items()
    assert (place, judgement.verdict, judgement.by) == (2, "yes", "meaning")
    assert judgement.score == pytest.approx(cos(radians(20)))
    strict = Statements([far, near, said], vectors=vectors)
    assert strict.saying(lesson) == {}
    assert strict.to_ask_about(lesson, 2) == [2, 1]


def test_vectors_are_compared_whole_though_their_first_dimensions_decide_who_is_near() -> None:
    lesson, said, far = "Answer right now.", "Reply immediately.", "Store it cold."
    vectors = {text: at(degrees, dimensions=600) for text, degrees in ((lesson, 0), (said, 20), (far, 80))}
    statements = Statements([far, said], vectors=vectors, thresholds=LOOSE)
    ((place, judgement),) = statements.saying(lesson).items()
    assert place == 1
    assert judgement.score == pytest.approx(cos(radians(20)))


def test_vectors_of_unlike_length_are_not_compared() -> None:
    statements = Statements(
        ["Reply immediately."], vectors={"Reply immediately.": [1.0], "Answer.": [1.0, 0.0]}
    )
    assert statements.saying("Answer.") == {}


def test_a_model_may_be_named_with_the_threshold_measured_for_it() -> None:
    assert model_and_thresholds("openai/e-3@0.87") == ("openai/e-3", Thresholds(meaning=0.87))
    for unmeasured in ("openai/e-3", "@cf/baai/bge", "e@3", ""):
        assert model_and_thresholds(unmeasured) == (unmeasured, UNMEASURED)
    for wrong in ("e@1.5", "e@0.0"):
        with pytest.raises(ValueError, match="not a threshold: it is a cosine"):
            model_and_thresholds(wrong)
