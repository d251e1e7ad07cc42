from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core import versions
from combee.core.operations import normalise
from combee.core.playbook import apply_operations, empty, evictions, finish, slug
from combee_schemas.base import Usage
from combee_schemas.codec import decode, encode
from combee_schemas.command import Command
from combee_schemas.playbook import ACE_SECTIONS, EVIDENCE_KEPT, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind, Plan, Seen, Update

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


def applied(*operations: Operation, seen_: tuple[Seen, ...] = (), revoked: tuple[str, ...] = ()) -> Playbook:
    draft = apply_operations(BASE, operations, seen_, revoked=revoked)
    sections, entries = finish(BASE, draft, PLENTY)
    return BASE.model_copy(
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


def test_counters_come_first_so_that_a_merge_adds_them_up() -> None:
    after = applied(op(MERGE, "m", "calc-00001", "calc-00002"), seen_=(seen("a", ("calc-00002", "helpful")),))
    assert get(after, "calc-00001").helpful == 3


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
    assert [kind for kind, _ in changes(after)] == ["dropped", "add", "dropped"]


# ---- evidence


def test_an_entry_keeps_the_last_ids_and_the_whole_count() -> None:
    ids = tuple(f"r-{n}" for n in range(100, 130))
    kept = get(applied(op(ADD, "one", evidence=ids)), "calc-00001")
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

anything = st.lists(
    st.builds(
        lambda kind, content, ids, evidence: op(kind, content, *ids, evidence=evidence),
        st.sampled_from(list(OperationKind)),
        st.sampled_from(["one", "Two.", "new", "newer", ""]),
        st.lists(st.sampled_from([one.id for one in BASE.entries] + ["calc-00008", "gone"]), max_size=3),
        st.lists(st.sampled_from(["r-1", "r-2", "r-9"]), max_size=3, unique=True).map(tuple),
    ),
    max_size=8,
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
    said = [normalise(one.content) for one in operations if one.kind is ADD]
    if all(one.kind is ADD for one in operations):
        assert {normalise(one.content) for one in after.entries} >= set(said)
    assert decode(encode(after), Playbook) == after


# ---- versions


def an_update(*operations: Operation, status: str = "ok", seen_: tuple[Seen, ...] = ()) -> Update:
    plan = Plan(
        batch_id="b-5",
        playbook="p",
        sequence=5,
        widths=(6, 1),
        base_version=4,
        manifest_offset=55,
        through_offset=500,
        reflections=40,
        closed_at_ms=77,
    )
    return Update.model_validate(
        {
            "plan": plan,
            "node_id": "n",
            "status": status,
            "operations": operations,
            "seen": seen_,
            "usage": Usage(calls=7),
        }
    )


def after_update(update: Update, current: Playbook = BASE) -> Playbook:
    return versions.after_update(current, update, budget_tokens=PLENTY, now_ms=99)


def test_an_update_makes_the_next_version_with_the_batch_s_bookkeeping() -> None:
    after = after_update(an_update(op(ADD, "eight")))
    assert (after.version, after.origin, after.batch_id, after.batch_sequence) == (5, "batch", "b-5", 5)
    assert (after.through_offset, after.manifest_offset, after.reflections) == (500, 55, 40)
    assert (after.usage.calls, after.widths, after.closed_at_ms, after.created_at_ms) == (7, (6, 1), 77, 99)
    assert not after.degraded


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
    assert after_update(an_update(status=status, seen_=(seen("r", ok=ok),))).degraded is degraded


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
    assert (after.reflections, after.usage, after.widths, after.degraded) == (0, Usage(), (), False)
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
