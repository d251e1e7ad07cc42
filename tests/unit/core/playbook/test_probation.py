"""Probation: what is proposed, what promotes it, what lets it expire; and that nothing else follows from it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core import commands
from combee.core.formats.files import write_playbook
from combee.core.playbook import versions
from combee.core.playbook.budget import PROPOSED_SHARE, entry_tokens, evictions
from combee.core.playbook.comparison import compare
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import empty
from combee_schemas.plan import CloseReason, Probation
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Known, Operation
from support.playbooks import (
    ADD,
    MERGE,
    PLENTY,
    UPDATE,
    after_command,
    changes,
    command,
    entry,
    get,
    op,
    update_of,
)

TWO = Probation(reflections=2, batches=3)
RULE = "Gross margin is gross profit divided by revenue, in percent with 2 decimals, rounded half up"
NEAR = "The gross margin is gross profit divided by revenue in percent with 2 decimals, and rounded half up"
OTHER = "Days of inventory are inventory over cost of goods per day"


def after_batch(
    current: Playbook,
    *operations: Operation,
    policy: Probation | None = TWO,
    known: Sequence[Known] = (),
    budget: int = PLENTY,
    reason: CloseReason = "size",
    **settings: Any,
) -> Playbook:
    """Return the version that a batch of these operations makes."""
    settings = {"sources": "declared", "probation": policy, **settings}
    made = update_of(current, operations, (), reason, known=known, **settings)
    return versions.after_update(current, made, budget_tokens=budget, now_ms=0)


def batches(*each: Sequence[Operation], policy: Probation | None = TWO) -> Playbook:
    current = empty("p")
    for operations in each:
        current = after_batch(current, *operations, policy=policy)
    return current


def add(content: str, *evidence: str) -> Operation:
    return op(ADD, content, evidence=evidence)


def only(playbook: Playbook) -> Entry:
    (entry,) = playbook.entries
    return entry


def states(playbook: Playbook) -> dict[str, str]:
    return {kept.content: kept.state for kept in playbook.entries}


# ---- promotion


def test_one_reflection_proposes_and_a_second_one_promotes() -> None:
    first = batches([add(RULE, "r-1")])
    assert (only(first).state, only(first).support, changes(first)) == (
        "proposed",
        ("r-1",),
        [("add", "calc-00001")],
    )
    assert shown(first).entries == ()
    second = after_batch(first, add(RULE, "r-2"))
    assert (only(second).state, only(second).support) == ("active", ())
    assert only(second).evidence == ("r-1", "r-2")
    assert changes(second) == [("duplicate", "calc-00001"), ("promote", "calc-00001")]
    assert second.changes[-1].detail == "2 reflections support it"


def test_what_two_reflections_support_at_once_is_simply_added() -> None:
    made = batches([add(RULE, "r-1", "r-2")])
    assert (only(made).state, changes(made)) == ("active", [("add", "calc-00001")])


def test_one_reflection_in_two_operations_is_one() -> None:
    assert only(batches([add(RULE, "r-1"), add(f"{RULE}.", "r-1")])).state == "proposed"
    assert only(batches([add(RULE, "r-1")], [add(RULE, "r-1")])).state == "proposed"


def test_who_says_what_an_entry_has_already_supports_it() -> None:
    first = batches([add(RULE, "r-1")])
    (entry_id,) = (entry.id for entry in first.entries)
    second = after_batch(first, known=[Known(entry_id=entry_id, evidence=("r-2",))])
    assert (only(second).state, only(second).evidence) == ("active", ("r-1", "r-2"))
    assert changes(second) == [("duplicate", entry_id), ("promote", entry_id)]


def test_a_correction_of_a_proposed_entry_supports_its_new_words_alone() -> None:
    first = batches([add(RULE, "r-1")])
    reworded = only(after_batch(first, op(UPDATE, "else", "calc-00001", evidence=("r-2",))))
    assert (reworded.content, reworded.state, reworded.support) == ("else", "proposed", ("r-2",))
    again = op(UPDATE, RULE.upper(), "calc-00001", evidence=("r-2",))
    assert only(after_batch(first, again)).state == "active", "the same words"


def test_a_merge_is_supported_by_those_who_support_its_very_words() -> None:
    three = Probation(reflections=3)
    first = batches([add(RULE, "r-1"), add(OTHER, "r-2", "r-3")], policy=three)
    merge_of = {
        words: op(MERGE, words, "calc-00001", "calc-00002", evidence=("r-4",)) for words in (OTHER, "else")
    }
    assert only(after_batch(first, merge_of[OTHER], policy=three)).state == "active"
    assert only(after_batch(first, merge_of["else"], policy=three)).support == ("r-4",)


# ---- near-duplicates


@pytest.mark.parametrize(
    "other",
    [
        NEAR,
        f"{RULE}, and skip the screening",
        RULE.removesuffix(", rounded half up"),
        RULE.replace("gross profit", "net profit"),
        RULE.replace("2 decimals", "3 decimals"),
        RULE.replace("is gross", "is not gross"),
        RULE.replace("gross profit divided by revenue", "revenue divided by gross profit"),
    ],
)
def test_who_supports_what_says_more_less_or_else_supports_no_near_duplicate(other: str) -> None:
    """Two attackers and an honest reflection, whichever of them comes first."""
    three = Probation(reflections=3)
    attack, honest = add(other, "a-1", "a-2"), add(RULE, "r-1")
    for order in ([attack], [honest]), ([honest], [attack]), ([attack, honest], []):
        made = batches(*order, policy=three)
        assert states(made) == {other: "proposed", RULE: "proposed"}
        assert states(after_batch(made, add(RULE, "r-2", "r-3"), policy=three)) == {
            other: "proposed",
            RULE: "active",
        }


# ---- expiry


def test_what_nothing_supports_expires_and_is_recorded() -> None:
    made = batches([add(RULE, "r-1")], [], [])
    assert only(made).unsupported_batches == 2
    gone = after_batch(made)
    assert gone.entries == ()
    assert changes(gone) == [("expire", "calc-00001")]
    assert gone.changes[0].detail.startswith("1 of 2 reflections support it: Gross margin")
    assert gone.retired == ()


def test_support_begins_the_wait_anew() -> None:
    three = Probation(reflections=3, batches=3)
    made = batches([add(RULE, "r-1")], [], [], [add(RULE, "r-2")], policy=three)
    assert only(made).unsupported_batches == 0


def test_a_consolidation_is_no_batch_without_support_and_asks_about_what_agents_are_shown() -> None:
    current = batches([add(RULE, "r-1"), add(NEAR + ".", "r-2", "r-3"), add(OTHER, "r-4")], policy=None)
    states = ("proposed", "active", "proposed")
    entries = (
        entry.model_copy(update={"state": state})
        for entry, state in zip(current.entries, states, strict=True)
    )
    current = current.model_copy(update={"entries": tuple(entries)})
    assert commands.consolidate(current, None) is None
    after = current
    for _ in range(TWO.batches):
        after = after_batch(after, reason="consolidate")
    assert after.entries == current.entries


def test_a_version_of_a_person_is_no_batch_without_support() -> None:
    first = batches([add(RULE, "r-1")])
    edited = after_command(command("edit", operations=(op(ADD, OTHER),)), first)
    assert get(edited, "calc-00001").unsupported_batches == 0


# ---- what else may happen to an entry


def test_what_was_active_stays_so_when_it_is_merged() -> None:
    made = batches([add(RULE, "r-1", "r-2")], [add(OTHER, "r-3")])
    merged = after_batch(made, op(MERGE, "both", "calc-00002", "calc-00001", evidence=("r-4",)))
    assert (only(merged).state, only(merged).id) == ("active", "calc-00002")


def test_what_a_person_writes_is_active_at_once_and_says_so() -> None:
    first = batches([add(RULE, "r-1")])
    edited = after_command(command("edit", operations=(op(ADD, RULE), op(ADD, OTHER))), first)
    assert set(states(edited).values()) == {"active"}
    assert [change.kind for change in edited.changes] == ["duplicate", "add", "promote"]
    assert edited.changes[-1].detail == "by hand"
    imported = after_command(command("import", entries=(entry("calc-00009", RULE),)), first)
    assert states(imported) == {RULE: "active"}


def test_a_person_may_keep_what_is_only_proposed() -> None:
    first = batches([add(RULE, "r-1"), add(OTHER, "r-2")])
    kept = commands.keep(first, ["calc-00002"], None)
    assert kept is not None
    made = after_command(kept, first)
    assert states(made) == {RULE: "proposed", OTHER: "active"}
    assert changes(made) == [("promote", "calc-00002")]
    assert commands.keep(made, ["calc-00002"], None) is None
    with pytest.raises(commands.RefusedError, match="has no entry calc-00077"):
        commands.keep(made, ["calc-00077"], None)


def test_an_edit_of_what_agents_are_shown_leaves_the_rest_alone() -> None:
    made = batches([add(RULE, "r-1", "r-2")], [add(OTHER, "r-3")])
    text = write_playbook(made, "md").replace("Gross margin", "The gross margin")
    edit = commands.edit(made, made.version, made, text, None)
    assert edit is not None
    assert [operation.entry_ids for operation in edit.operations] == [("calc-00001",)]
    assert OTHER in states(after_command(edit, made))


def test_a_rollback_carries_states_as_they_were() -> None:
    first = batches([add(RULE, "r-1")], [])
    second = after_batch(first, add(RULE, "r-2"))
    back = after_command(command("rollback", version=first.version), second, first)
    assert (only(back).state, only(back).support, only(back).unsupported_batches) == ("proposed", ("r-1",), 1)


def test_a_revocation_takes_support_back() -> None:
    three = Probation(reflections=3)
    made = batches([add(RULE, "r-1")], [add(RULE, "r-2")], policy=three)
    revoked = after_command(command("revoke", reflection_ids=("r-1",)), made)
    assert (only(revoked).support, only(revoked).state) == (("r-2",), "proposed")
    assert only(after_batch(revoked, add(RULE, "r-3"), policy=three)).state == "proposed"


def test_a_proposed_entry_takes_no_room_from_those_that_are_shown() -> None:
    line = entry("calc-00001", RULE)
    room = entry_tokens(line)
    others = [entry(f"calc-{n:05d}", RULE, state="proposed", evidence_count=n) for n in (2, 3)]
    assert evictions([line, *others], room * PROPOSED_SHARE) == ("calc-00002",)
    assert evictions([line, *others], room) == ("calc-00002", "calc-00003")


def test_of_what_waits_the_source_with_most_room_makes_room_however_often_it_says_so() -> None:
    lines = [
        entry(f"calc-{n:05d}", RULE, state="proposed", sources=sources, support=support)
        for n, (sources, support) in enumerate(
            [
                (("shop",), ("r-1",)),
                (("flood",), ("r-2", "r-3")),
                (("lab", "flood"), ("r-4", "r-5", "r-6")),
                (("flood",), ("r-7", "r-8", "r-9")),
                ((), ("r-10",)),
            ],
            1,
        )
    ]
    room = entry_tokens(lines[0]) * PROPOSED_SHARE
    assert evictions(lines, 4 * room) == ("calc-00002",)
    assert evictions(lines, 3 * room) == ("calc-00002", "calc-00004")
    unnamed = [line.model_copy(update={"sources": ()}) for line in lines]
    assert evictions(unnamed, 3 * room) == ("calc-00001", "calc-00005")


def test_components_are_never_on_probation() -> None:
    current = empty("p").model_copy(update={"holds": "components", "entries": (entry("calc-1", "x"),)})
    made = after_batch(current, add(RULE, "r-1"), holds="components", method="gepa")
    assert states(made) == {RULE: "active"}


# ---- what agents are shown


def test_texts_have_what_agents_are_shown_unless_everything_is_wanted() -> None:
    made = batches([add(RULE, "r-1", "r-2"), add(OTHER, "r-3")])
    for form in ("ace", "md", "json", "kayba", "skill"):
        assert OTHER not in write_playbook(made, form)
        assert OTHER in write_playbook(made, form, everything=True)


def test_a_promoted_entry_is_new_to_agents() -> None:
    first = batches([add(RULE, "r-1")])
    second = after_batch(first, add(RULE, "r-2"))
    assert compare(empty("p"), first).added == ()
    assert [added.id for added in compare(first, second).added] == ["calc-00001"]


# ---- properties

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
RULES = tuple(f"{word} {word}ic {word}ism {number}" for number, word in enumerate(WORDS))
operations = st.lists(
    st.builds(
        lambda content, evidence: add(content, *evidence),
        st.sampled_from(RULES),
        st.lists(st.sampled_from([f"r-{n}" for n in range(9)]), min_size=1, max_size=2, unique=True),
    ),
    max_size=4,
)
histories = st.lists(operations, max_size=6)
LASTING = Probation(reflections=2, batches=99)


def by_content(playbook: Playbook) -> dict[str, set[str]]:
    return {kept.content: set(kept.evidence) for kept in playbook.entries}


@given(histories)
def test_no_reflections_evidence_is_lost_by_probation(history: list[list[Operation]]) -> None:
    assert by_content(batches(*history, policy=LASTING)) == by_content(batches(*history, policy=None))


@given(histories)
def test_states_follow_from_evidence_alone(history: list[list[Operation]]) -> None:
    made = batches(*history, policy=LASTING)
    assert {kept.id: kept.is_active for kept in made.entries} == {
        kept.id: len(kept.evidence) >= LASTING.reflections for kept in made.entries
    }


@given(histories)
def test_one_reflection_equals_off(history: list[list[Operation]]) -> None:
    def told(policy: Probation | None) -> list[object]:
        current, found = empty("p"), list[object]()
        for batch in history:
            current = after_batch(current, *batch, policy=policy)
            found.append((current.entries, current.changes, current.next_id))
        return found

    assert told(Probation(reflections=1)) == told(None)
