"""How large a playbook may be: the budget that an import brings, and what the record of a version has room for."""

import pytest

from combee.core.commands import RefusedError, import_
from combee.core.formats.files import read_playbook, write_playbook
from combee.core.playbook import executing, versions
from combee.core.playbook.budget import (
    ENTRIES_BYTES,
    budget_text,
    entry_tokens,
    evictions,
    needed_tokens,
    stored_bytes,
)
from combee.core.playbook.lineage.recomputing import Recomputation
from combee.core.playbook.results.clusters import has_grown
from combee.core.playbook.versions import InapplicableError, empty
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import MAX_BUDGET_TOKENS, Entry, EntryState, Playbook
from combee_schemas.scan import Operation
from support.playbooks import (
    ADD,
    FORMULAS,
    PLENTY,
    UPDATE,
    after_command,
    command,
    learned,
    op,
    seen,
    update_of,
)

CONFIGURED = 1_000
LESSON = "Count what is there before you change it, and say how much it was. "


def book(count: int, text: str = LESSON * 4, **fields: int) -> Playbook:
    entries = tuple(
        Entry(id=f"calc-{n:05d}", section="formulas", content=f"{n} {text}") for n in range(1, count + 1)
    )
    return empty("p").model_copy(update={"entries": entries, "next_id": count + 1, **fields})


def imported(given: Playbook, base: Playbook | None = None, budget: int = CONFIGURED) -> Playbook:
    """Return the version that an import makes."""
    base = base or empty("p")
    made = import_(base, given, "ace", None)
    assert made is not None
    return executing.after_command(base, made, 1, target=None, budget_tokens=budget, now_ms=0)


def additions(first: int, count: int = 3) -> list[Operation]:
    return [
        op(ADD, f"Another {n}: {chr(97 + n % 26) * 60}", evidence=(f"r-{n}",))
        for n in range(first, first + count)
    ]


def batch(current: Playbook, first: int, budget: int = CONFIGURED) -> Playbook:
    reflections = [seen(f"r-{n}") for n in range(first, first + 3)]
    return learned(current, additions(first), reflections, budget=budget, playbook_tokens=budget)


LARGE = book(40)


def test_an_import_that_fits_leaves_the_configured_budget() -> None:
    made = imported(book(3))
    assert made.budget_tokens == 0
    assert not budget_text(made, CONFIGURED)


def test_a_larger_one_raises_its_playbook_s_budget_with_room_to_learn() -> None:
    made = imported(LARGE)
    needed = needed_tokens(made.entries, made.sections)
    assert CONFIGURED < needed * 5 // 4 <= made.budget_tokens < needed * 5 // 4 + 1_000
    assert budget_text(made, CONFIGURED) == (
        f"budget {made.budget_tokens:,} tokens, which an import brought (COMBEE_PLAYBOOK_TOKENS: 1,000)"
    )
    assert not budget_text(made, MAX_BUDGET_TOKENS)


def test_no_batch_evicts_what_it_brought_nor_at_once_what_was_learned() -> None:
    made = imported(LARGE)
    theirs = {entry.id for entry in made.entries}
    for first in range(0, 15, 3):
        made = batch(made, first)
        assert theirs <= {entry.id for entry in made.entries}
    assert "Another 0" in made.entries[len(theirs)].content


def test_entries_that_nobody_stands_behind_stay_too() -> None:
    made = imported(LARGE)
    learnt = tuple(entry.model_copy(update={"by_hand": False}) for entry in made.entries)
    after = batch(made.model_copy(update={"entries": learnt}), 0)
    assert len(after.entries) == len(learnt) + 3
    without = made.model_copy(update={"entries": learnt, "budget_tokens": 0})
    assert len(batch(without, 0).entries) < len(learnt)


def test_a_smaller_import_ends_it_and_a_rollback_brings_it_back() -> None:
    made = imported(LARGE)
    smaller = imported(book(3), made)
    assert smaller.budget_tokens == 0
    back = executing.after_command(
        smaller, command("rollback", version=1), 2, target=made, budget_tokens=CONFIGURED, now_ms=0
    )
    assert back.budget_tokens == made.budget_tokens
    assert len(back.entries) == len(LARGE.entries)
    assert after_command(command("delete"), made).budget_tokens == 0


def test_an_edit_and_a_recomputation_keep_it() -> None:
    made = imported(LARGE)
    edited = executing.after_command(
        made,
        command("edit", operations=(op(ADD, "Mind the gap."),)),
        2,
        target=None,
        budget_tokens=CONFIGURED,
        now_ms=0,
    )
    assert len(edited.entries) == len(LARGE.entries) + 1
    first = update_of(edited, additions(0), [seen(f"r-{n}") for n in range(3)], playbook_tokens=CONFIGURED)
    taught = versions.after_update(edited, first, budget_tokens=CONFIGURED, now_ms=0)
    rewords = op(UPDATE, "Something else altogether.", taught.entries[-1].id, evidence=("r-9",))
    second = update_of(taught, [rewords], [seen("r-9")], playbook_tokens=CONFIGURED)
    after = versions.after_update(taught, second, budget_tokens=CONFIGURED, now_ms=0)
    assert after.entries[-1].content == rewords.content
    barring = executing.with_revocation(after, command("revoke", reflection_ids=("r-9",)))
    recomputation = Recomputation(edited, barring)
    recomputation.follow(taught, first)
    recomputation.follow(after, second)
    left = recomputation.result(budget_tokens=CONFIGURED)
    assert [entry.content for entry in left.entries] == [entry.content for entry in taught.entries]


def test_json_keeps_the_budget_and_a_budget_that_does_not_suffice_is_raised() -> None:
    made = imported(LARGE)
    again = read_playbook(write_playbook(made, "json", everything=True), "json", name="p")
    assert imported(again.model_copy(update={"name": "q"}), empty("q")).budget_tokens == made.budget_tokens
    assert imported(LARGE.model_copy(update={"budget_tokens": 1_100})).budget_tokens == made.budget_tokens


def test_a_consolidation_by_itself_goes_by_the_playbook_s_own_budget() -> None:
    made = imported(LARGE)
    assert has_grown(made.model_copy(update={"budget_tokens": 0}), 0.9, CONFIGURED)
    assert not has_grown(made, 0.9, CONFIGURED)


# ---- what no playbook can hold


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (book(1_300), "tokens of entries: a playbook holds at most 80,000"),
        (book(700, "量" * 350), "bytes of entries"),
    ],
)
def test_what_no_playbook_can_hold_is_refused_with_the_remedy(given: Playbook, reason: str) -> None:
    with pytest.raises(RefusedError, match=f"{reason}.*import fewer entries") as refused:
        import_(empty("p"), given, "ace", None)
    assert refused.value.reason == "too_large"
    sent = Command(command_id="c", playbook="p", kind="import", entries=given.entries)
    with pytest.raises(InapplicableError, match="import fewer entries"):
        executing.after_command(empty("p"), sent, 1, target=None, budget_tokens=PLENTY, now_ms=0)


def test_the_largest_import_fits_its_record_with_its_evidence() -> None:
    count = MAX_BUDGET_TOKENS // entry_tokens(book(1).entries[0]) - 20
    evidence = tuple(f"reflection-of-some-length-{n:06d}" for n in range(20))
    given = book(count)
    entries = tuple(entry.model_copy(update={"evidence": evidence}) for entry in given.entries)
    made = versions.fitted(imported(given.model_copy(update={"entries": entries})))
    encode(made)
    assert len(made.entries) == count
    assert made.budget_tokens == MAX_BUDGET_TOKENS


@pytest.mark.parametrize("text", ["量" * 300, "ab"])
def test_a_batch_ends_in_a_version_that_fits_whatever_its_entries_are(text: str) -> None:
    count = ENTRIES_BYTES // stored_bytes(book(1, text).entries)
    full = book(count - 20, text, budget_tokens=MAX_BUDGET_TOKENS)
    made = learned(full, additions(0, 500), [seen(f"r-{n}") for n in range(500)], budget=MAX_BUDGET_TOKENS)
    evicted = [change for change in made.changes if change.kind == "evict"]
    assert evicted
    assert stored_bytes(made.entries) <= ENTRIES_BYTES
    encode(versions.fitted(made))


@pytest.mark.parametrize("state", ["active", "proposed"])
def test_only_as_many_entries_as_a_record_lacks_room_for_go_and_those_by_hand_last(state: EntryState) -> None:
    text = "量" * 300
    count = ENTRIES_BYTES // stored_bytes(book(1, text).entries[:1])
    new = 8
    full = book(count, text).entries
    entries = [
        entry.model_copy(update={"by_hand": n < count - new, "state": "active" if n < count - new else state})
        for n, entry in enumerate((*full, full[0].model_copy(update={"id": "calc-99999"})))
    ]
    out = evictions(entries, MAX_BUDGET_TOKENS)
    excess = stored_bytes(entries) - ENTRIES_BYTES
    assert 0 < excess <= stored_bytes(entries[:2])
    assert len(out) in {1, 2}
    assert {entry.id for entry in entries if not entry.by_hand}.issuperset(out)


def test_a_component_that_no_record_holds_is_dropped_by_name() -> None:
    text = "量" * (ENTRIES_BYTES // 3)
    made = learned(
        empty("p"), [op(ADD, text, evidence=("r-1",))], [seen("r-1")], budget=PLENTY, holds="components"
    )
    (change,) = made.changes
    written = Entry(id=change.entry_id, section=FORMULAS, content=text)
    assert change.kind == "dropped"
    assert change.detail.endswith(
        f"{stored_bytes([written])} bytes exceed the {ENTRIES_BYTES} of a version's record"
    )
