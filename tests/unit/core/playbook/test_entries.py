"""Operations on a playbook of entries: each kind, merging instead of dropping, the token budget."""

from itertools import combinations, product
from time import process_time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook.budget import evictions
from combee.core.playbook.draft import apply_operations, finish
from combee.core.playbook.operations import MAX_OPERATIONS
from combee.core.playbook.sections import section_order
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.codec import decode, encode
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind, Seen
from support.playbooks import (
    ADD,
    BASE,
    MERGE,
    REMOVE,
    UPDATE,
    applied,
    changes,
    entry,
    get,
    op,
    operation_lists,
    seen,
    seen_lists,
)
from support.rows import each_row

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
    assert [e.content for e in after.entries] == ["one, but better", "two", "seven", "one"]


def test_an_addition_finds_what_an_earlier_operation_said() -> None:
    after = applied(op(UPDATE, "new", "calc-00001"), op(ADD, "new"), op(ADD, "more"), op(ADD, "More"))
    assert [e.content for e in after.entries] == ["new", "two", "seven", "more"]


def test_an_addition_of_what_was_removed_is_new() -> None:
    after = applied(op(REMOVE, "", "calc-00001"), op(ADD, "one"))
    assert [e.id for e in after.entries] == ["calc-00002", "calc-00007", "calc-00008"]


def test_an_update_keeps_id_counters_and_lineage() -> None:
    changed = get(applied(op(UPDATE, "better", "calc-00001", evidence=("r-9",))), "calc-00001")
    assert (changed.content, changed.helpful, changed.evidence) == ("better", 2, ("r-1", "r-9"))
    assert (changed.created_version, changed.updated_version) == (5, 5)


def test_a_merge_keeps_the_first_and_adds_everything_up() -> None:
    after = applied(op(MERGE, "one and two", "calc-00001", "calc-00002", evidence=("r-9",)))
    kept = get(after, "calc-00001")
    assert [e.id for e in after.entries] == ["calc-00001", "calc-00007"]
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
    assert [e.id for e in after.entries] == ["calc-00002", "calc-00007"]
    assert (after.changes[0].kind, after.changes[0].detail) == ("remove", "one")


@each_row("kind", [UPDATE, MERGE, REMOVE])
@each_row("ids", [(), ("gone",), ("gone", "gone-too")], ids=str)
def test_an_operation_on_entries_that_vanished_is_recorded_and_changes_nothing(
    kind: OperationKind, ids: tuple[str, ...]
) -> None:
    after = applied(op(kind, "c", *ids))
    assert after.entries == BASE.entries
    assert [kind for kind, _ in changes(after)] == ["dropped"]


def test_operations_apply_in_order() -> None:
    after = applied(op(ADD, "eight"), op(UPDATE, "EIGHT!", "calc-00008"), op(REMOVE, "", "calc-00007"))
    assert [e.content for e in after.entries] == ["one", "two", "EIGHT!"]


def test_a_new_section_comes_after_the_known_ones() -> None:
    new = op(ADD, "x").model_copy(update={"section": "REFUND RULES"})
    after = applied(new)
    assert section_order(after.sections, after.entries) == (*ACE_SECTIONS, "REFUND RULES")
    assert after.entries[-1].id == "rr-00008"


# ---- merge, never drop


def test_an_addition_that_writes_it_otherwise_strengthens_the_entry_and_history_keeps_its_words() -> None:
    after = applied(op(ADD, REPEAT[0].upper(), evidence=("r-8",)), op(ADD, *REPEAT, evidence=("r-9",)))
    added = get(after, "calc-00008")
    assert (added.content, added.evidence) == (REPEAT[0].upper(), ("r-8", "r-9"))
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
    assert [e.content for e in applied(*(op(ADD, content) for content in contents)).entries[3:]] == contents


def test_an_update_that_says_the_same_leaves_the_entry_s_words_as_they_are() -> None:
    kept = get(applied(op(UPDATE, "ONE!", "calc-00001", evidence=("r-9",))), "calc-00001")
    assert (kept.content, kept.evidence) == ("one", ("r-1", "r-9"))


def test_people_may_reword_an_entry() -> None:
    assert get(applied(op(UPDATE, "One.", "calc-00001")), "calc-00001").content == "One."


def test_an_update_that_makes_an_entry_say_what_another_says_folds_it_into_that_one() -> None:
    after = applied(op(UPDATE, "Two.", "calc-00001", evidence=("r-9", "r-2")))
    kept = get(after, "calc-00002")
    assert [e.id for e in after.entries] == ["calc-00002", "calc-00007"]
    assert (kept.content, kept.helpful, kept.harmful) == ("two", 2, 1)
    assert (kept.evidence, kept.evidence_count) == (("r-2", "r-3", "r-1", "r-9"), 32)
    assert [(change.kind, change.entry_id, change.detail) for change in after.changes] == [
        ("merge", "calc-00001", "into calc-00002: one"),
        ("duplicate", "calc-00002", "2 more reflections say so: Two."),
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
    assert [(e.evidence, e.evidence_count) for e in draft.entries.values()] == [(("r-1",), 1)]


# ---- revocation


def test_revoked_evidence_never_counts() -> None:
    after = applied(
        op(ADD, "bad", evidence=("r-8",)),
        op(ADD, "fair", evidence=("r-8", "r-9")),
        op(REMOVE, "", "calc-00007", evidence=("r-8",)),
        seen_=(seen("r-8", ("calc-00001", "harmful")),),
        revoked=("r-8",),
    )
    assert [e.content for e in after.entries] == ["one", "two", "seven", "fair"]
    assert get(after, "calc-00008").evidence == ("r-9",)
    assert get(after, "calc-00001").harmful == 0
    assert [kind for kind, _ in changes(after)] == ["dropped", "dropped", "add"]


# ---- the budget


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
    unique_by=lambda e: e.id,
)


@given(entries, st.integers(0, 300), st.randoms())
def test_what_is_left_fits_and_the_order_of_entries_does_not_matter(
    unsorted: list[Entry], budget: int, rng: Any
) -> None:
    evicted = evictions(unsorted, budget)
    left = [e for e in unsorted if e.id not in evicted]
    assert sum(-(-(len(e.id) + len(e.content) + 4) // 4) for e in left) <= budget
    mixed = list(unsorted)
    rng.shuffle(mixed)
    assert evictions(mixed, budget) == evicted


def test_evictions_are_recorded_with_what_they_took() -> None:
    draft = apply_operations(BASE, (), ())
    _, left = finish(BASE, draft, 10)
    assert [e.id for e in left] == ["calc-00001", "calc-00007"]
    assert [(change.kind, change.entry_id, change.detail) for change in draft.changes] == [
        ("evict", "calc-00002", "two")
    ]


# ---- any operations at all


@given(operation_lists)
def test_whatever_is_applied_leaves_a_sound_playbook_and_an_account_of_every_operation(
    operations: list[Operation],
) -> None:
    after = applied(*operations)
    ids = [e.id for e in after.entries]
    assert len(set(ids)) == len(ids)
    assert all(e.evidence_count >= len(e.evidence) for e in after.entries)
    assert len(after.changes) >= len(operations)
    assert after.next_id >= BASE.next_id
    assert applied(*operations) == after
    if all(operation.kind is ADD for operation in operations):
        assert all(
            any(same_lesson(operation.content, entry.content) for entry in after.entries)
            for operation in operations
        )
    assert decode(encode(after), Playbook) == after


@given(operation_lists, seen_lists)
def test_no_two_entries_become_the_same_lesson(
    operations: list[Operation], observed: tuple[Seen, ...]
) -> None:
    contents = [e.content for e in applied(*operations, seen_=observed).entries]
    assert not [pair for pair in combinations(contents, 2) if same_lesson(*pair)]


@given(operation_lists, seen_lists)
def test_counters_and_evidence_are_conserved_by_everything_but_a_removal(
    operations: list[Operation], observed: tuple[Seen, ...]
) -> None:
    after = applied(*(operation for operation in operations if operation.kind is not REMOVE), seen_=observed)
    assert sum(e.helpful for e in after.entries) == sum(e.helpful for e in BASE.entries) + len(observed)
    assert sum(e.harmful for e in after.entries) == sum(e.harmful for e in BASE.entries)
    known_ids = {reflection_id for e in after.entries for reflection_id in e.evidence}
    assert known_ids >= {reflection_id for e in BASE.entries for reflection_id in e.evidence}
    lost = {"dropped", "superseded"} & {kind for kind, _ in changes(after)}
    if not lost:
        assert known_ids >= {
            reflection_id for o in operations if o.kind is not REMOVE for reflection_id in o.evidence
        }
    assert sum(e.evidence_count for e in after.entries) >= len(known_ids)


def test_a_reply_of_the_greatest_size_is_applied_in_a_moment() -> None:
    said = [
        f"Report the {first} {second} of the {third}" for first, second, third in product(NOUNS, repeat=3)
    ]
    base = BASE.model_copy(
        update={"entries": tuple(entry(f"e-{n}", content) for n, content in enumerate(said[:400]))}
    )
    began = process_time()
    draft = apply_operations(
        base, [op(ADD, content, evidence=("r",)) for content in said[:MAX_OPERATIONS]], ()
    )
    assert len(draft.entries) == MAX_OPERATIONS
    assert process_time() - began < 5, "seconds; a tenth of that is usual"
