from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from combee.core.methods import consolidation
from combee.core.methods.ace import aggregate_prompt, combine_prompt
from combee.core.playbook.operations import read_operations
from combee.core.playbook.versions import empty
from combee_schemas.batch import Cluster
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_sim.family.family import lessons
from combee_sim.inprocess import as_request
from combee_sim.law.law import LAW, Law
from combee_sim.roles.aggregator import aggregate, load
from combee_sim.roles.reading import Reading, read
from support.rows import each_row
from support.worded import in_full


def rng(seed: int) -> Random:
    return Random(seed)


LESSONS = lessons()
ALL = Law(half_tokens=1e12, steepness=1.0)
"""A law under which everything is kept."""
WORDS = "the run took an odd turn and came out with another figure than the one that was wanted here"


def reflection(lesson: str, words: str = WORDS) -> Reflection:
    prose = " ".join([words] * 3)
    return Reflection(
        reflection_id="r",
        playbook="p",
        reasoning=prose,
        error_identification=prose,
        root_cause_analysis=prose,
        correct_approach=words,
        key_insight=lesson,
    )


def reading_of(reflections: Sequence[Reflection], base: Playbook | None = None) -> Reading:
    return read(as_request(aggregate_prompt(base or empty("p"), reflections)))


def operations_of(reading: Reading, law: Law = LAW, seed: int = 0) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = in_full(aggregate(reading, seed, law), reading)["operations"]
    return operations


def kept(reading: Reading, law: Law = LAW, seed: int = 0) -> list[str]:
    return [operation["content"] for operation in operations_of(reading, law, seed)]


def with_entry(content: str) -> Playbook:
    entry = Entry(id="calc-00007", section="FORMULAS & CALCULATIONS", content=content)
    return empty("p").model_copy(update={"entries": (entry,)})


@each_row("seed", range(5))
def test_order_and_wording_of_what_is_no_lesson_change_nothing(seed: int) -> None:
    plain = [reflection(lesson) for lesson in LESSONS[:40]]
    mixed = [reflection(lesson, "Quite different: it went as it goes.") for lesson in LESSONS[:40]]
    rng(seed).shuffle(mixed)
    before, after = operations_of(reading_of(plain)), operations_of(reading_of(mixed))
    assert [one["content"] for one in before] == [one["content"] for one in after]
    assert [one["section"] for one in before] == [one["section"] for one in after]


def test_the_same_lesson_with_other_case_spacing_and_punctuation_is_one_lesson() -> None:
    twins = ["Lock the gate, always.", "lock  the gate always", "LOCK THE GATE: ALWAYS!"]
    reading = reading_of([reflection(lesson) for lesson in twins])
    assert len(load(reading).distinct) == 1
    assert operations_of(reading, ALL)[0]["sources"] == [1, 2, 3]


def test_lessons_that_differ_in_a_sign_or_a_digit_are_two() -> None:
    texts = ["x = a + b", "x = a - b", "round to 0.5", "round to 0.25"]
    assert len(load(reading_of([reflection(lesson) for lesson in texts])).distinct) == 4


def test_a_kept_lesson_is_passed_on_verbatim_with_the_items_it_rests_on() -> None:
    lesson = "Check the tide table (twice); then cast off."
    reading = reading_of([reflection("Feed the fish."), reflection(lesson), reflection(lesson)])
    body = in_full(aggregate(reading, 0, ALL), reading)
    answer = read_operations(body, [("r-1",), ("r-2",), ("r-3",)])
    found = answer.operations
    assert answer.unusable == 0
    assert {one.content: one.evidence for one in found}[lesson] == ("r-2", "r-3")
    assert {one.kind for one in found} == {OperationKind.ADD}


def test_words_that_an_item_has_are_its_words_by_its_number_if_the_prompt_allows_it() -> None:
    twins = [reflection("Feed the fish."), reflection(LESSONS[0].upper()), reflection(LESSONS[0])]
    asked = as_request(aggregate_prompt(empty("p"), twins))
    said = [one["content"] for one in aggregate(read(asked), 0, ALL)["operations"]]
    assert sorted(said) == ["as item 1", "as item 2"]
    system, *others = asked["messages"]
    unasked = {**system, "content": system["content"].replace("as item 3", "")}
    body = aggregate(read({**asked, "messages": [unasked, *others]}), 0, ALL)
    assert sorted(one["content"] for one in body["operations"]) == ["Feed the fish.", LESSONS[0].upper()]


def test_the_share_kept_falls_as_more_is_read() -> None:
    shares = [len(kept(reading_of([reflection(x) for x in LESSONS[:n]]))) / n for n in (4, 16, 64)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0] / 2


def test_reading_the_same_lessons_in_much_longer_reflections_costs_more() -> None:
    short = reading_of([reflection(lesson) for lesson in LESSONS[:30]])
    long = reading_of([reflection(lesson, " ".join([WORDS] * 12)) for lesson in LESSONS[:30]])
    assert load(long).tokens > 4 * load(short).tokens
    assert len(kept(long)) < len(kept(short))


def test_copies_are_read_too_and_add_no_lesson() -> None:
    once = reading_of([reflection(lesson) for lesson in LESSONS[:20]])
    twice = reading_of([reflection(lesson) for lesson in LESSONS[:20] * 2])
    assert load(twice).distinct == load(once).distinct
    assert load(twice).tokens == 2 * load(once).tokens


def test_the_draw_depends_on_the_seed_and_on_the_other_lessons() -> None:
    reading = reading_of([reflection(lesson) for lesson in LESSONS])
    assert len({tuple(kept(reading, seed=seed)) for seed in range(5)}) > 1
    assert kept(reading) == kept(reading)


def test_a_lesson_that_contradicts_an_entry_corrects_it() -> None:
    wrong = LESSONS[0].replace("one minus ", "")
    operation = operations_of(reading_of([reflection(LESSONS[0])], with_entry(wrong)), ALL)[0]
    assert (operation["type"], operation["entry_ids"]) == ("UPDATE", ["calc-00007"])
    assert operation["content"] == LESSONS[0]


def test_a_lesson_the_playbook_already_has_is_known() -> None:
    twins = [reflection("Feed the fish."), reflection(LESSONS[0]), reflection(LESSONS[0].upper())]
    reading = reading_of(twins, with_entry(LESSONS[0]))
    body = in_full(aggregate(reading, 0, ALL), reading)
    assert [one["content"] for one in body["operations"]] == ["Feed the fish."]
    assert body["known"] == [{"n": n, "entry_id": "calc-00007"} for n in (2, 3)]


def test_who_is_not_asked_what_is_known_proposes_it_again() -> None:
    asked = as_request(aggregate_prompt(with_entry(LESSONS[0]), [reflection(LESSONS[0])]))
    system, *others = asked["messages"]
    older = {**asked, "messages": [{**system, "content": system["content"].replace('"known"', "")}, *others]}
    (operation,) = operations_of(read(older), ALL)
    assert (operation["type"], operation["entry_ids"]) == ("ADD", [])


def test_a_correction_that_entries_have_already_is_no_repeat() -> None:
    merge = Operation(kind=OperationKind.MERGE, content=LESSONS[0], entry_ids=("calc-00007", "calc-00009"))
    body = aggregate(read(as_request(combine_prompt(with_entry(LESSONS[0]), [merge]))), 0, ALL)
    assert ([one["type"] for one in body["operations"]], body["known"]) == (["MERGE"], [])


def test_of_contradicting_lessons_the_one_more_reflections_carry_goes_on() -> None:
    reading = reading_of([reflection(RIVAL), reflection(LESSONS[0]), reflection(LESSONS[0])])
    assert kept(reading, ALL) == [LESSONS[0]]


RIVAL = LESSONS[0].replace("one minus ", "")
TWO, THREE = (RIVAL.replace("1 decimal", f"{n} decimals") for n in (2, 3))
NAMES = {"r-0": "shop", "r-1": "desk"}


def proposed(content: str, *evidence: str) -> Operation:
    return Operation(kind=OperationKind.ADD, content=content, evidence=evidence)


@each_row(
    ("proposals", "holds"),
    [
        ([proposed(LESSONS[0], "r-8", "r-9"), proposed(RIVAL, "r-0", "r-1")], RIVAL),
        ([proposed(RIVAL, "r-0", "r-1"), proposed(LESSONS[0], "r-7", "r-8", "r-9")], RIVAL),
        ([proposed(LESSONS[0], "r-9"), proposed(RIVAL, "r-7", "r-8")], RIVAL),
        ([proposed(LESSONS[0], "r-9"), proposed(RIVAL, "r-8")], LESSONS[0]),
        ([proposed(TWO, "r-9"), proposed(THREE, "r-8")], THREE),
        ([proposed(THREE, "r-9"), proposed(TWO, "r-8")], TWO),
    ],
    ids=["producers", "producers first", "reflections", "the more specific", "the later", "the later again"],
)
def test_of_contradicting_proposals_the_better_supported_goes_on(
    proposals: list[Operation], holds: str
) -> None:
    assert kept(read(as_request(combine_prompt(empty("p"), proposals, NAMES))), ALL) == [holds]


def test_who_is_not_told_what_support_is_does_not_count_it() -> None:
    asked = as_request(
        combine_prompt(empty("p"), [proposed(LESSONS[0], "r-9"), proposed(RIVAL, "r-7", "r-8")])
    )
    system, user = asked["messages"]
    older = {**asked, "messages": [system, {**user, "content": user["content"].replace('"support"', "")}]}
    assert kept(read(asked), ALL) == [RIVAL]
    assert kept(read(older), ALL) == [LESSONS[0]]


def test_a_combine_call_follows_the_same_law_over_proposals() -> None:
    adds = [Operation(kind=OperationKind.ADD, section="OTHERS", content=x) for x in LESSONS[:40]]
    reading = read(as_request(combine_prompt(empty("p"), adds)))
    share = len(kept(reading)) / 40
    assert share == pytest.approx(LAW.keep_fraction(load(reading).tokens), abs=1 / 40)


def test_a_combine_call_passes_corrections_on() -> None:
    update = Operation(kind=OperationKind.UPDATE, content="Lock it.", entry_ids=("misc-00003",))
    operation = operations_of(read(as_request(combine_prompt(empty("p"), [update]))), ALL)[0]
    assert (operation["type"], operation["entry_ids"]) == ("UPDATE", ["misc-00003"])


@each_row(
    ("lesson", "section"),
    [
        (LESSONS[0], "FORMULAS & CALCULATIONS"),
        ("Use the tag LongTermDebt for the entity in a sentence on debt.", "CONTEXT CLUES & INDICATORS"),
        ("Never trust the first gauge.", "COMMON MISTAKES TO AVOID"),
        ("Be kind to the crew.", "STRATEGIES & INSIGHTS"),
    ],
)
def test_the_section_follows_from_the_lesson_alone(lesson: str, section: str) -> None:
    assert operations_of(reading_of([reflection(lesson)]), ALL)[0]["section"] == section


def test_of_clusters_it_merges_what_is_one_lesson_and_removes_what_harms() -> None:
    contents = {"e-1": LESSONS[0], "e-2": LESSONS[0].upper(), "e-3": LESSONS[1], "e-4": LESSONS[2]}
    entries = tuple(Entry(id=name, section="OTHERS", content=text) for name, text in contents.items())
    base = empty("p").model_copy(update={"entries": entries})
    asked = (
        Cluster(why="alike", entry_ids=("e-1", "e-2", "e-3")),
        Cluster(why="harmful", entry_ids=("e-4",)),
    )
    body = aggregate(read(as_request(consolidation.prompt(base, asked))), 0)
    found = [(operation["type"], operation["entry_ids"]) for operation in body["operations"]]
    assert found == [("MERGE", ["e-1", "e-2"]), ("REMOVE", ["e-4"])]
