"""Figures of a text, in one notation, and what it means that two texts differ in them."""

import time

from hypothesis import given
from hypothesis import strategies as st

from combee.core.text.figures import MAX_FIGURES, Figure, conflicting, figures, lacking, qualifiers
from support.rows import each_row

SAME = [
    ("Refund within 14 days", "Refund within two weeks"),
    ("a 14-day limit", "within a fortnight"),
    ("Answer in 24 hours", "Answer within one day"),
    ("after half an hour", "after 30 minutes"),
    ("wait 1.5 hours", "wait 90 min"),
    ("one hundred and twenty days", "120 days"),
    ("twenty-four hours", "24h"),
    ("within a year", "within 12 months"),
    ("2 to 3 days", "2-3 days"),
    ("between two and three days", "2 or 3 days"),
    ("3 business days", "three working days"),
    ("80 €", "EUR 80"),
    ("eighty euros", "an 80-euro voucher"),
    ("$1,000", "1000 dollars"),
    ("$5k", "five thousand dollars"),
    ("EUR 50 to 80", "50 € - 80 €"),
    ("15%", "fifteen per cent"),
    ("half the price", "50 percent of the price"),
    ("a dozen eggs", "12 eggs"),
    ("retry twice", "retry 2 times"),
    ("at most one retry", "a single retry"),
    ("after the third attempt", "after attempt 3"),
    ("after 3 failed attempts", "after three failed attempts"),
    ("use v2", "use version 2"),
    ("steps 3 and 4", "step 3 or step 4"),
    ("before 5 pm", "before 17:00"),
    ("100 requests per minute", "a hundred requests a minute"),
    ("**14** days", "14 days"),
    ("2 kg", "2000 grams"),
    ("a quarter of an hour", "15 minutes"),
    ("three quarters of an hour", "45 minutes"),
    ("a sixth of an hour", "10 minutes"),
    ("half a year", "6 months"),
    ("a third of the price", "one third of the price"),
    ("a half-hour gap", "half an hour"),
    ("half a dozen eggs", "six eggs"),
    ("a tenth of the servers", "10 %"),
    ("four fifths of the lines", "80 % of the lines"),
    ("halve the price", "half the price"),
    ("after one working week", "after 5 business days"),
    ("until noon", "until twelve o'clock"),
    ("at minus eighteen degrees", "at -18 °C"),
    ("within 200 ms", "within 0.2 seconds"),
    ("1,5 litres", "1.5 litres"),
    ("1.2.3 days", "1.2.3 days"),
    ("Go to step 3. Then stop.", "1. Go to step 3. 2. Stop"),
]
"""Two ways to write the same figures."""

OTHER = [
    ("Refund within 14 days", "Refund within 30 days"),
    ("Refund within two weeks", "Money back for a month and 30 days"),
    ("Vouchers of 80 €", "Vouchers of EUR 90"),
    ("15 % off", "twenty percent off"),
    ("Retry on HTTP 429", "Retry on HTTP 503"),
    ("Follow step 3", "Follow step 4"),
    ("Use v2", "Use v3"),
    ("allow only one retry", "allow three retries"),
    ("Escalate after the first complaint", "Escalate after the second complaint"),
    ("2 to 3 days", "3 to 5 days"),
    ("3 refunds and 5 vouchers", "5 refunds and 3 vouchers"),
    ("100 requests per minute", "100 requests per hour"),
    ("refund half", "refund 30 percent"),
    ("call before 5 pm", "call before 6 pm"),
    ("pick up at noon", "pick up at 6 pm"),
    ("close order AB12C", "close order AB13C"),
    ("answer 42", "answer 43"),
]
"""Two texts with other figures."""

NO_FIGURES = [
    "One of the customers",
    "the one that pays",
    "Once the parcel has arrived, call at once",
    "1. Check the order. 2) Call.",
    "a day at the desk",
    "",
]


@each_row(("text", "other"), SAME)
def test_one_figure_has_one_form(text: str, other: str) -> None:
    assert set(figures(text)) == set(figures(other)) != set()
    assert not conflicting(text, other)
    assert lacking(text, other) == lacking(other, text) == ()


@each_row(("text", "other"), OTHER)
def test_other_figures_conflict(text: str, other: str) -> None:
    assert conflicting(text, other)
    assert lacking(text, other)
    assert lacking(other, text)


@each_row("text", NO_FIGURES)
def test_words_of_number_that_count_nothing_are_no_figures(text: str) -> None:
    assert figures(text) == ()


def test_a_figure_that_one_text_merely_lacks_is_no_conflict() -> None:
    assert not conflicting("Refund within 14 days", "Refund soon")
    assert not conflicting("Refund within 14 days", "Refund within 14 days, or 30 days for members")
    assert lacking("Refund soon", "Refund within 14 days") == (Figure("1209600", "second"),)
    assert lacking("Refund within 14 days, or 30 days for members", "Refund within 14 days") == ()


def test_what_is_counted_may_have_another_noun_and_a_measure_may_not() -> None:
    assert lacking("at most 3 reimbursements", "at most 3 refunds") == ()
    assert lacking("at most 4 reimbursements", "at most 3 refunds") == (Figure("3", "refund"),)
    assert lacking("3 vouchers and 5 refunds", "at most 3 refunds") == (Figure("3", "refund"),)
    assert lacking("at most 3 days", "at most 3 percent") == (Figure("3", "%"),)
    assert lacking("retry if it fails", "do one retry if it fails") == ()
    assert lacking("make three attempts", "do one retry") == (Figure("1", "retry"),)
    assert lacking("at most 14 days", "at most 14 business days") == (Figure("14", "business day"),)


def test_a_figure_is_shown_in_the_largest_unit_that_is_exact() -> None:
    assert [str(figure) for figure in figures("two weeks, 36 hours, 1 minute, 0.5 s, 80 €")] == [
        "14 days",
        "36 hours",
        "1 minute",
        "0.5 seconds",
        "80 EUR",
    ]


def test_conditions_and_negations_count_in_every_form() -> None:
    assert qualifiers("Never refund without a receipt, unless they don't have one") == (
        *("not", "not", "not"),
        *("unless", "with"),
    )
    assert qualifiers("Refund with a receipt") == ("with",)


VOCABULARY = (
    "refund within one two 14 30 days day weeks % € EUR $ 80 1,000 to - and or half a an the third of hundred step"
    " HTTP 429 v2 per once 5 pm . , not if 1e9 1.2.3 12:30 k quarter fifths minus o'clock noon working"
)
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=60)


@given(TEXTS, TEXTS)
def test_a_conflict_is_mutual_and_means_that_each_lacks_a_figure(text: str, other: str) -> None:
    assert conflicting(text, other) == conflicting(other, text)
    assert not conflicting(text, text)
    assert lacking(text, text) == ()
    if conflicting(text, other):
        assert lacking(text, other)
        assert lacking(other, text)


@given(TEXTS)
def test_spacing_and_length_decide_nothing(text: str) -> None:
    assert figures(f"  {text}\n") == figures(text)
    assert figures(text + " " * 400) == figures(text)
    assert all(map(str, figures(text)))


@each_row(
    "pump",
    [
        *(
            "1 ",
            "one ",
            "1 of ",
            "of ",
            "hundred ",
            "1 hundred ",
            "1 to ",
            "$",
            "a ",
            "1-",
            "v1.",
            "1 business ",
        ),
        *("twenty ", "9", "a1", "1. ", "\n", "half a ", "1 , $ "),
    ],
)
def test_time_grows_linearly_with_the_text(pump: str) -> None:
    def growth(repeats: int) -> float:
        """Return how many times longer a text takes than one of a quarter of its size."""
        shortest = []
        for size in (4_000, 16_000):
            took = list[float]()
            for n in range(repeats):
                text = pump * (size // len(pump)) + str(n)
                began = time.thread_time()
                figures(text)
                took.append(time.thread_time() - began)
            shortest.append(min(took))
        return shortest[1] / max(shortest[0], 1e-3)

    # A quadratic search takes 16 times as long. Only what looks like one is measured closely.
    assert growth(1) < 8 or growth(5) < 8


def test_a_text_of_more_figures_than_are_read_is_the_same_only_as_itself() -> None:
    """Reading the figures of a hundred such lessons took longer than a consumer may be silent."""
    table = " ".join(f"{n} parcels" for n in range(MAX_FIGURES + 50))
    whole = figures(table)
    assert len(whole) == 1
    assert figures(table.replace(" ", "  ")) == whole
    assert lacking(table.replace("17 parcels", "18 parcels"), table) == whole
    assert lacking(f"{table} Refund within 14 days", "Refund within 14 days")
    assert not lacking(table, "Refund at once")
