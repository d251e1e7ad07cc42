"""What the playbook says already, by the model's word: read, checked, counted."""

from typing import Any

import pytest
from combee.core.playbook.known import of_combine, of_group, plausible, texts_of, word_for_word

from combee.core.playbook.operations import read_operations
from combee.core.playbook.versions import empty
from combee_schemas.base import Shown
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Echo, Known, Operation, OperationKind, Seen
from combee_sim.family.family import lessons
from support.rows import each_row

ITEMS = [("r-1",), ("r-2",), ("r-3",)]


def playbook(*contents: str) -> Playbook:
    entries = tuple(
        Entry(id=f"e-{n:05d}", section=ACE_SECTIONS[0], content=content, created_version=3)
        for n, content in enumerate(contents, 1)
    )
    return empty("p").model_copy(update={"version": 7, "entries": entries})


# ---- reading


def read(known: Any) -> dict[int, str]:
    return dict(read_operations({"operations": [], "dropped": [], "known": known}, ITEMS).known)


def test_a_reply_says_which_entry_says_an_item_already() -> None:
    assert read([{"n": 2, "entry_id": "calc-00003"}]) == {2: "calc-00003"}


@each_row(
    "said",
    [None, "all", [2], [None], [{}], [{"n": 9, "entry_id": "x"}], [{"n": True, "entry_id": "x"}],
     [{"n": 1}], [{"n": 1, "entry_id": 7}], [{"n": 1, "entry_id": " "}], [{"n": [1], "entry_id": "x"}]],
    ids=str,
)  # fmt: skip
def test_a_claim_that_names_no_item_or_no_entry_is_not_said(said: Any) -> None:
    assert read(said) == {}


def test_of_several_claims_on_one_item_the_first_counts() -> None:
    assert read([{"n": 1, "entry_id": "a"}, {"n": 1, "entry_id": "b"}]) == {1: "a"}


def test_what_is_known_is_not_mentioned_until_code_has_checked_it() -> None:
    answer = read_operations({"operations": [], "dropped": [3], "known": [{"n": 1, "entry_id": "x"}]}, ITEMS)
    assert answer.mentioned == answer.dropped == frozenset({3})


# ---- plausible or not

BASE = playbook(
    "When listing songs, page through all results until a page is empty before counting them.",
    "Look at an API's documentation before calling it for the first time.",
    "Compute dates such as yesterday from the current date instead of writing them into the code.",
    "Refund opened parcels less a restocking fee of 15 %.",
)
PARAPHRASES = {
    "e-00001": "The agent counted only the first page of songs; it must go on until a page comes back empty.",
    "e-00002": "Read the documentation first, then call the API.",
    "e-00003": "Never hardcode yesterday: derive dates from the current date.",
    "e-00004": "For parcels that were opened subtract the 15 % fee for restocking from the refund.",
}


@pytest.mark.parametrize("entry_id", PARAPHRASES)
def test_a_paraphrase_of_an_entry_is_plausible_and_no_other_claim_about_it_is(entry_id: str) -> None:
    texts = [(PARAPHRASES[entry_id],)]
    assert plausible(BASE, {1: entry_id}, texts) == {1: entry_id}
    assert all(not plausible(BASE, {1: other}, texts) for other in PARAPHRASES if other != entry_id)


def test_a_claim_between_other_figures_of_one_unit_is_refused() -> None:
    base = playbook("Refund opened parcels within 14 days.")
    other = "Opened parcels are refunded within 30 days."
    assert plausible(base, {1: "e-00001"}, [(other,)]) == {}
    assert plausible(base, {1: "e-00001"}, [(other, "Refund opened parcels.")]) == {}
    assert plausible(base, {1: "e-00001"}, [("Refund opened parcels within two weeks.",)]) == {1: "e-00001"}


def test_an_invented_entry_says_nothing() -> None:
    assert plausible(BASE, {1: "calc-99999"}, [(PARAPHRASES["e-00001"],)]) == {}


def test_an_item_without_words_is_known_nowhere() -> None:
    assert plausible(BASE, {1: "e-00001", 2: "e-00001"}, [("",), ("…",)]) == {}


def test_lessons_of_one_frame_are_told_apart_by_their_rare_words() -> None:
    family = lessons()
    base = playbook(*family)
    ids = [entry.id for entry in base.entries]
    own = dict(enumerate(ids, 1))
    texts = [(lesson,) for lesson in family]
    assert plausible(base, own, texts) == own
    others = {n: ids[n % len(ids)] for n in own}
    assert len(plausible(base, others, texts)) <= len(own) // 5


def test_a_reflection_is_known_by_what_it_would_have_agents_do() -> None:
    reflection = Reflection(
        reflection_id="r",
        playbook="p",
        reasoning="It went wrong.",
        key_insight="Read on.",
        correct_approach="Page.",
    )
    assert texts_of(reflection) == ("Read on.", "Page.")


def test_who_says_an_entry_word_for_word_needs_no_models_word() -> None:
    given = [
        Reflection(reflection_id=name, playbook="p", key_insight=words)
        for name, words in (
            ("a", "Look at the API's documentation, before calling it for the first time!"),
            ("b", PARAPHRASES["e-00002"]),
            ("c", ""),
        )
    ]
    assert word_for_word(BASE, given) == {1: "e-00002"}


# ---- evidence or echo


WORDS = BASE.entries[0].content


def proposed(*evidence: str, guessed: tuple[str, ...] = (), content: str = WORDS) -> Operation:
    return Operation(kind=OperationKind.ADD, content=content, evidence=evidence, guessed=guessed)


def reflection(name: str, *shown: str, version: int = 6, insight: str = WORDS) -> Reflection:
    return Reflection(
        reflection_id=name,
        playbook="p",
        key_insight=insight,
        shown=Shown(version=version, entry_ids=shown) if shown else None,
    )


def test_of_a_group_what_an_agent_was_not_shown_is_evidence_and_what_it_was_is_an_echo() -> None:
    given = [
        reflection("a", "e-00001"),
        reflection("b", "e-00002"),
        reflection("c"),
        reflection("d", "e-00001", version=2),
    ]
    claims = dict.fromkeys((1, 2, 3, 4), "e-00001")
    assert of_group(BASE, claims, given) == (
        (Known(entry_id="e-00001", evidence=("b", "c", "d")),),
        (Echo(entry_id="e-00001", evidence=("a",)),),
    )


LESS = WORDS.partition(",")[2]


@pytest.mark.parametrize("insight", [LESS, PARAPHRASES["e-00001"], f"{WORDS} Then stop."])
def test_who_does_not_say_all_of_an_entry_is_a_guess_for_it(insight: str) -> None:
    known, _ = of_group(BASE, {1: "e-00001"}, [reflection("a", insight=insight)])
    assert known == (Known(entry_id="e-00001", evidence=("a",), guessed=("a",)),)
    seen = [Seen(reflection_id="a", offset=0, covered="check")]
    assert of_combine(BASE, {1: "e-00001"}, [proposed("a", content=insight)], seen)[0] == known


def test_what_is_only_proposed_is_known_to_those_alone_who_say_all_of_it() -> None:
    entry = BASE.entries[0].model_copy(update={"state": "proposed"})
    base = BASE.model_copy(update={"entries": (entry,)})
    claims = dict.fromkeys((1, 2, 3), "e-00001")
    assert plausible(base, claims, [(LESS,), (PARAPHRASES["e-00001"],), (WORDS,)]) == {3: "e-00001"}


def test_of_a_combine_what_an_agent_may_have_been_shown_is_no_evidence() -> None:
    proposal = proposed("a", "b", "c", "d", "guessed")
    seen = [
        Seen(reflection_id="a", offset=0, covered="check", shown_version=3),
        Seen(reflection_id="b", offset=0, covered="check", shown_version=2),
        Seen(reflection_id="c", offset=0, covered="check"),
        Seen(reflection_id="d", offset=0, covered="check", shown_version=0),
        Seen(reflection_id="guessed", offset=0),
    ]
    assert of_combine(BASE, {1: "e-00001"}, [proposal], seen) == (
        (Known(entry_id="e-00001", evidence=("b", "c", "d")),),
        (Echo(entry_id="e-00001", evidence=("a",)),),
    )


def test_of_a_combine_what_only_a_guess_by_words_names_is_marked() -> None:
    seen = [Seen(reflection_id=name, offset=0, covered="check") for name in "abc"]
    proposals = [proposed("a", "b", "c", guessed=("b", "c")), proposed("c")]
    assert of_combine(BASE, {1: "e-00001", 2: "e-00001"}, proposals, seen)[0] == (
        Known(entry_id="e-00001", evidence=("a", "b", "c"), guessed=("b",)),
    )


def test_of_a_combine_nothing_echoes_an_entry_that_is_only_proposed() -> None:
    entry = BASE.entries[0].model_copy(update={"state": "proposed"})
    base = BASE.model_copy(update={"entries": (entry,)})
    seen = [Seen(reflection_id="a", offset=0, covered="check", shown_version=7)]
    known = (Known(entry_id="e-00001", evidence=("a",)),)
    assert of_combine(base, {1: "e-00001"}, [proposed("a")], seen) == (known, ())
