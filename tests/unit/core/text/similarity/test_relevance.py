"""Which entries have most to do with a text; pure, and the same every time."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook.budget import entry_tokens
from combee.core.text.similarity.relevance import MAX_QUERY_CHARS, best_entries, relevance
from combee_schemas.playbook import Entry
from support.rows import each_row


def entries(*contents: str) -> tuple[Entry, ...]:
    return tuple(Entry(id=f"e-{n}", section="OTHERS", content=text) for n, text in enumerate(contents))


def test_rare_words_weigh_more_than_common_ones_and_long_entries_less() -> None:
    known = entries(
        "the margin of a bank", "the margin of a shop", "the seal", "the margin of a bank " + "x y " * 50
    )
    scores = relevance(known, "bank margin")
    assert scores["e-0"] > scores["e-1"] > scores["e-2"] == 0
    assert scores["e-0"] > scores["e-3"]


def test_of_equally_near_entries_the_order_is_fixed_whatever_order_they_come_in() -> None:
    known = list(entries(*["the same words"] * 9))
    budget = 4 * entry_tokens(known[0])
    wanted = {entry.id for entry in best_entries(known, query="words", budget_tokens=budget)}
    assert wanted == {"e-0", "e-1", "e-2", "e-3"}
    Random(1).shuffle(known)
    assert {entry.id for entry in best_entries(known, query="words", budget_tokens=budget)} == wanted


def test_what_fits_as_a_whole_is_given_as_a_whole() -> None:
    known = entries("a", "b", "c")
    assert best_entries(known, query="c", budget_tokens=100) == known


@each_row("query", ["refund of an order", None])
def test_what_does_not_fit_hides_nothing_that_does(query: str | None) -> None:
    """Who said one lesson of 8,000 characters kept all others from agents and from the reflector."""
    long, *others = entries("refund order " * 615, "refund orders", "orders", "something else")
    known = (long.model_copy(update={"evidence_count": 9}), *others)
    assert list(best_entries(known, query=query, budget_tokens=2_000)) == others


def test_who_repeats_itself_does_not_displace_what_more_sources_say() -> None:
    said_often, *others = entries("send the list", "ask first", "look it up")
    repeated = said_often.model_copy(update={"evidence_count": 9, "sources": ("x",)})
    shared = [one.model_copy(update={"evidence_count": 2, "sources": ("a", "b")}) for one in others]
    assert list(best_entries((repeated, *shared), k=2, several=True)) == shared
    assert repeated in best_entries((repeated, *shared), k=2)


def test_of_a_very_long_text_the_beginning_and_the_end_count() -> None:
    known = entries("gearbox", "middle", "seal")
    scores = relevance(
        known, "gearbox " + "x " * MAX_QUERY_CHARS + "middle" + " x" * MAX_QUERY_CHARS + " seal"
    )
    assert scores["e-0"] == scores["e-2"] > scores["e-1"] == 0


@given(st.lists(st.text(max_size=30), max_size=6), st.none() | st.text(max_size=60), st.integers(0, 40))
def test_whatever_the_texts_hold_the_budget_holds(
    contents: list[str], query: str | None, budget: int
) -> None:
    known = entries(*contents)
    kept = best_entries(known, query=query, budget_tokens=budget)
    assert sum(map(entry_tokens, kept)) <= budget
    assert [entry for entry in known if entry in kept] == list(kept)
