"""The draft of a next version: ids, counters, echoes, and entries that may contradict each other."""

from typing import Any

from combee.core.playbook.draft import apply_operations
from combee.core.playbook.sections import slug
from combee_schemas.playbook import ACE_SECTIONS, ChangeKind
from combee_schemas.scan import Conflict, Echo, Operation
from support.playbooks import (
    ADD,
    BASE,
    MERGE,
    REMOVE,
    after_update,
    an_update,
    applied,
    changes,
    entry,
    get,
    op,
    seen,
)
from support.rows import each_row


@each_row(
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


@each_row(("version", "counted"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 0), (9, 0)])
def test_a_tag_counts_for_an_entry_that_the_version_shown_did_contain(version: int, counted: int) -> None:
    base = BASE.model_copy(update={"entries": (entry("a", "since the second version", created_version=2),)})
    tagged = seen("r", ("a", "helpful")).model_copy(update={"shown_version": version})
    assert apply_operations(base, (), [tagged]).entries["a"].helpful == counted


def test_a_tag_counts_once_per_reflection_and_the_last_one_holds() -> None:
    tagged = seen("r", *[("calc-00001", "helpful")] * 40, ("calc-00001", "harmful"))
    after = get(applied(seen_=(tagged,)), "calc-00001")
    assert (after.helpful, after.harmful) == (2, 1)


def test_counters_come_first_so_that_a_merge_adds_them_up() -> None:
    after = applied(op(MERGE, "m", "calc-00001", "calc-00002"), seen_=(seen("a", ("calc-00002", "helpful")),))
    assert get(after, "calc-00001").helpful == 3


# ---- echoes


def test_echoes_are_recorded_once_for_each_entry_and_add_no_evidence() -> None:
    echoes = (
        Echo(entry_id="calc-00001", evidence=("a", "b")),
        Echo(entry_id="calc-00001", evidence=("b", "c")),
    )
    revoked = Echo(entry_id="calc-00002", evidence=("bad",))
    draft = apply_operations(BASE, (), (), revoked=("bad",), echoes=(*echoes, revoked))
    assert [(change.kind, change.entry_id, change.detail) for change in draft.changes] == [
        ("echo", "calc-00001", "said again by 3 reflections that were shown it")
    ]
    assert tuple(draft.entries.values()) == BASE.entries


# ---- rewrites that would have lost something


def refusing(**fields: str | tuple[str, ...]) -> Conflict:
    return Conflict.model_validate(
        {
            "entry_id": "calc-00002",
            "content": "Refund within 30 days",
            "evidence": ("a",),
            "why": "UPDATE would lose 14 days",
            **fields,
        }
    )


def after_refusal(
    conflict: Conflict, *operations: Operation, kind: ChangeKind = "conflict", **given: Any
) -> list[tuple[str, str]]:
    update = an_update(*operations, seen_=(seen("a"), seen("b")))
    update = update.model_copy(update={"result": update.result.model_copy(update={"conflicts": (conflict,)})})
    base = BASE.model_copy(update={"revoked": given.get("revoked", ())})
    after = after_update(update, base)
    assert get(after, "calc-00002") == get(base, "calc-00002")
    return [(change.entry_id, change.detail) for change in after.changes if change.kind == kind]


def test_a_refused_rewrite_is_recorded_once_with_who_said_what() -> None:
    added = op(ADD, "Refund within 30 days", evidence=("a",))
    lost = "UPDATE would lose 14 days (said by reflections r-2, r-3)"
    said = f"{lost}; calc-00008 (said by reflection a): Refund within 30 days"
    assert after_refusal(refusing(), added) == [("calc-00002", said)]
    assert after_refusal(refusing(evidence=("a", "b"), content="Soon")) == [
        ("calc-00002", f"{lost}; (said by reflections a, b): Soon")
    ]
    forged = "shop); calc-00009 (said by desk"
    (named,) = after_refusal(refusing(evidence=("shop",), content="Soon"))
    (quoted,) = after_refusal(refusing(evidence=(forged,), content="Soon"))
    assert named[1].endswith("; (said by reflection shop): Soon"), "an id is no source's name"
    assert quoted[1].endswith(f'; (said by reflection "{forged}"): Soon')


def test_a_refused_rewrite_that_nobody_says_is_no_conflict() -> None:
    assert after_refusal(refusing(evidence=()), kind="dropped") == [
        ("calc-00002", "UPDATE would lose 14 days (said by reflections r-2, r-3); Refund within 30 days")
    ]
    assert after_refusal(refusing(evidence=())) == []
    assert after_refusal(refusing(evidence=(), content="seven")) == [
        ("calc-00002", "UPDATE would lose 14 days (said by reflections r-2, r-3); calc-00007: seven")
    ]


def test_a_refused_rewrite_that_rests_on_revoked_reflections_alone_is_not_recorded() -> None:
    assert after_refusal(refusing(), revoked=("a",)) == []
    assert after_refusal(refusing(evidence=("a", "b")), revoked=("a",)) == [
        (
            "calc-00002",
            "UPDATE would lose 14 days (said by reflections r-2, r-3); (said by reflection b): Refund within 30 days",
        )
    ]


def test_an_addition_that_is_in_conflict_by_its_wording_is_not_recorded_twice() -> None:
    base = BASE.model_copy(
        update={"entries": (*BASE.entries[:1], entry("calc-00002", "Refund within 14 days"))}
    )
    update = an_update(op(ADD, "Refund within 30 days", evidence=("a",)), seen_=(seen("a"),))
    update = update.model_copy(
        update={"result": update.result.model_copy(update={"conflicts": (refusing(),)})}
    )
    kinds = [change.kind for change in after_update(update, base).changes]
    assert kinds.count("conflict") == 1
