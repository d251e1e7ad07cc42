import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.formats.render import parse_ace
from combee.core.text.similarity.lessons import Index, _indexed, at_odds, index_of, same_lesson
from combee.core.text.similarity.overlap import contradicts
from combee.core.text.similarity.wording import of_short, wording
from combee_schemas.playbook import Entry, Playbook
from combee_sim.family.conventions import possible
from combee_sim.family.family import lessons
from combee_sim.family.insights import insight
from combee_sim.family.quantities import QUANTITIES
from support.rows import each_row

SAME = [
    ("Log out.", "log out"),
    ("Log out!", "Log  out"),
    ("Quote it as ‘Wake Up’", "Quote it as 'Wake Up'"),
    ("Compute a × b − c ÷ d", "compute a * b - c / d"),
    ("ANSWER WITH ONE NUMBER", "Answer with one number."),
    ("A fee applies", "a fee applies"),
    ("Do NOT call the API twice", "Do not call the API twice"),
    ("", " "),
]
"""Two ways to write one thing."""

ALIKE = [
    ("Round to two decimals.", "round to 2 decimals"),
    ("Report the margin in percent.", "Report margin in %"),
    ("Give the rate as 5 per cent", "give a rate as 5%"),
    ("Pay at most $1,000 a day", "Pay at most $1000 a day."),
    ("Always check the access token first.", "Check the access token first"),
    ("Please remember to log out.", "Log out!"),
    ("Make sure to end code blocks with a newline", "End code blocks with a newline."),
    ("Never call the API twice", "Do not call the API twice."),
    ("Don't call the API twice", "do not call the API twice"),
    ("Do NOT call the API twice", "Do not call the API twice"),
    ("This can't fail", "This cannot fail"),
    ("When you divide by cost, check for zero", "When dividing by cost, check for zero"),
    ("Before calling the API, read its specification", "Before you call the API read its specifications"),
    ("Check each page", "Check each pages"),
    ("Divide current assets by current liabilities", "Divide the current asset by the current liability"),
    ("Normalise the colours of the catalogue", "Normalize the colors of the catalog"),
    ("Report the cold-chain breach rate", "report the cold chain breach rate"),
    ("Use `show_song()` for details", "Use show_song for details"),
    ("Use **only** the customer's e-mail", "Use only the customer’s e-mail"),
    ("Round to a 2-decimal number", "Round to a 2 decimal number"),
    ("Always link to the-shop.com.", "Link to the-shop.com"),
    ("Divide debts/equity", "Divide debt / equity"),
    ("Combine masks with & in brackets", "Combine masks with and in brackets"),
    ("Approve tiers 1…5", "Approve tiers 1 , 5"),
    *SAME,
]
"""Two ways to say one thing, for what is rejected and for what may contradict it."""

DIFFERENT = [
    ("Report the operating margin in percent", "Report the profit margin in percent"),
    ("See item 7", "See item 8"),
    ("Round to 2 decimals", "Round to 2.0 decimals"),
    ("Answer 0.2", "Answer 0.20"),
    ("Pay 1,5 euros", "Pay 15 euros"),
    ("Pay up to 501 EUR", "Pay up to 50① EUR"),
    ("Pay up to 501. Then ask", "Pay up to 50⒈ Then ask"),
    ("Wait until 201日", "Wait until 20㏠"),
    ("Take step 12 first", "Take step ①② first"),
    ("Multiply by 2x", "Multiply by 2ˣ"),
    ("Solve it with ATb", "Solve it with Aᵀb"),
    ("Add -5", "Add 5"),
    ("Compute n-1", "Compute n+1"),
    ("Use a <= b", "Use a < b"),
    ("Use (a + b) / c", "Use a + (b / c)"),
    ("Report power in MW", "Report power in mW"),
    ("Store it in MB", "Store it in Mb"),
    ("Format with %m", "Format with %M"),
    ("Run rm -r", "Run rm -R"),
    ("Wait 5 s", "Wait 5 min"),
    ("Pay in $", "Pay in €"),
    ("Report it in percent", "Report it in percentage points"),
    ("Call the API twice", "Never call the API twice"),
    ("Refund with a receipt", "Refund without a receipt"),
    ("It is not always right", "It is not right"),
    ("Divide cost by gain", "Divide gain by cost"),
    ("Convert EUR to USD", "Convert USD to EUR"),
    ("Prefer tea over coffee", "Prefer coffee over tea"),
    ("If it rains, stay", "If you stay, it rains"),
    ("Log in. Fetch the token.", "Fetch the token. Log in."),
    ("Replace [x] by [ ]", "Replace [ ] by [x]"),
    ("Join with ', '", "Join with '; '"),
    ("Return '' then", "Return then"),
    ("Use (?:a)", "Use (a)"),
    ("Call show_song_library", "Call show_album_library"),
    ("Use page_index", "Use pageIndex"),
    ("Use v1.2 of it", "Use v1.3 of it"),
    ("For the oldest song, sort", "For the newest song, sort"),
    ("Vitamin A deficiency", "Vitamin deficiency"),
    ("Add the filing date", "Add the filling date"),
    ("Sort by rating", "Sort by rate"),
    ("When rating falls, warn", "When rate falls, warn"),
    ("List archived notes", "List archive notes"),
    ("Report net sales", "Report net sale"),
    ("Meet at 12:30", "Meet at 12:31"),
    ("Scale by 1e-5", "Scale by 1e5"),
    ("Compute a - b", "Compute a, b"),
    ("Multiply a b", "Multiply b"),
    ("After testing ends, log out", "After test ends, log out"),
    ("Calculate the tax", "Calcualte the tax"),
    ("Weigh 3–5 kg", "Weigh 3–6 kg"),
    ("Link to https://the-shop.com/pay", "Link to https://shop.com/pay"),
    ("Link to https://bit.ly/Refund", "Link to https://bit.ly/refund"),
    ("Link to payments-shop.com", "Link to payment-shop.com"),
    ("Write to complaints@mail.example", "Write to compalints@mail.example"),
    ("Empty /data/builds", "Empty /data/build"),
    ("Ask @refunds", "Ask @refund"),
    ("Install @corp/tools", "Install @corp/tool"),
    ("Open shop.com:8080/refunds", "Open shop.com:8080/refund"),
]
"""Two lessons that look alike."""

LOOK_ALIKE = """
employer employee, borrower borrowed, chloride chlorine, phosphate phosphite, deviation derivation,
complement compliment, prescribe proscribe, stationary stationery, synchronous asynchronous, contract contact,
discrete discreet, complaint compliant, causally casually, scraping scrapping, striping stripping,
immorality immortality, encrypted decrypted, included excluded, increase decrease, inflow outflow,
internal external, symmetric asymmetric, minimum maximum, fraction traction, trial trail, rating ration,
conversation conservation, hypertension hypotension, milligram kilogram, valid invalid, affect effect,
planned planed, desert dessert, customs custom, goods good, means mean, complied compiled,
discretely discreetly, refilling refiling, trialing trailing
"""
"""Words close in letters and far in meaning."""


@each_row(("one", "other"), SAME)
def test_two_ways_to_write_one_thing_are_one_lesson(one: str, other: str) -> None:
    assert same_lesson(one, other)


@each_row(("one", "other"), ALIKE)
def test_two_ways_to_say_one_thing_do_not_contradict_each_other(one: str, other: str) -> None:
    assert wording(one).words == wording(other).words
    assert same_lesson(one, other) == ((one, other) in SAME)
    assert not at_odds(one, other)


@each_row(("one", "other"), DIFFERENT)
def test_lessons_that_look_alike_stay_apart(one: str, other: str) -> None:
    assert not same_lesson(one, other)


@each_row("pair", LOOK_ALIKE.split(","))
def test_words_that_look_alike_stay_apart(pair: str) -> None:
    one, other = pair.split()
    assert not same_lesson(f"Report the {one} rate", f"Report the {other} rate")


@each_row(
    ("one", "other"),
    [
        ("Never pay invoices without approval.", "Never? Pay invoices! Not with approval."),
        ("Do not refund opened parcels.", "Not? Refund opened parcels."),
        ("No refunds for opened parcels.", "No: refunds for opened parcels."),
    ],
)
def test_punctuation_makes_no_contrary_the_same_lesson(one: str, other: str) -> None:
    assert not same_lesson(one, other)


def test_all_lessons_of_the_simulated_family_are_distinct() -> None:
    assert len({wording(one).words for one in lessons()}) == len(QUANTITIES)
    assert not [pair for pair in combinations(lessons(), 2) if same_lesson(*pair) or at_odds(*pair)]


def test_all_conventions_of_one_quantity_are_distinct() -> None:
    one = QUANTITIES[0]
    every = [c.sentence() for n in range(4) for c in possible(one.name, (one.first, one.second), n)]
    assert not [pair for pair in combinations(every, 2) if same_lesson(*pair)]


# ---- possible contradictions


@each_row(
    ("one", "other"),
    [
        ("Round to 2 decimals", "Round to four decimals."),
        ("Refund within 30 days", "Refund within 14 days"),
        ("Use the cache", "Never use the cache"),
        ("Refund with a receipt", "Refund without a receipt"),
        ("Report it with no decimals", "Report it with 2 decimals"),
        ("It can fail", "It cannot fail"),
        ("See item 7", "See item 8"),
        ("Add -5", "Add 5"),
        ("Scale by 1e5", "Scale by 1e6"),
    ],
)
def test_lessons_that_differ_only_in_figures_or_a_negation_may_contradict_each_other(
    one: str, other: str
) -> None:
    assert at_odds(one, other)
    assert not same_lesson(one, other)


@each_row(
    ("one", "other"), [("7", "8"), ("Use tea", "Use coffee"), ("a 1 b", "b 2 a"), ("Round it", "Round it.")]
)
def test_anything_else_is_no_contradiction(one: str, other: str) -> None:
    assert not at_odds(one, other)


# ---- properties

PIECES = [
    "a",
    "the",
    "not",
    "7",
    "seven",
    "-7",
    "per",
    "cent",
    "don't",
    "'x'",
    "`y`",
    "Margins",
    ";",
    ".",
    ",",
]
texts = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join),
)


@given(texts, texts)
def test_sameness_is_symmetric_and_every_text_is_its_own_lesson(one: str, other: str) -> None:
    assert same_lesson(one, one)
    assert same_lesson(one, other) == same_lesson(other, one)
    assert not (same_lesson(one, other) and at_odds(one, other))


@given(st.lists(texts, max_size=8), texts)
def test_the_index_finds_what_comparing_with_each_finds(contents: list[str], wanted: str) -> None:
    index = Index()
    for n, content in enumerate(contents):
        index.put(str(n), content)
    assert sorted(index.saying(wanted)) == [
        str(n) for n, one in enumerate(contents) if same_lesson(one, wanted)
    ]
    for n in range(len(contents)):
        others = {str(m) for m, one in enumerate(contents) if at_odds(one, contents[n])}
        assert others <= set(index.at_odds_with(str(n)))
    for n in range(len(contents)):
        index.drop(str(n))
    assert index.saying(wanted) == ()


@given(st.lists(st.tuples(st.lists(texts, max_size=4), st.sets(st.integers(0, 12))), min_size=2, max_size=4))
def test_the_index_of_a_version_is_the_same_made_from_the_one_before_or_anew(
    changes: list[tuple[list[str], set[int]]],
) -> None:
    version = Playbook(name="indexed", version=0)
    for number, (added, gone) in enumerate(changes, 1):
        left = tuple(entry for n, entry in enumerate(version.entries) if n not in gone)
        new = (Entry(id=f"{number}-{n}", section="s", content=text) for n, text in enumerate(added))
        version = version.model_copy(update={"version": number, "entries": (*left, *new)})
        made, anew = index_of(version), _indexed(version)
        for entry in version.entries:
            assert made.saying(entry.content) == anew.saying(entry.content)
            assert list(made.at_odds_with(entry.id)) == list(anew.at_odds_with(entry.id))


def test_the_index_of_a_version_with_other_words_or_another_order_is_made_anew() -> None:
    entries = tuple(Entry(id=str(n), section="s", content=f"lesson {n}") for n in range(3))
    version = Playbook(name="changed", version=1, entries=entries)
    assert list(index_of(version).at_odds_with("0")) == ["1", "2"]
    reworded = entries[1].model_copy(update={"content": "lesson 9, and more"})
    index = index_of(version.model_copy(update={"entries": (entries[0], reworded, entries[2])}))
    assert (index.saying("lesson 1"), index.saying("lesson 9, and more")) == ((), ("1",))
    index = index_of(version.model_copy(update={"entries": entries[::-1]}))
    assert list(index.at_odds_with("0")) == ["2", "1"]


def test_of_two_entries_that_say_the_same_the_other_is_found_when_one_is_gone() -> None:
    index = Index()
    index.put("a", "Calculate it")
    index.put("b", "Calculate it")
    index.drop("a")
    assert index.saying("calculate it.") == ("b",)


said = st.lists(st.sampled_from(["net", "gross", "value", "not", "12", "the"])).map(" ".join)


def test_whole_reflections_take_no_memory_from_what_entries_say() -> None:
    before = of_short.cache_info().currsize
    index = Index()
    for n in range(300):
        told = f"run {n} said that margins " * 20
        assert same_lesson(told, told.upper())
        assert not contradicts(told, "it said margins")
        index.put("e", told)
    assert of_short.cache_info().currsize <= before + 1


def test_a_thousand_entries_are_searched_at_once() -> None:
    index = Index()
    for n in range(1_000):
        index.put(f"e-{n}", f"Report the depreciation of machine {n} in percent")
    assert index.saying("report the depreciation of machine 500 in percent.") == ("e-500",)


# ---- real texts


@pytest.mark.shared
def test_all_formula_lessons_are_distinct(shared: Path) -> None:
    rows = map(json.loads, (shared / "data" / "formula_train.jsonl").read_text("utf-8").splitlines())
    found = {insight(row["context"], "", row["target"]) for row in rows}
    assert len({wording(one).words for one in found}) == len(found) == 50
    assert not [pair for pair in combinations(found, 2) if same_lesson(*pair) or at_odds(*pair)]


@pytest.mark.shared
def test_of_a_real_playbook_only_true_repeats_would_merge(shared: Path) -> None:
    _, entries, _ = parse_ace((shared / "data" / "playbook_appworld_offline.txt").read_text("utf-8"))
    pairs = [(a.content, b.content) for a, b in combinations(entries, 2) if same_lesson(a.content, b.content)]
    assert len(pairs) == 8
    alike = [one.casefold().rstrip() for pair in pairs for one in pair]
    assert alike[::2] == alike[1::2]
