from itertools import combinations, product
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook import versions
from combee.core.playbook.entries import apply_operations, evictions, finish
from combee.core.playbook.operations import MAX_OPERATIONS
from combee.core.playbook.sections import same_section, section_key, slug
from combee.core.playbook.similarity import same_lesson
from combee.core.playbook.versions import empty
from combee_schemas.base import Usage
from combee_schemas.codec import decode, encode
from combee_schemas.command import Command
from combee_schemas.plan import Plan
from combee_schemas.playbook import ACE_SECTIONS, EVIDENCE_KEPT, RETIRED_KEPT, Entry, Playbook, Retired
from combee_schemas.scan import Echo, Operation, OperationKind, Seen, Update
from support.flat import changed, flat
from support.ledger import batch_of

ADD, UPDATE, MERGE, REMOVE = (
    OperationKind.ADD,
    OperationKind.UPDATE,
    OperationKind.MERGE,
    OperationKind.REMOVE,
)
FORMULAS = ACE_SECTIONS[1]
PLENTY = 10**9


def entry(entry_id: str, content: str, **fields: Any) -> Entry:
    return Entry.model_validate({"id": entry_id, "section": FORMULAS, "content": content, **fields})


def op(
    kind: OperationKind, content: str = "", *ids: str, evidence: tuple[str, ...] = (), **fields: Any
) -> Operation:
    return Operation(kind=kind, section=FORMULAS, content=content, entry_ids=ids, evidence=evidence, **fields)


def seen(reflection_id: str, *tags: tuple[str, str], ok: bool = True) -> Seen:
    return Seen.model_validate(
        {
            "reflection_id": reflection_id,
            "offset": 0,
            "ok": ok,
            "tags": [{"id": i, "tag": t} for i, t in tags],
        }
    )


NOUNS = [
    "margin",
    "ratio",
    "tax",
    "rate",
    "yield",
    "cost",
    "price",
    "loan",
    "bond",
    "share",
    "asset",
    "debt",
    "fee",
]
REPEAT = ("Please round margin to 2 decimals.",)
BASE = empty("p").model_copy(
    update={
        "version": 4,
        "next_id": 8,
        "entries": (
            entry("calc-00001", "one", helpful=2, evidence=("r-1",), evidence_count=1, updated_version=2),
            entry(
                "calc-00002", "two", harmful=1, evidence=("r-2", "r-3"), evidence_count=30, updated_version=3
            ),
            entry("calc-00007", "seven", helpful=5, evidence=("r-4",), evidence_count=1, updated_version=4),
        ),
    }
)


def applied(
    *operations: Operation,
    seen_: tuple[Seen, ...] = (),
    revoked: tuple[str, ...] = (),
    base: Playbook | None = None,
) -> Playbook:
    base = base or BASE
    draft = apply_operations(base, operations, seen_, revoked=revoked)
    sections, entries = finish(base, draft, PLENTY)
    return base.model_copy(
        update={
            "entries": entries,
            "sections": sections,
            "changes": tuple(draft.changes),
            "next_id": draft.next_id,
        }
    )


def get(playbook: Playbook, entry_id: str) -> Entry:
    return {one.id: one for one in playbook.entries}[entry_id]


def changes(playbook: Playbook) -> list[tuple[str, str]]:
    return [(one.kind, one.entry_id) for one in playbook.changes]


# ---- each operation


def test_an_addition_gets_the_next_id_of_its_section_and_its_evidence() -> None:
    after = applied(op(ADD, "eight", evidence=("r-9",)))
    added = get(after, "calc-00008")
    assert (added.content, added.evidence, added.evidence_count) == ("eight", ("r-9",), 1)
    assert (added.created_version, added.updated_version, after.next_id) == (5, 5, 9)
    assert changes(after) == [("add", "calc-00008")]


def test_an_addition_of_what_is_there_already_strengthens_it_and_drops_nothing() -> None:
    after = applied(op(ADD, " ONE. ", evidence=("r-9", "r-1")), op(ADD, "one", evidence=("r-10",)))
    assert get(after, "calc-00001").evidence == ("r-1", "r-9", "r-10")
    assert get(after, "calc-00001").evidence_count == 3
    assert changes(after) == [("duplicate", "calc-00001")] * 2
    assert len(after.entries) == 3


def test_an_addition_of_what_was_said_before_the_entry_changed_is_new() -> None:
    after = applied(op(UPDATE, "one, but better", "calc-00001"), op(ADD, "one"))
    assert [one.content for one in after.entries] == ["one, but better", "two", "seven", "one"]


def test_an_addition_finds_what_an_earlier_operation_said() -> None:
    after = applied(op(UPDATE, "new", "calc-00001"), op(ADD, "new"), op(ADD, "more"), op(ADD, "More"))
    assert [one.content for one in after.entries] == ["new", "two", "seven", "more"]


def test_an_addition_of_what_was_removed_is_new() -> None:
    after = applied(op(REMOVE, "", "calc-00001"), op(ADD, "one"))
    assert [one.id for one in after.entries] == ["calc-00002", "calc-00007", "calc-00008"]


def test_an_update_keeps_id_counters_and_lineage() -> None:
    changed = get(applied(op(UPDATE, "better", "calc-00001", evidence=("r-9",))), "calc-00001")
    assert (changed.content, changed.helpful, changed.evidence) == ("better", 2, ("r-1", "r-9"))
    assert (changed.created_version, changed.updated_version) == (0, 5)


def test_a_merge_keeps_the_first_and_adds_everything_up() -> None:
    after = applied(op(MERGE, "one and two", "calc-00001", "calc-00002", evidence=("r-9",)))
    kept = get(after, "calc-00001")
    assert [one.id for one in after.entries] == ["calc-00001", "calc-00007"]
    assert (kept.helpful, kept.harmful, kept.evidence_count) == (2, 1, 32)
    assert kept.evidence == ("r-1", "r-2", "r-3", "r-9")
    assert changes(after) == [("merge", "calc-00002"), ("update", "calc-00001")]


def test_a_merge_of_what_is_left_of_its_entries_still_happens() -> None:
    after = applied(op(REMOVE, "", "calc-00001"), op(MERGE, "merged", "calc-00001", "calc-00002"))
    assert get(after, "calc-00002").content == "merged"


def test_a_merge_of_an_entry_with_itself_counts_nothing_twice() -> None:
    kept = get(applied(op(MERGE, "one", "calc-00001", "calc-00001")), "calc-00001")
    assert (kept.helpful, kept.evidence_count) == (2, 1)


def test_a_removal_removes_and_remembers_what_went() -> None:
    after = applied(op(REMOVE, "", "calc-00001"))
    assert [one.id for one in after.entries] == ["calc-00002", "calc-00007"]
    assert (after.changes[0].kind, after.changes[0].detail) == ("remove", "one")


@pytest.mark.parametrize("kind", [UPDATE, MERGE, REMOVE])
@pytest.mark.parametrize("ids", [(), ("gone",), ("gone", "gone-too")], ids=str)
def test_an_operation_on_entries_that_vanished_is_recorded_and_changes_nothing(
    kind: OperationKind, ids: tuple[str, ...]
) -> None:
    after = applied(op(kind, "c", *ids))
    assert after.entries == BASE.entries
    assert [kind for kind, _ in changes(after)] == ["dropped"]


def test_operations_apply_in_order() -> None:
    after = applied(op(ADD, "eight"), op(UPDATE, "EIGHT!", "calc-00008"), op(REMOVE, "", "calc-00007"))
    assert [one.content for one in after.entries] == ["one", "two", "EIGHT!"]


def test_a_new_section_comes_after_the_known_ones() -> None:
    new = op(ADD, "x").model_copy(update={"section": "REFUND RULES"})
    after = applied(new)
    assert after.sections == (*ACE_SECTIONS, "REFUND RULES")
    assert after.entries[-1].id == "rr-00008"


def test_sections_keep_their_names_and_other_spellings_of_a_header_mean_the_same_section() -> None:
    own = BASE.model_copy(update={"sections": ("general", "APIs TO USE")})
    names = (
        "GENERAL",
        "apis_to_use",
        "## General:",
        "Refund rules",
        "REFUND-RULES",
        "formulas and calculations",
    )
    adds = [
        op(ADD, f"{word} is the rule").model_copy(update={"section": name})
        for word, name in zip(("red", "blue", "green", "black", "white", "brown"), names, strict=True)
    ]
    after = applied(*adds, base=own)
    found = [entry.section for entry in after.entries[-6:]]
    assert found == ["general", "APIs TO USE", "general", "Refund rules", "Refund rules", ACE_SECTIONS[1]]
    assert {"general", "APIs TO USE", "Refund rules"} <= set(after.sections)
    assert not {"GENERAL", "APIS TO USE", "REFUND-RULES"} & set(after.sections)


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("general", "  GENERAL ", True),
        ("STRATEGIES & INSIGHTS", "strategies_and_insights", True),
        ("Problem-solving heuristics", "PROBLEM SOLVING HEURISTICS.", True),
        ("Straße", "STRASSE", True),
        ("API", "APIs", False),
        ("§", "§§", False),
        ("C", "C++", False),
        ("", "OTHERS", False),
    ],
)
def test_one_normal_form_decides_whether_two_headers_are_the_same(
    name: str,
    other: str,
    same: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert (section_key(name) == section_key(other)) is same
    assert same_section(other, [name]) == (name if same else other)


def test_of_two_headers_that_are_spelt_alike_each_keeps_its_own_entries() -> None:
    assert same_section("general", ["General", "general"]) == "general"
    assert same_section("GENERAL", ["General", "general"]) == "General"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        *zip(ACE_SECTIONS, ["str", "calc", "code", "err", "prob", "ctx", "misc"], strict=True),
        ("", "misc"),
        ("§", "misc"),
        ("a b c d e f", "abcd"),
    ],
)
def test_ids_begin_with_their_section(section: str, expected: str) -> None:
    assert slug(section) == expected


# ---- merge, never drop


def test_an_addition_in_other_words_strengthens_the_entry_and_history_keeps_its_words() -> None:
    after = applied(
        op(ADD, "Round the margins to two decimals", evidence=("r-8",)), op(ADD, *REPEAT, evidence=("r-9",))
    )
    added = get(after, "calc-00008")
    assert (added.content, added.evidence) == ("Round the margins to two decimals", ("r-8", "r-9"))
    assert (after.changes[-1].kind, after.changes[-1].detail) == (
        "duplicate",
        f"1 more reflections say so: {REPEAT[0]}",
    )


def test_lessons_that_differ_in_one_noun_or_number_stay_two() -> None:
    contents = [
        "Give the operating margin in percent",
        "Give the profit margin in percent",
        "See item 7",
        "See item 8",
    ]
    assert [one.content for one in applied(*(op(ADD, one) for one in contents)).entries[3:]] == contents


def test_an_update_that_says_the_same_leaves_the_entry_s_words_as_they_are() -> None:
    kept = get(applied(op(UPDATE, "ONE!", "calc-00001", evidence=("r-9",))), "calc-00001")
    assert (kept.content, kept.evidence) == ("one", ("r-1", "r-9"))


def test_people_may_reword_an_entry() -> None:
    assert get(applied(op(UPDATE, "One.", "calc-00001")), "calc-00001").content == "One."


def test_an_update_that_makes_an_entry_say_what_another_says_folds_it_into_that_one() -> None:
    after = applied(op(UPDATE, "Two.", "calc-00001", evidence=("r-9", "r-2")))
    kept = get(after, "calc-00002")
    assert [one.id for one in after.entries] == ["calc-00002", "calc-00007"]
    assert (kept.content, kept.helpful, kept.harmful) == ("two", 2, 1)
    assert (kept.evidence, kept.evidence_count) == (("r-2", "r-3", "r-1", "r-9"), 32)
    assert [(one.kind, one.entry_id, one.detail) for one in after.changes] == [
        ("merge", "calc-00001", "into calc-00002: one"),
        ("duplicate", "calc-00002", "2 more reflections say so"),
    ]


def test_a_merge_that_says_what_a_third_entry_says_folds_into_that_one() -> None:
    after = applied(op(MERGE, "Seven", "calc-00001", "calc-00002", evidence=("r-9",)))
    (kept,) = after.entries
    assert (kept.id, kept.content, kept.helpful, kept.harmful, kept.evidence_count) == (
        "calc-00007",
        "seven",
        7,
        1,
        33,
    )
    assert changes(after) == [("merge", "calc-00002"), ("merge", "calc-00001"), ("duplicate", "calc-00007")]


def test_evidence_that_two_merged_entries_share_counts_once() -> None:
    base = BASE.model_copy(
        update={
            "entries": tuple(
                e.model_copy(update={"evidence": ("r-1",), "evidence_count": 1}) for e in BASE.entries
            )
        }
    )
    draft = apply_operations(base, [op(MERGE, "all", "calc-00001", "calc-00002", "calc-00007")], ())
    assert [(one.evidence, one.evidence_count) for one in draft.entries.values()] == [(("r-1",), 1)]


# ---- operations of one batch that contradict each other

OLD, NEW, NEWEST = (
    seen("r-old").model_copy(update={"offset": 10}),
    seen("r-new").model_copy(update={"offset": 20}),
    seen("r-newest").model_copy(update={"offset": 30}),
)


def contested(*operations: Operation) -> Playbook:
    return applied(*operations, seen_=(NEWEST, OLD, NEW))


@pytest.mark.parametrize("in_order", [1, -1], ids=["old first", "new first"])
def test_of_two_corrections_of_one_entry_the_one_with_the_newest_evidence_wins(in_order: int) -> None:
    operations = [
        op(UPDATE, "14 days", "calc-00001", evidence=("r-old", "r-newest")),
        op(UPDATE, "30 days", "calc-00001", evidence=("r-new",)),
    ][::in_order]
    after = contested(*operations)
    assert get(after, "calc-00001").content == "14 days"
    assert get(after, "calc-00001").evidence == ("r-1", "r-old", "r-newest")
    assert [(one.kind, one.detail) for one in after.changes] == [
        ("superseded", "UPDATE: 30 days"),
        ("update", "one"),
    ]


def test_a_removal_with_older_evidence_does_not_remove_what_was_corrected_since() -> None:
    after = contested(
        op(UPDATE, "better", "calc-00001", evidence=("r-new",)),
        op(REMOVE, "", "calc-00001", evidence=("r-old",)),
    )
    assert get(after, "calc-00001").content == "better"
    assert changes(after) == [("superseded", "calc-00001"), ("update", "calc-00001")]


def test_a_removal_with_newer_evidence_wins_over_a_merge_which_leaves_its_other_entries_alone() -> None:
    after = contested(
        op(REMOVE, "", "calc-00001", evidence=("r-newest",)),
        op(MERGE, "both", "calc-00001", "calc-00002", evidence=("r-old",)),
    )
    assert [one.content for one in after.entries] == ["two", "seven"]
    assert (after.changes[0].kind, after.changes[0].detail) == ("superseded", "MERGE: both")


def test_between_equals_the_later_operation_wins() -> None:
    after = contested(*(op(UPDATE, text, "calc-00001", evidence=("r-old",)) for text in ("first", "second")))
    assert get(after, "calc-00001").content == "second"


def test_operations_that_do_the_same_rest_on_the_evidence_of_both() -> None:
    after = contested(
        op(UPDATE, "The better one", "calc-00001", evidence=("r-newest",)),
        op(UPDATE, "better one", "calc-00001", evidence=("r-old",)),
    )
    assert get(after, "calc-00001").evidence == ("r-1", "r-old", "r-newest")
    assert changes(after) == [("duplicate", "calc-00001"), ("update", "calc-00001")]


def test_operations_of_people_are_all_meant() -> None:
    after = contested(op(UPDATE, "first", "calc-00001"), op(UPDATE, "second", "calc-00001"))
    assert changes(after) == [("update", "calc-00001")] * 2


def test_operations_that_have_only_a_vanished_entry_in_common_do_not_contradict_each_other() -> None:
    after = contested(
        op(MERGE, "a", "gone", "calc-00001", evidence=("r-old",)),
        op(MERGE, "b", "gone", "calc-00002", evidence=("r-new",)),
    )
    assert [one.content for one in after.entries] == ["a", "b", "seven"]


def test_evidence_that_is_revoked_wins_nothing() -> None:
    operations = [
        op(UPDATE, "good", "calc-00001", evidence=("r-old",)),
        op(UPDATE, "bad", "calc-00001", evidence=("r-newest",)),
    ]
    after = applied(*operations, seen_=(NEWEST, OLD), revoked=("r-newest",))
    assert get(after, "calc-00001").content == "good"


# ---- possible contradictions between entries


def test_entries_that_differ_only_in_figures_or_a_negation_are_both_kept_and_recorded_once() -> None:
    after = applied(
        op(ADD, "Refund within 14 days"),
        op(ADD, "Refund within 30 days"),
        op(ADD, "Cash only"),
        op(ADD, "Not cash only"),
    )
    assert len(after.entries) == 7
    assert [(c.entry_id, c.detail) for c in after.changes if c.kind == "conflict"] == [
        ("calc-00008", "in figures or a negation, with calc-00009: Refund within 30 days"),
        ("calc-00010", "in figures or a negation, with calc-00011: Not cash only"),
    ]


def test_a_conflict_is_recorded_when_it_arises_and_not_again() -> None:
    first = after_update(an_update(op(ADD, "Refund within 14 days", evidence=("a",))))
    second = after_update(an_update(op(ADD, "Refund within 30 days", evidence=("b",))), first)
    third = after_update(an_update(op(ADD, "refund within 30 days.", evidence=("c",))), second)
    assert changes(second) == [("add", "calc-00009"), ("conflict", "calc-00009")]
    assert changes(third) == [("duplicate", "calc-00009")]


def test_a_list_of_many_items_is_no_conflict() -> None:
    after = applied(*(op(ADD, f"See item {n}") for n in range(5)))
    assert changes(after) == [("add", f"calc-{n:05d}") for n in range(8, 13)]


def test_a_correction_ends_a_conflict() -> None:
    first = applied(
        op(ADD, "Refund within 14 days"), op(ADD, "Refund within 30 days"), op(REMOVE, "", "calc-00008")
    )
    assert "conflict" not in [kind for kind, _ in changes(first)]


# ---- counters


def test_tags_are_counted_as_a_multiset_one_for_each_reflection() -> None:
    after = applied(
        seen_=(
            seen("a", ("calc-00001", "helpful"), ("calc-00002", "harmful")),
            seen("b", ("calc-00001", "helpful"), ("calc-00002", "neutral")),
            seen("c", ("calc-00001", "harmful"), ("gone", "helpful")),
            seen("d", ("calc-00001", "helpful"), ok=False),
        )
    )
    assert (get(after, "calc-00001").helpful, get(after, "calc-00001").harmful) == (4, 1)
    assert (get(after, "calc-00002").helpful, get(after, "calc-00002").harmful) == (0, 2)


@pytest.mark.parametrize(("version", "counted"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 0), (9, 0)])
def test_a_tag_counts_for_an_entry_that_the_version_shown_did_contain(version: int, counted: int) -> None:
    base = BASE.model_copy(update={"entries": (entry("a", "since the second version", created_version=2),)})
    tagged = seen("r", ("a", "helpful")).model_copy(update={"shown_version": version})
    assert apply_operations(base, (), [tagged]).entries["a"].helpful == counted


def test_a_tag_counts_once_per_reflection_and_the_last_one_holds() -> None:
    tagged = seen("r", *[("calc-00001", "helpful")] * 40, ("calc-00001", "harmful"))
    after = get(applied(seen_=(tagged,)), "calc-00001")
    assert (after.helpful, after.harmful) == (2, 1)


def test_an_import_that_keeps_an_entry_s_words_keeps_since_when_it_is_there() -> None:
    given = (entry("calc-00001", "one"), entry("calc-00002", "reworded"))
    before = BASE.model_copy(
        update={"entries": tuple(e.model_copy(update={"created_version": 2}) for e in BASE.entries)}
    )
    after = after_command(command("import", entries=given), before)
    assert [one.created_version for one in after.entries] == [2, 5]


def test_counters_come_first_so_that_a_merge_adds_them_up() -> None:
    after = applied(op(MERGE, "m", "calc-00001", "calc-00002"), seen_=(seen("a", ("calc-00002", "helpful")),))
    assert get(after, "calc-00001").helpful == 3


def test_echoes_are_recorded_once_for_each_entry_and_add_no_evidence() -> None:
    echoes = (
        Echo(entry_id="calc-00001", evidence=("a", "b")),
        Echo(entry_id="calc-00001", evidence=("b", "c")),
    )
    revoked = Echo(entry_id="calc-00002", evidence=("bad",))
    draft = apply_operations(BASE, (), (), revoked=("bad",), echoes=(*echoes, revoked))
    assert [(one.kind, one.entry_id, one.detail) for one in draft.changes] == [
        ("echo", "calc-00001", "said again by 3 reflections that were shown it")
    ]
    assert tuple(draft.entries.values()) == BASE.entries


def test_an_update_s_echoes_are_changes_of_its_version() -> None:
    update = changed(an_update(), echoes=(Echo(entry_id="calc-00001", evidence=("a",)),))
    assert changes(after_update(update)) == [("echo", "calc-00001")]


# ---- revocation


def test_revoked_evidence_never_counts() -> None:
    after = applied(
        op(ADD, "bad", evidence=("r-8",)),
        op(ADD, "fair", evidence=("r-8", "r-9")),
        op(REMOVE, "", "calc-00007", evidence=("r-8",)),
        seen_=(seen("r-8", ("calc-00001", "harmful")),),
        revoked=("r-8",),
    )
    assert [one.content for one in after.entries] == ["one", "two", "seven", "fair"]
    assert get(after, "calc-00008").evidence == ("r-9",)
    assert get(after, "calc-00001").harmful == 0
    assert [kind for kind, _ in changes(after)] == ["dropped", "dropped", "add"]


# ---- evidence


def test_an_entry_keeps_the_last_ids_and_the_whole_count() -> None:
    ids = tuple(f"r-{n}" for n in range(100, 130))
    kept = get(after_update(an_update(op(ADD, "one", evidence=ids))), "calc-00001")
    assert kept.evidence == ids[-EVIDENCE_KEPT:]
    assert kept.evidence_count == 31


# ---- the budget


def test_the_least_useful_entries_go_first() -> None:
    order = [
        entry("c", "x" * 100, helpful=1, harmful=3, evidence_count=50, updated_version=9),
        entry("d", "x" * 100, evidence_count=1, updated_version=1),
        entry("b", "x" * 100, evidence_count=1, updated_version=5),
        entry("a", "x" * 100, evidence_count=2, updated_version=1),
        entry("e", "x" * 100, helpful=1, evidence_count=1, updated_version=1),
    ]
    assert evictions(order, 0) == ("c", "d", "b", "a", "e")
    assert evictions(order, 54) == ("c", "d", "b")
    assert evictions(order, PLENTY) == ()


entries = st.lists(
    st.builds(
        lambda n, content, helpful, count: entry(
            f"calc-{n:05d}", content, helpful=helpful, evidence_count=count
        ),
        st.integers(0, 99),
        st.text(max_size=200),
        st.integers(-3, 3),
        st.integers(0, 3),
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)


@given(entries, st.integers(0, 300), st.randoms())
def test_what_is_left_fits_and_the_order_of_entries_does_not_matter(
    some: list[Entry], budget: int, rng: Any
) -> None:
    gone = evictions(some, budget)
    left = [one for one in some if one.id not in gone]
    assert sum(-(-(len(one.id) + len(one.content) + 4) // 4) for one in left) <= budget
    mixed = list(some)
    rng.shuffle(mixed)
    assert evictions(mixed, budget) == gone


def test_evictions_are_recorded_with_what_they_took() -> None:
    draft = apply_operations(BASE, (), ())
    _, left = finish(BASE, draft, 10)
    assert [one.id for one in left] == ["calc-00001", "calc-00007"]
    assert [(one.kind, one.entry_id, one.detail) for one in draft.changes] == [("evict", "calc-00002", "two")]


# ---- any operations at all

REFLECTIONS = ["r-1", "r-2", "r-9", "r-10", "r-11"]
CONTENTS = [
    "one",
    "Two.",
    "new",
    "newer",
    "the news",
    "Wait 5 s",
    "Wait 6 s",
    "Please wait 5 s",
    "Do not wait 5 s",
    "",
]
anything = st.lists(
    st.builds(
        lambda kind, content, ids, evidence: op(kind, content, *ids, evidence=evidence),
        st.sampled_from(list(OperationKind)),
        st.sampled_from(CONTENTS),
        st.lists(st.sampled_from([one.id for one in BASE.entries] + ["calc-00008", "gone"]), max_size=3),
        st.lists(st.sampled_from(REFLECTIONS), max_size=3, unique=True).map(tuple),
    ),
    max_size=8,
)
some_seen = st.permutations(REFLECTIONS).map(
    lambda ids: tuple(
        seen(one, ("calc-00001", "helpful")).model_copy(update={"offset": n}) for n, one in enumerate(ids)
    )
)


@given(anything)
def test_whatever_is_applied_leaves_a_sound_playbook_and_an_account_of_every_operation(
    operations: list[Operation],
) -> None:
    after = applied(*operations)
    ids = [one.id for one in after.entries]
    assert len(set(ids)) == len(ids)
    assert all(one.evidence_count >= len(one.evidence) for one in after.entries)
    assert len(after.changes) >= len(operations)
    assert after.next_id >= BASE.next_id
    assert applied(*operations) == after
    if all(one.kind is ADD for one in operations):
        assert all(
            any(same_lesson(one.content, entry.content) for entry in after.entries) for one in operations
        )
    assert decode(encode(after), Playbook) == after


@given(anything, some_seen)
def test_no_two_entries_become_the_same_lesson(operations: list[Operation], some: tuple[Seen, ...]) -> None:
    contents = [one.content for one in applied(*operations, seen_=some).entries]
    assert not [pair for pair in combinations(contents, 2) if same_lesson(*pair)]


@given(anything, some_seen)
def test_counters_and_evidence_are_conserved_by_everything_but_a_removal(
    operations: list[Operation], some: tuple[Seen, ...]
) -> None:
    after = applied(*(one for one in operations if one.kind is not REMOVE), seen_=some)
    assert sum(e.helpful for e in after.entries) == sum(e.helpful for e in BASE.entries) + len(some)
    assert sum(e.harmful for e in after.entries) == sum(e.harmful for e in BASE.entries)
    held = {one for e in after.entries for one in e.evidence}
    assert held >= {one for e in BASE.entries for one in e.evidence}
    lost = {"dropped", "superseded"} & {kind for kind, _ in changes(after)}
    if not lost:
        assert held >= {one for o in operations if o.kind is not REMOVE for one in o.evidence}
    assert sum(e.evidence_count for e in after.entries) >= len(held)


# ---- versions


def an_update(*operations: Operation, status: str = "ok", seen_: tuple[Seen, ...] = ()) -> Update:
    plan = Plan(
        batch_id="b-5",
        playbook="p",
        sequence=5,
        widths=(6, 1),
        base_version=4,
        through_offset=500,
        reflections=40,
        closed_at_ms=77,
    )
    return flat(
        Update,
        plan=plan,
        manifest_offset=55,
        node_id="n",
        status=status,
        operations=operations,
        seen=seen_,
        usage=Usage(calls=7),
    )


def after_update(update: Update, current: Playbook = BASE) -> Playbook:
    return versions.after_update(current, update, budget_tokens=PLENTY, now_ms=99)


def test_an_update_makes_the_next_version_with_the_batch_s_bookkeeping() -> None:
    after = after_update(an_update(op(ADD, "eight")))
    assert (after.version, after.origin, batch_of(after).plan.batch_id, after.batch_sequence) == (
        5,
        "batch",
        "b-5",
        5,
    )
    assert (after.through_offset, after.manifest_offset, after.reflections) == (500, 55, 40)
    assert (
        after.usage.calls,
        batch_of(after).plan.widths,
        batch_of(after).plan.closed_at_ms,
        after.created_at_ms,
    ) == (7, (6, 1), 77, 99)
    assert not batch_of(after).degraded


def test_offsets_never_go_back() -> None:
    ahead = BASE.model_copy(update={"through_offset": 900, "manifest_offset": 90})
    after = after_update(an_update(), ahead)
    assert (after.through_offset, after.manifest_offset) == (900, 90)


@pytest.mark.parametrize(
    ("status", "ok", "degraded"),
    [
        ("ok", True, False),
        ("ok", False, True),
        ("empty", True, False),
        ("merged", True, True),
        ("failed", True, True),
    ],
)
def test_a_version_says_when_something_was_lost(status: str, ok: bool, degraded: bool) -> None:  # noqa: FBT001
    assert batch_of(after_update(an_update(status=status, seen_=(seen("r", ok=ok),)))).degraded is degraded


def command(kind: str, **fields: Any) -> Command:
    return Command.model_validate({"command_id": "c-1", "playbook": "p", "kind": kind, **fields})


def after_command(one: Command, current: Playbook = BASE, target: Playbook | None = None) -> Playbook:
    return versions.after_command(current, one, 12, target=target, budget_tokens=PLENTY, now_ms=99)


RUN = after_update(an_update(op(ADD, "eight")))
KINDS = {
    "import": command("import", entries=(entry("calc-00050", "imported"),)),
    "edit": command("edit", operations=(op(ADD, "edited"),)),
    "rollback": command("rollback", version=4),
    "revoke": command("revoke", reflection_ids=("r-1",)),
}


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS.keys())
def test_a_command_makes_the_next_version_and_touches_no_bookkeeping_of_batches(one: Command) -> None:
    after = after_command(one, RUN, BASE)
    assert (after.version, after.origin, after.command_offset, after.commands) == (6, one.kind, 12, ("c-1",))
    assert (after.batch_sequence, after.through_offset, after.manifest_offset) == (5, 500, 55)
    assert (after.batch, after.reflections, after.usage) == (None, 0, Usage())
    assert after.next_id >= RUN.next_id


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS.keys())
def test_a_command_is_known_again_by_place_and_by_id(one: Command) -> None:
    after = after_command(one, RUN, BASE)
    other = one.model_copy(update={"command_id": "c-2"})
    assert versions.is_executed(after, one, 13)
    assert versions.is_executed(after, other, 12)
    assert not versions.is_executed(after, other, 13)


def test_only_the_last_command_ids_are_remembered() -> None:
    current = BASE
    for number in range(versions.COMMANDS_REMEMBERED + 10):
        current = after_command(command("edit").model_copy(update={"command_id": f"c-{number}"}), current)
    assert len(current.commands) == versions.COMMANDS_REMEMBERED
    assert current.commands[-1] == f"c-{versions.COMMANDS_REMEMBERED + 9}"


@pytest.mark.parametrize("kind", ["flush", "promote", "rollback"])
def test_a_command_that_makes_no_version_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="does not make a version"):
        after_command(command(kind))


def test_an_import_of_two_entries_with_one_id_is_refused() -> None:
    with pytest.raises(ValueError, match="one id"):
        after_command(command("import", entries=(entry("x", "a"), entry("x", "b"))))


def test_new_ids_never_collide_with_imported_ones() -> None:
    imported = after_command(command("import", entries=(entry("calc-00008", "a"), entry("odd", "b"))))
    after = after_update(an_update(op(ADD, "c")), imported)
    assert [one.id for one in after.entries] == ["calc-00008", "odd", "calc-00009"]


def test_a_revocation_removes_what_rests_on_nothing_else_and_weakens_the_rest() -> None:
    after = after_command(command("revoke", reflection_ids=("r-1", "r-2")))
    assert [one.id for one in after.entries] == ["calc-00002", "calc-00007"]
    assert (get(after, "calc-00002").evidence, get(after, "calc-00002").evidence_count) == (("r-3",), 29)
    assert after.revoked == ("r-1", "r-2")
    assert changes(after) == [("remove", "calc-00001")]


def test_an_entry_that_people_wrote_survives_every_revocation() -> None:
    written = BASE.model_copy(update={"entries": (entry("x", "by hand"),)})
    assert len(after_command(command("revoke", reflection_ids=("r-1",)), written).entries) == 1


def test_a_version_too_large_for_a_record_gives_up_details_and_evidence_but_no_entry() -> None:
    ids = tuple(f"r-{n}-{'x' * 180}" for n in range(20))
    many = tuple(entry(f"calc-{n:05d}", f"lesson {n}", evidence=ids, evidence_count=20) for n in range(400))
    fitted = versions.fitted(BASE.model_copy(update={"entries": many}))
    assert decode(encode(fitted), Playbook) == fitted
    assert [one.content for one in fitted.entries] == [one.content for one in many]
    assert all(one.evidence_count == 20 for one in fitted.entries)
    assert all(one.evidence for one in fitted.entries)


def test_a_version_that_fits_is_not_touched() -> None:
    assert versions.fitted(BASE) is BASE


# ---- what left


def retired_ids(playbook: Playbook) -> list[str]:
    return [one.entry_id for one in playbook.retired]


def test_what_was_removed_merged_away_or_evicted_is_retired_with_what_it_said() -> None:
    update = an_update(
        op(REMOVE, "", "calc-00007"), op(MERGE, "both", "calc-00001", "calc-00002"), op(ADD, "new")
    )
    after = after_update(update)
    assert after.retired == (
        Retired(entry_id="calc-00002", content="two"),
        Retired(entry_id="calc-00007", content="seven"),
    )
    evicted = versions.after_update(after, an_update(), budget_tokens=0, now_ms=99)
    assert retired_ids(evicted) == ["calc-00002", "calc-00007", "calc-00001", "calc-00008"]


def test_what_came_and_went_in_one_batch_was_shown_to_nobody_and_is_not_retired() -> None:
    assert after_update(an_update(op(ADD, "new"), op(REMOVE, "", "calc-00008"))).retired == ()


def test_only_the_last_that_left_are_remembered() -> None:
    many = tuple(entry(f"e-{n}", f"lesson {n}") for n in range(RETIRED_KEPT + 5))
    current = BASE.model_copy(update={"entries": many, "retired": (Retired(entry_id="old", content="old"),)})
    after = versions.after_update(current, an_update(), budget_tokens=0, now_ms=99)
    assert retired_ids(after) == [f"e-{n}" for n in range(5, RETIRED_KEPT + 5)]


def test_what_is_revoked_is_retired() -> None:
    assert retired_ids(after_command(KINDS["revoke"])) == ["calc-00001"]


def test_a_rollback_brings_back_what_had_retired_and_retires_what_came_since() -> None:
    later = after_update(an_update(op(REMOVE, "", "calc-00001"), op(ADD, "eight")))
    assert retired_ids(later) == ["calc-00001"]
    assert retired_ids(after_command(KINDS["rollback"], later, BASE)) == ["calc-00008"]


def test_a_rollback_does_not_bring_back_what_its_target_had_retired() -> None:
    target = BASE.model_copy(update={"retired": (Retired(entry_id="calc-00003", content="three"),)})
    current = RUN.model_copy(update={"retired": ()})
    assert retired_ids(after_command(KINDS["rollback"], current, target)) == ["calc-00008"]


def test_an_import_retires_what_it_replaces_and_nothing_that_it_brings() -> None:
    current = BASE.model_copy(update={"retired": (Retired(entry_id="calc-00050", content="another fifty"),)})
    after = after_command(KINDS["import"], current)
    assert retired_ids(after) == ["calc-00001", "calc-00002", "calc-00007"]


def test_a_version_too_large_for_a_record_gives_up_retired_entries_too() -> None:
    gone = tuple(Retired(entry_id=f"e-{n}", content="x" * 30_000) for n in range(RETIRED_KEPT))
    fitted = versions.fitted(BASE.model_copy(update={"retired": gone}))
    assert decode(encode(fitted), Playbook) == fitted
    assert 0 < len(fitted.retired) < RETIRED_KEPT


# ---- whole histories

steps = st.lists(
    st.one_of(
        st.tuples(anything, some_seen),
        st.sampled_from([KINDS["import"], KINDS["edit"], KINDS["revoke"], KINDS["rollback"]]),
    ),
    max_size=6,
)
BUDGET = 30


def history(some: list[Any]) -> list[Playbook]:
    """Return the versions that steps make, oldest first."""
    made = [BASE]
    for step in some:
        if isinstance(step, Command):
            made.append(
                versions.after_command(made[-1], step, 12, target=BASE, budget_tokens=BUDGET, now_ms=99)
            )
        else:
            update = an_update(*step[0], seen_=step[1])
            made.append(versions.after_update(made[-1], update, budget_tokens=BUDGET, now_ms=99))
    return made


@given(steps)
def test_a_history_replayed_gives_the_same_bytes(some: list[Any]) -> None:
    assert [encode(one) for one in history(some)] == [encode(one) for one in history(some)]


@given(steps)
def test_after_every_update_the_budget_holds_and_what_retired_is_not_there(some: list[Any]) -> None:
    for after in history(some)[1:]:
        size = sum(-(-(len(one.id) + len(one.content) + 4) // 4) for one in after.entries)
        assert size <= BUDGET or after.origin not in {"batch", "edit"}
        assert not {one.id for one in after.entries} & set(retired_ids(after))
        assert len(after.retired) <= RETIRED_KEPT


@given(steps)
def test_no_id_is_ever_given_twice(some: list[Any]) -> None:
    given_ids = {one.id for one in BASE.entries}
    for after in history(some)[1:]:
        added = [entry_id for kind, entry_id in changes(after) if kind == "add"]
        assert len(set(added)) == len(added)
        assert not given_ids & set(added)
        given_ids |= set(added) | {one.id for one in after.entries}


def test_a_reply_of_the_greatest_size_is_applied_in_a_moment() -> None:
    said = [
        f"Report the {first} {second} of the {third}" for first, second, third in product(NOUNS, repeat=3)
    ]
    base = BASE.model_copy(
        update={"entries": tuple(entry(f"e-{n}", one) for n, one in enumerate(said[:400]))}
    )
    began = process_time()
    draft = apply_operations(base, [op(ADD, one, evidence=("r",)) for one in said[:MAX_OPERATIONS]], ())
    assert len(draft.entries) == MAX_OPERATIONS
    assert process_time() - began < 5, "seconds; a tenth of that is usual"
