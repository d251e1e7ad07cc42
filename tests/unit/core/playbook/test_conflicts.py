"""Operations of one batch that contradict each other."""

import pytest

from combee.core.playbook import versions
from combee.core.playbook.lineage.recomputing import Recomputation
from combee_schemas.base import Source
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Operation, Seen
from support.playbooks import (
    ADD,
    BASE,
    MERGE,
    PLENTY,
    REMOVE,
    UPDATE,
    applied,
    changes,
    get,
    learned,
    op,
    seen,
    update_of,
)

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
    assert [(change.kind, change.detail) for change in after.changes] == [
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
    assert [e.content for e in after.entries] == ["two", "seven"]
    assert (after.changes[0].kind, after.changes[0].detail) == ("superseded", "MERGE: both")


def test_between_equals_the_later_operation_wins() -> None:
    after = contested(*(op(UPDATE, text, "calc-00001", evidence=("r-old",)) for text in ("first", "second")))
    assert get(after, "calc-00001").content == "second"


def test_operations_that_do_the_same_rest_on_the_evidence_of_both() -> None:
    after = contested(
        op(UPDATE, "The better one", "calc-00001", evidence=("r-newest",)),
        op(UPDATE, "the better one.", "calc-00001", evidence=("r-old",)),
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
    assert [e.content for e in after.entries] == ["a", "b", "seven"]


def test_evidence_that_is_revoked_wins_nothing() -> None:
    operations = [
        op(UPDATE, "good", "calc-00001", evidence=("r-old",)),
        op(UPDATE, "bad", "calc-00001", evidence=("r-newest",)),
    ]
    after = applied(*operations, seen_=(NEWEST, OLD), revoked=("r-newest",))
    assert get(after, "calc-00001").content == "good"


def test_one_source_s_last_word_does_not_undo_what_three_sources_say() -> None:
    names = ("shop", "desk", "lab", "mallory")
    batch = [
        Seen(reflection_id=name, offset=n, source=Source(name=name, proven="key"))
        for n, name in enumerate(names)
    ]
    correction = op(UPDATE, "two, since May", "calc-00001", evidence=names[:3])
    for last in (op(UPDATE, "one", "calc-00001"), op(REMOVE, "", "calc-00001")):
        update = update_of(BASE, [correction, last.model_copy(update={"evidence": ("mallory",)})], batch)
        after = versions.after_update(BASE, update, budget_tokens=PLENTY, now_ms=0)
        assert get(after, "calc-00001").content == "two, since May"
        assert ("superseded", "calc-00001") in changes(after)
        barred = BASE.model_copy(update={"revoked": ("mallory",)})
        recomputation = Recomputation(BASE, barred, next_id=after.next_id)
        recomputation.follow(after, update)
        kept = {entry.id: entry for entry in recomputation.result(budget_tokens=PLENTY).entries}
        assert kept["calc-00001"].content == "two, since May"


def test_a_batch_applied_again_has_the_same_contest_for_an_id_that_it_foresaw() -> None:
    foreseen = op(UPDATE, "eight", "calc-00008", evidence=("n-1", "n-2"))
    merge = op(MERGE, "both", "calc-00001", "calc-00002", "calc-00008", evidence=("n-3",))
    batch = [
        Seen(reflection_id=f"n-{n}", offset=n, source=Source(name=name, proven="key"))
        for n, name in enumerate(("shop", "desk", "lab", "mallory"), 1)
    ]
    update = update_of(BASE, [foreseen, merge, op(UPDATE, "no", "calc-00007", evidence=("n-4",))], batch)
    first = versions.after_update(BASE, update, budget_tokens=PLENTY, now_ms=0)
    later = learned(first, [op(ADD, "nine", evidence=("n-5",))], [Seen(reflection_id="n-5", offset=5)])
    barred = later.model_copy(update={"revoked": ("n-4",)})
    recomputation = Recomputation(BASE, barred, next_id=later.next_id)
    recomputation.follow(first, update)
    left = recomputation.result(budget_tokens=PLENTY).entries
    assert [entry.content for entry in first.entries] == ["one", "two", "no"]
    assert [entry.content for entry in left] == ["one", "two", "seven"]
