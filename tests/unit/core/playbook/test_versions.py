"""Versions from updates and commands: bookkeeping, size, what left, whole histories."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook import executing, versions
from combee.core.playbook.lineage.evidence import began_with
from combee.core.playbook.lineage.rejecting import without_entries
from combee.core.playbook.trust import Rejections
from combee.core.playbook.versions import empty
from combee_schemas.base import Usage
from combee_schemas.codec import decode, encode
from combee_schemas.command import Command
from combee_schemas.playbook import (
    ACE_SECTIONS,
    EVIDENCE_KEPT,
    REJECTED_KEPT,
    RETIRED_KEPT,
    Change,
    Playbook,
    Rejected,
    Retired,
)
from combee_schemas.scan import Echo
from support.flat import changed
from support.ledger import batch_of
from support.playbooks import (
    ADD,
    BASE,
    MERGE,
    PLENTY,
    REMOVE,
    UPDATE,
    after_command,
    after_update,
    an_update,
    changes,
    command,
    entry,
    get,
    op,
    operation_lists,
    seen,
    seen_lists,
)

RUN = after_update(an_update(op(ADD, "eight")))
KINDS = {
    "import": command("import", entries=(entry("calc-00050", "imported"),)),
    "edit": command("edit", operations=(op(ADD, "edited"),)),
    "rollback": command("rollback", version=4),
    "revoke": command("revoke", reflection_ids=("r-1",)),
}

# ---- updates


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


def test_an_update_s_echoes_are_changes_of_its_version() -> None:
    update = changed(an_update(), echoes=(Echo(entry_id="calc-00001", evidence=("a",)),))
    assert changes(after_update(update)) == [("echo", "calc-00001")]


def test_an_entry_keeps_the_last_ids_and_the_whole_count() -> None:
    ids = tuple(f"r-{n}" for n in range(100, 130))
    kept = get(after_update(an_update(op(ADD, "one", evidence=ids))), "calc-00001")
    assert kept.evidence == ids[-EVIDENCE_KEPT:]
    assert kept.evidence_count == 31


# ---- commands


@pytest.mark.parametrize("issued", KINDS.values(), ids=KINDS.keys())
def test_a_command_makes_the_next_version_and_touches_no_bookkeeping_of_batches(issued: Command) -> None:
    after = after_command(issued, RUN, BASE)
    assert (after.version, after.origin, after.command_offset, after.commands) == (
        6,
        issued.kind,
        12,
        ("c-1",),
    )
    assert (after.batch_sequence, after.through_offset, after.manifest_offset) == (5, 500, 55)
    assert (after.batch, after.reflections, after.usage) == (None, 0, Usage())
    assert after.next_id >= RUN.next_id


@pytest.mark.parametrize("issued", KINDS.values(), ids=KINDS.keys())
def test_a_command_is_known_again_by_place_and_by_id(issued: Command) -> None:
    after = after_command(issued, RUN, BASE)
    again = issued.model_copy(update={"command_id": "c-2"})
    assert executing.is_executed(after, issued, 13)
    assert executing.is_executed(after, again, 12)
    assert not executing.is_executed(after, again, 13)


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


def test_an_import_that_keeps_an_entry_s_words_keeps_since_when_it_is_there() -> None:
    given = (entry("calc-00001", "one"), entry("calc-00002", "reworded"))
    before = BASE.model_copy(
        update={"entries": tuple(e.model_copy(update={"created_version": 2}) for e in BASE.entries)}
    )
    after = after_command(command("import", entries=given), before)
    assert [e.created_version for e in after.entries] == [2, 5]


def test_new_ids_never_collide_with_imported_ones() -> None:
    imported = after_command(command("import", entries=(entry("calc-00008", "a"), entry("odd", "b"))))
    after = after_update(an_update(op(ADD, "c")), imported)
    assert [e.id for e in after.entries] == ["calc-00008", "odd", "calc-00009"]


def test_a_revocation_removes_what_rests_on_nothing_else_and_weakens_the_rest() -> None:
    after = after_command(command("revoke", reflection_ids=("r-1", "r-2")))
    assert [e.id for e in after.entries] == ["calc-00002", "calc-00007"]
    assert (get(after, "calc-00002").evidence, get(after, "calc-00002").evidence_count) == (("r-3",), 29)
    assert after.revoked == ("r-1", "r-2")
    assert changes(after) == [("remove", "calc-00001")]


def test_an_entry_that_people_wrote_survives_every_revocation() -> None:
    written = BASE.model_copy(update={"entries": (entry("x", "by hand"),)})
    assert len(after_command(command("revoke", reflection_ids=("r-1",)), written).entries) == 1


# ---- the size of a record


def test_a_version_too_large_for_a_record_gives_up_details_and_evidence_but_no_entry() -> None:
    ids = tuple(f"r-{n}-{'x' * 180}" for n in range(20))
    many = tuple(entry(f"calc-{n:05d}", f"lesson {n}", evidence=ids, evidence_count=20) for n in range(400))
    fitted = versions.fitted(BASE.model_copy(update={"entries": many}))
    assert decode(encode(fitted), Playbook) == fitted
    assert [e.content for e in fitted.entries] == [e.content for e in many]
    assert all(e.evidence_count == 20 for e in fitted.entries)
    assert all(e.evidence for e in fitted.entries)


@pytest.mark.parametrize("fields", [{"evidence_count": 20}, {"helped": tuple(f"{n:080}" for n in range(10))}])
def test_a_version_too_large_for_a_record_says_to_which_one_it_goes_back(fields: Mapping[str, Any]) -> None:
    """Without it a revocation followed the versions that were rolled back, and brought back what these said."""
    ids = tuple(f"r-{n}-{'x' * 180}" for n in range(20))
    many = tuple(entry(f"calc-{n:05d}", f"lesson {n}", evidence=ids, **fields) for n in range(1_100))
    target = BASE.model_copy(update={"version": 2, "entries": many})
    fitted = versions.fitted(after_command(command("rollback", version=2), target=target))
    assert decode(encode(fitted), Playbook) == fitted
    assert began_with(fitted) == ("p", 2)


def test_a_version_too_large_for_a_record_gives_up_retired_entries_too() -> None:
    left = tuple(Retired(entry_id=f"e-{n}", content="x" * 30_000) for n in range(RETIRED_KEPT))
    fitted = versions.fitted(BASE.model_copy(update={"retired": left}))
    assert decode(encode(fitted), Playbook) == fitted
    assert 0 < len(fitted.retired) < RETIRED_KEPT


def test_a_version_whose_operations_name_many_invented_ids_fits_a_record_and_keeps_its_evidence() -> None:
    ids = tuple(f"r-{n:030}" for n in range(EVIDENCE_KEPT))
    entries = tuple(
        entry(f"calc-{n:05d}", f"lesson {n}", evidence=ids, evidence_count=20) for n in range(400)
    )
    invented = tuple(op(UPDATE, "z", "議" * 195 + f"{n:05d}", evidence=("r-1",)) for n in range(1_330))
    after = after_update(an_update(*invented), BASE.model_copy(update={"entries": entries}))
    fitted = versions.fitted(after)
    assert decode(encode(fitted), Playbook) == fitted
    assert all(e.evidence == ids for e in fitted.entries)


@pytest.mark.parametrize(
    "large",
    [
        {"changes": tuple(Change(kind="evict", entry_id=f"{n:0200}") for n in range(10_000))},
        {"sections": (*ACE_SECTIONS, *(f"{n:080}" for n in range(20_000)))},
        {
            "rejected": (Rejected(entry_id="a" * 200, said="a" * 24, evidence=("é" * 200,) * EVIDENCE_KEPT),)
            * REJECTED_KEPT
        },
        {"entries": tuple(entry(f"e-{n}", "say", sources=("s" * 200,) * 5) for n in range(2_000))},
        *(
            {"entries": (entry("e-0", "say", state="proposed", **{links: (f"{0:010}",) * 400}),) * 400}
            for links in ("replaces", "rivals")
        ),
    ],
    ids=["changes", "sections", "rejected", "sources", "links", "rivals"],
)
def test_a_version_fits_a_record_whatever_of_it_is_large(large: dict[str, Any]) -> None:
    fitted = versions.fitted(BASE.model_copy(update=large))
    assert decode(encode(fitted), Playbook) == fitted
    assert len(fitted.entries) == len(large.get("entries", BASE.entries))
    assert len(fitted.rejected) == len(large.get("rejected", ()))


def test_large_rejected_texts_with_long_ids_crowd_no_rejection_out() -> None:
    ids = tuple(f"r-{n:0190}" for n in range(EVIDENCE_KEPT))
    old = [f"lesson of old {n}" for n in range(50)]
    large = [f"{n} " + "é" * 8_000 for n in range(REJECTED_KEPT - len(old))]
    playbook = empty("p")
    for texts in (old, large):
        entries = tuple(entry(f"e-{n}", text) for n, text in enumerate(texts))
        candidate = playbook.model_copy(update={"entries": entries})
        behind = {one.id: ids for one in entries}
        playbook = without_entries(candidate, candidate, empty("p"), behind, budget_tokens=PLENTY)
    retired = tuple(Retired(entry_id=f"e-{n}", content="x" * 8_000) for n in range(RETIRED_KEPT))
    fitted = versions.fitted(playbook.model_copy(update={"retired": retired}))
    assert decode(encode(fitted), Playbook) == fitted
    assert all(map(Rejections.of(fitted).has, (*old, *large)))
    assert fitted.rejected[0].evidence


@pytest.mark.parametrize(("count", "left"), [(1_500, 8), (2_500, 3), (6_000, 0)])
def test_a_version_too_large_for_its_names_keeps_three_of_each_entry_or_none(count: int, left: int) -> None:
    """With the newest name alone, who says everything again would stand behind all of it alone."""
    names, loud = tuple(f"key:support-bot-{n}" for n in range(7)), "x" * 80
    entries = tuple(
        entry(f"e-{n}", "say", sources=(*names, loud), harmed=(loud,), helped=names, evidence_count=9)
        for n in range(count)
    )
    fitted = versions.fitted(BASE.model_copy(update={"entries": entries}))
    assert {len(one.sources) for one in fitted.entries} == {left}
    assert not any(one.harmed or one.helped for one in fitted.entries)


def test_long_ids_in_lessons_that_wait_cost_no_entry_the_names_of_its_sources() -> None:
    """Nobody then seemed to stand behind any entry: in a full playbook each new one displaced another."""
    known = entry("e-0", "say", sources=tuple("abcd"), harmed=("e",), helped=("f",), evidence_count=9)
    ids = ("r-1", *(f"{n}" + "\U0001f600" * 195 for n in range(3)))
    waiting = tuple(entry(f"e-{n}", "say", state="proposed", support=ids) for n in range(1, 400))
    fitted = versions.fitted(BASE.model_copy(update={"entries": (known, *waiting)}))
    assert decode(encode(fitted), Playbook) == fitted
    assert fitted.entries[0] == known
    assert {one.support for one in fitted.entries[1:]} == {("r-1",)}


@pytest.mark.parametrize("count", [1_000, 2_000])
def test_what_waits_keeps_the_names_of_its_sources_longest(count: int) -> None:
    """With three names, or none, it never had as many sources as a lesson needs where more than three may collude."""
    names = tuple("abcdefghi")
    waiting = tuple(
        entry(f"w-{n}", "say", state="proposed", sources=names, support=("r" * 90,) * 9) for n in range(count)
    )
    shown = tuple(entry(f"e-{n}", "say", sources=("s" * 80,) * 9) for n in range(1_000))
    fitted = versions.fitted(BASE.model_copy(update={"entries": (*waiting, *shown)}))
    assert decode(encode(fitted), Playbook) == fitted
    assert {one.sources for one in fitted.entries if not one.is_active} == {names}


def test_a_version_that_fits_is_not_touched() -> None:
    assert versions.fitted(BASE) is BASE


# ---- what left


def retired_ids(playbook: Playbook) -> list[str]:
    return [former.entry_id for former in playbook.retired]


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


# ---- whole histories

steps = st.lists(
    st.one_of(
        st.tuples(operation_lists, seen_lists),
        st.sampled_from([KINDS["import"], KINDS["edit"], KINDS["revoke"], KINDS["rollback"]]),
    ),
    max_size=6,
)
BUDGET = 30


def history(taken: list[Any]) -> list[Playbook]:
    """Return the versions that steps make, oldest first."""
    made = [BASE]
    for step in taken:
        if isinstance(step, Command):
            made.append(
                executing.after_command(made[-1], step, 12, target=BASE, budget_tokens=BUDGET, now_ms=99)
            )
        else:
            update = an_update(*step[0], seen_=step[1])
            made.append(versions.after_update(made[-1], update, budget_tokens=BUDGET, now_ms=99))
    return made


@given(steps)
def test_a_history_replayed_gives_the_same_bytes(taken: list[Any]) -> None:
    assert [encode(version) for version in history(taken)] == [encode(version) for version in history(taken)]


@given(steps)
def test_after_every_update_the_budget_holds_and_what_retired_is_not_there(taken: list[Any]) -> None:
    for after in history(taken)[1:]:
        size = sum(-(-(len(e.id) + len(e.content) + 4) // 4) for e in after.entries)
        assert size <= BUDGET or after.origin not in {"batch", "edit"}
        assert not {e.id for e in after.entries} & set(retired_ids(after))
        assert len(after.retired) <= RETIRED_KEPT


@given(steps)
def test_no_id_is_ever_given_twice(taken: list[Any]) -> None:
    given_ids = {e.id for e in BASE.entries}
    for after in history(taken)[1:]:
        added = [entry_id for kind, entry_id in changes(after) if kind == "add"]
        assert len(set(added)) == len(added)
        assert not given_ids & set(added)
        given_ids |= set(added) | {e.id for e in after.entries}


def test_one_function_stamps_every_version() -> None:
    """Whatever makes a version, its place in the line and what made it are written in one place."""
    core = Path(versions.__file__).parent
    stamps = [
        (path.name, node.lineno)
        for folder in (core, core.parents[1] / "publish")
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "manifest_offset"
    ]
    assert [name for name, _ in stamps] == ["versions.py"], stamps
