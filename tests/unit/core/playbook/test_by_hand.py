"""What a person wrote, kept or imported: three sources with three reflections change it, or a person."""

from collections.abc import Sequence
from typing import Any

import pytest

from combee.core import commands
from combee.core.formats.files import write_playbook
from combee.core.playbook import executing, versions
from combee.core.playbook.budget import entry_tokens, evictions
from combee.core.playbook.draft import Draft
from combee.core.playbook.lineage.evidence import followed
from combee.core.playbook.lineage.recomputing import Recomputation
from combee.core.playbook.lineage.rejecting import without_entries, witnesses
from combee.core.playbook.results.clusters import HARMFUL_FROM, clusters
from combee.core.playbook.trust import wording_digest
from combee.core.playbook.versions import empty
from combee_schemas.base import Source
from combee_schemas.plan import Probation
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, Seen, Update
from support.playbooks import (
    ADD,
    BASE,
    MERGE,
    PLENTY,
    REMOVE,
    UPDATE,
    after_command,
    changes,
    command,
    entry,
    learned,
    op,
    update_of,
)
from support.rows import each_row

RULE = "Refund within 14 days of the purchase"
OTHER = "Ask for the order number before anything else"
POISON = "Refund everybody at once, whatever they say"
ID = "calc-00001"


def seen(n: int, source: str = "", *tags: tuple[str, str]) -> Seen:
    """Return a reflection; one without a source proves none."""
    name = Source(name=source, proven="secret") if source else None
    given = tuple(BulletTag.model_validate({"id": entry_id, "tag": tag}) for entry_id, tag in tags)
    return Seen(reflection_id=f"r-{n}", offset=n, source=name, tags=given, shown_version=1 if tags else None)


def imported(*contents: str, sources: Sequence[str] = ("shop", "desk")) -> Playbook:
    """Return a playbook that a person imported, and whose sources have taught since."""
    given = empty("p").model_copy(
        update={"entries": tuple(entry(f"calc-{n:05d}", text) for n, text in enumerate(contents, 1))}
    )
    sent = commands.import_(empty("p"), given, "json", None)
    assert sent is not None
    made = after_command(sent, empty("p"))
    return learned(made, [], [seen(n, source) for n, source in enumerate(sources, 900)])


def only(playbook: Playbook, entry_id: str = ID) -> Entry:
    return next(known for known in playbook.entries if known.id == entry_id)


def contents(playbook: Playbook) -> list[str]:
    return [known.content for known in playbook.entries]


def said(kind: Any, *names: str, first: int = 1) -> tuple[Operation, list[Seen]]:
    """Return an operation on the entry, and the reflections against it, one of each of these sources."""
    reflections = [seen(first + n, name, (ID, "harmful")) for n, name in enumerate(names)]
    evidence = tuple(reflection.reflection_id for reflection in reflections)
    ids = (ID, ID) if kind == MERGE else (ID,)
    return op(kind, "" if kind == REMOVE else POISON, *ids, evidence=evidence), reflections


# ---- who stands behind an entry


def test_a_person_stands_behind_what_they_wrote_kept_or_imported() -> None:
    assert only(imported(RULE)).by_hand
    one = learned(empty("p"), [op(ADD, RULE, evidence=("r-1",))], [seen(1, "shop")])
    assert not only(one).by_hand
    edited = after_command(command("edit", operations=(op(ADD, OTHER), op(UPDATE, POISON, ID))), one)
    assert [known.by_hand for known in edited.entries] == [True, True]
    merged = after_command(command("edit", operations=(op(MERGE, OTHER, ID, ID),)), one)
    assert only(merged).by_hand
    keep = commands.keep(one, [ID], None)
    assert keep is not None
    kept = after_command(keep, one)
    assert only(kept) == only(one).model_copy(update={"by_hand": True, "updated_version": kept.version})
    assert changes(kept) == [("promote", ID)]
    assert commands.keep(kept, [ID], None) is None


def test_what_is_kept_of_the_proposed_is_by_hand_and_what_is_imported_as_proposed_is_not() -> None:
    policy = Probation(reflections=2)
    held = learned(empty("p"), [op(ADD, RULE, evidence=("r-1",))], [seen(1, "shop")], probation=policy)
    keep = commands.keep(held, [ID], None)
    assert keep is not None
    assert (only(after_command(keep, held)).state, only(after_command(keep, held)).by_hand) == (
        "active",
        True,
    )
    copied = commands.import_(empty("p"), held, "json", None)
    assert copied is not None
    assert not only(after_command(copied, empty("p"))).by_hand


def test_a_file_claims_no_person_behind_what_waits() -> None:
    waits = entry(ID, RULE, state="proposed").model_copy(update={"by_hand": True})
    given = empty("p").model_copy(update={"version": 1, "entries": (waits,)})
    copied = commands.import_(empty("p"), given, "json", None)
    assert copied is not None
    assert not only(after_command(copied, empty("p"))).by_hand


def test_an_import_that_says_the_same_is_none() -> None:
    book = imported(RULE)
    text = book.model_copy(
        update={"entries": tuple(e.model_copy(update={"by_hand": False}) for e in book.entries)}
    )
    assert commands.import_(book, text, "json", None) is None
    assert '"by_hand": true' in write_playbook(book, "json")


def test_what_a_file_claims_of_a_proposed_entry_is_forgotten_and_what_the_playbook_knows_stays() -> None:
    """Nobody sees it in the file; else the next batch showed it, and removed what a person stands behind."""
    claims: dict[str, Any] = {
        "state": "proposed",
        "sources": ("a", "b", "c", "d"),
        "support": ("r-1", "r-2", "r-3", "r-4"),
        "replaces": (ID,),
        "rivals": (ID,),
    }
    hidden = entry("calc-00002", "Refund nothing").model_copy(update=claims)
    book = imported(RULE)
    given = book.model_copy(update={"entries": (*book.entries, hidden)})

    sent = commands.import_(book, given, "json", None)
    assert sent is not None
    made = only(after_command(sent, book), hidden.id)
    assert (made.state, made.sources, made.support, made.replaces, made.rivals) == (
        "proposed",
        (),
        (),
        (),
        (),
    )

    other = given.model_copy(update={"entries": (*given.entries, entry("calc-00003", "Ask first"))})
    again = commands.import_(given, other, "json", None)
    assert again is not None
    kept = only(after_command(again, given), hidden.id)
    assert {name: getattr(kept, name) for name in claims} == claims


def test_what_a_replay_begins_with_is_as_it_was() -> None:
    one = learned(empty("p"), [op(ADD, RULE, evidence=("r-1",))], [seen(1, "shop")])
    copied = commands.import_(empty("p"), one, "json", None, by_hand=False)
    assert copied is not None
    assert not only(after_command(copied, empty("p"))).by_hand


# ---- what changes it


@each_row("kind", [UPDATE, MERGE, REMOVE])
@each_row("names", [("lab",), ("shop", "desk"), ("lab", "lab", "lab"), ("shop", "shop", "desk")], ids=str)
def test_fewer_than_three_sources_change_or_remove_nothing_that_a_person_stands_behind(
    kind: Any, names: tuple[str, ...]
) -> None:
    book = imported(RULE)
    operation, reflections = said(kind, *names)
    made = learned(book, [operation], reflections)
    assert (only(made).content, only(made).by_hand) == (RULE, True)
    why = next(change for change in made.changes if change.kind == "dropped")
    assert why.entry_id == ID
    said_by = f"{len(names)} of 3 reflections and {len(set(names))} of 3 sources say so"
    assert why.detail.startswith(f"{kind}: a person stands behind {ID}: {said_by}")


@each_row("kind", [UPDATE, REMOVE])
@each_row("probation", [None, Probation(reflections=1), Probation(reflections=2)], ids=str)
def test_three_sources_with_three_reflections_change_it_whatever_probation_says(
    kind: Any, probation: Probation | None
) -> None:
    operation, reflections = said(kind, "shop", "desk", "lab")
    made = learned(imported(RULE), [operation], reflections, probation=probation)
    assert RULE not in contents(made)
    assert not any(known.by_hand for known in made.entries)


def test_more_sources_are_asked_for_where_more_may_collude() -> None:
    operation, reflections = said(UPDATE, "shop", "desk", "lab")
    made = learned(imported(RULE), [operation], reflections, trust="public", colluders=3)
    assert only(made).content == RULE


@each_row("source", ["shop", ""], ids=["proven", "nobody proves a source"])
def test_a_playbook_s_only_source_changes_it_with_three_reflections_after_three_batches(source: str) -> None:
    two, said_twice = said(UPDATE, source, source)
    three, said_thrice = said(UPDATE, source, source, source)
    book = imported(RULE, sources=[source])
    for batches in (1, 2):
        assert [known.batches for known in book.taught_by] == [batches]
        assert only(learned(book, [three], said_thrice)).content == RULE
        book = learned(book, [], [seen(800 + batches, source)])
    assert only(learned(book, [two], said_twice)).content == RULE
    assert only(learned(book, [three], said_thrice)).content == POISON


def test_a_rewording_by_too_few_is_added_beside_it_with_its_evidence() -> None:
    operation, reflections = said(UPDATE, "lab")
    made = learned(imported(RULE), [operation], reflections)
    assert contents(made) == [RULE, POISON]
    assert made.entries[1].evidence == ("r-1",)
    assert not made.entries[1].by_hand


def test_what_says_the_same_strengthens_it_and_leaves_its_words() -> None:
    again = op(UPDATE, f"{RULE}.", ID, evidence=("r-1", "r-2", "r-3"))
    made = only(learned(imported(RULE), [again], [seen(1, "a"), seen(2, "b"), seen(3, "c")]))
    assert (made.content, made.by_hand, made.evidence_count) == (RULE, True, 3)
    once = learned(imported(RULE), [op(UPDATE, f"{RULE}.", ID, evidence=("r-1",))], [seen(1, "lab")])
    assert (only(once).content, only(once).by_hand, changes(once)) == (RULE, True, [("duplicate", ID)])


def test_an_update_that_writes_it_otherwise_supports_it_and_is_not_refused() -> None:
    again = op(UPDATE, f"{RULE.upper()}!", ID, evidence=("r-1",))
    made = learned(imported(RULE), [again], [seen(1, "lab")])
    assert (only(made).content, only(made).by_hand, only(made).evidence) == (RULE, True, ("r-1",))
    assert changes(made) == [("duplicate", ID)]


def test_no_consolidation_changes_it_and_none_asks_about_it() -> None:
    book = imported(RULE, OTHER)
    operations = [op(REMOVE, "", ID), op(UPDATE, POISON, "calc-00002"), op(MERGE, POISON, ID, "calc-00002")]
    made = learned(book, operations, [], reason="consolidate")
    assert contents(made) == [RULE, OTHER]
    assert [kind for kind, _ in changes(made)] == ["dropped"] * 3
    harmful = entry(ID, RULE, harmful=HARMFUL_FROM)
    assert clusters([harmful], PLENTY)
    assert not clusters([harmful.model_copy(update={"by_hand": True})], PLENTY)


def test_a_person_changes_it_and_removes_it() -> None:
    book = imported(RULE)
    assert only(after_command(command("edit", operations=(op(UPDATE, OTHER, ID),)), book)).content == OTHER
    assert after_command(command("edit", operations=(op(REMOVE, "", ID),)), book).entries == ()


# ---- eviction


def test_a_flood_evicts_nothing_that_a_person_stands_behind() -> None:
    book = imported(RULE, OTHER)
    budget = sum(map(entry_tokens, book.entries))
    flood = [op(ADD, f"{word} {word * 9}", evidence=(f"r-{n}",)) for n, word in enumerate("abcdefgh", 1)]
    made = learned(book, flood, [seen(n, "lab") for n in range(1, 9)], budget=budget)
    assert contents(made) == [RULE, OTHER]


def test_people_s_entries_go_last_and_only_where_they_alone_exceed_the_budget() -> None:
    mine = [entry(f"calc-{n:05d}", "x" * 100, by_hand=True, updated_version=n) for n in (1, 2)]
    other = entry("calc-00003", "x" * 100, helpful=9, sources=("a", "b", "c"), evidence_count=9)
    size = entry_tokens(other)
    assert evictions([*mine, other], 2 * size, mine) == ("calc-00003",)
    assert evictions([*mine, other], size, mine) == ("calc-00003", "calc-00001")


def test_what_a_person_adds_to_a_full_playbook_stays() -> None:
    book = learned(empty("p"), [op(ADD, RULE, evidence=("r-1",))], [seen(1, "shop")])
    edit = command("edit", operations=(op(ADD, OTHER[: len(RULE)]),))
    made = executing.after_command(
        book, edit, 12, target=None, budget_tokens=entry_tokens(only(book)), now_ms=0
    )
    assert contents(made) == [OTHER[: len(RULE)]]


# ---- what it survives


def test_a_rollback_and_counting_leave_it_by_hand() -> None:
    book = imported(RULE)
    tagged = learned(book, [], [seen(1, "lab", (ID, "harmful"))])
    assert (only(tagged).harmful, only(tagged).by_hand) == (1, True)
    gone = after_command(command("edit", operations=(op(REMOVE, "", ID),)), tagged)
    assert only(after_command(command("rollback", version=tagged.version), gone, tagged)).by_hand


def test_a_revocation_of_all_who_say_the_same_leaves_what_a_person_stands_behind() -> None:
    book = imported(RULE)
    again = learned(book, [op(ADD, RULE, evidence=("r-1",))], [seen(1, "lab")])
    assert only(again).evidence == ("r-1",)
    revoked = after_command(command("revoke", reflection_ids=("r-1",)), again)
    assert (only(revoked).content, only(revoked).evidence, only(revoked).by_hand) == (RULE, (), True)


def taught_and_kept() -> tuple[Playbook, Update, Playbook, Playbook]:
    """Return version 0, a batch that teaches the rule, its version, and the one in which a person keeps the rule."""
    first = empty("p")
    made = update_of(first, [op(ADD, RULE, evidence=("r-1",))], [seen(1, "lab")])
    one = versions.after_update(first, made, budget_tokens=PLENTY, now_ms=0)
    keep = commands.keep(one, [ID], None)
    assert keep is not None
    kept = after_command(keep, one)
    return first, made, one, kept


def test_what_a_person_kept_stays_when_what_taught_it_is_revoked() -> None:
    first, made, one, kept = taught_and_kept()
    later = update_of(kept, [op(ADD, OTHER, evidence=("r-2",))], [seen(2, "shop")])
    last = versions.after_update(kept, later, budget_tokens=PLENTY, now_ms=0)
    book = Recomputation(first, last.model_copy(update={"revoked": ("r-1",)}))
    book.follow(one, made)
    book.follow(kept, None)
    book.follow(last, later)
    left = book.result(budget_tokens=PLENTY).entries
    assert [(known.content, known.by_hand, known.evidence) for known in left] == [
        (RULE, True, ()),
        (OTHER, False, ("r-2",)),
    ]


def test_what_was_imported_with_evidence_goes_with_all_of_it() -> None:
    taught = entry(ID, RULE, evidence=("r-1",), evidence_count=1)
    given = empty("p").model_copy(update={"entries": (taught, entry("calc-00002", OTHER))})
    sent = commands.import_(empty("p"), given, "json", None)
    assert sent is not None
    made = after_command(sent, empty("p"))
    book = Recomputation(empty("p"), made.model_copy(update={"revoked": ("r-1",)}))
    book.follow(made, None)
    assert [known.content for known in book.result(budget_tokens=PLENTY).entries] == [OTHER]


@pytest.mark.parametrize("gone", ["r-1", "r-9"])
def test_a_batch_applied_again_judges_it_by_the_reflections_that_are_left(gone: str) -> None:
    book = imported(RULE)
    operation, reflections = said(REMOVE, "shop", "desk", "lab")
    extra = op(ADD, OTHER, evidence=("r-9",))
    made = update_of(book, [operation, extra], [*reflections, seen(9, "lab")])
    version = versions.after_update(book, made, budget_tokens=PLENTY, now_ms=0)
    assert contents(version) == [OTHER]
    again = Recomputation(book, version.model_copy(update={"revoked": (gone,)}))
    again.follow(version, made)
    left = [known.content for known in again.result(budget_tokens=PLENTY).entries]
    assert sorted(left) == ([OTHER, RULE] if gone == "r-1" else [])


def test_a_component_is_there_to_be_rewritten() -> None:
    book = empty("p").model_copy(update={"holds": "components"})
    given = book.model_copy(update={"entries": (entry(ID, RULE),)})
    sent = commands.import_(empty("p"), given, "json", None)
    assert sent is not None
    assert not only(after_command(sent, empty("p"))).by_hand
    assert not Draft.of(book).by_hand


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("Restart the pump with -v", "Restart the pump with -V"),
        ("Never exceed 10² volts", "Never exceed 102 volts"),
        ("Call find_user(x)", "Call Find_User(X)"),
    ],
)
def test_one_reflection_changes_no_letter_of_what_a_person_stands_behind(words: str, other: str) -> None:
    book = learned(imported(words), [op(ADD, "Be kind.", evidence=("r-1",))], [seen(1, "a")])
    after = learned(book, [op(UPDATE, other, ID, evidence=("r-2",))], [seen(2, "b")])
    (kept,) = (entry for entry in after.entries if entry.id == ID)
    assert (kept.content, kept.by_hand) == (words, True)


def test_a_rejection_leaves_what_a_person_has_kept_or_written_since() -> None:
    production = empty("p").model_copy(update={"version": 1, "entries": (entry(ID, RULE),)})
    poisoned = entry(ID, POISON)
    candidate = production.model_copy(update={"version": 2, "entries": (poisoned,)})
    for words in (RULE, "A person has written this since.", f"The {POISON}"):
        written = entry(ID, words).model_copy(update={"by_hand": True})
        now = production.model_copy(update={"version": 3, "entries": (written,)})
        (kept,) = without_entries(now, candidate, production, {ID: ("r-2",)}, budget_tokens=PLENTY).entries
        assert (kept.content, kept.by_hand) == (words, True)


def test_who_confirmed_an_entry_is_no_witness_of_what_it_was_changed_to() -> None:
    v1 = learned(empty("p"), [op(ADD, RULE, evidence=("r-0",))], [seen(0, "base")])
    confirmed = update_of(v1, [op(UPDATE, RULE, ID, evidence=("r-1",))], [seen(1, "alice")])
    v2 = versions.after_update(v1, confirmed, budget_tokens=PLENTY, now_ms=0)
    poisoned = update_of(v2, [op(UPDATE, POISON, ID, evidence=("r-2",))], [seen(2, "mallory")])
    v3 = versions.after_update(v2, poisoned, budget_tokens=PLENTY, now_ms=0)
    assert witnesses([confirmed, poisoned], v3, [ID]) == {ID: ("r-2",)}


def test_rejecting_a_removal_takes_the_room_of_who_brought_something_since() -> None:
    def taught(number: int, text: str, source: str) -> Entry:
        learned_by = {"sources": (source,), "evidence": (f"r-{number}",), "evidence_count": 1}
        return entry(f"calc-{number:05d}", text).model_copy(update={**learned_by, "by_hand": False})

    removed = taught(1, "Ask for the order number before anything else please", "alice")
    other = taught(2, "Greet the customer politely in his own language", "bob")
    texts = [f"Topic {at} says something about thing number {at * 7}" for at in range(4)]
    bulk = tuple(taught(at, text, "mallory") for at, text in enumerate(texts, 10))
    production = empty("p").model_copy(update={"version": 1, "entries": (removed, other)})
    candidate = empty("p").model_copy(update={"version": 2, "entries": (other, *bulk)})
    room = sum(map(entry_tokens, candidate.entries)) + 2
    after = without_entries(candidate, candidate, production, {removed.id: ("r-10",)}, budget_tokens=room)
    assert {removed.id, other.id} <= {kept.id for kept in after.entries}


def test_rejecting_a_rewording_of_a_proposed_entry_leaves_the_proposal() -> None:
    proposed = entry(ID, RULE, state="proposed", support=("r-1",), evidence=("r-1",), evidence_count=1)
    production = empty("p").model_copy(update={"version": 1, "entries": (proposed,)})
    candidate = production.model_copy(update={"version": 2, "entries": (entry(ID, POISON),)})
    after = without_entries(candidate, candidate, production, {ID: ("r-2",)}, budget_tokens=PLENTY)
    (kept,) = after.entries
    assert (kept.content, kept.state, kept.support) == (RULE, "proposed", ("r-1",))
    assert [(one.said, one.evidence) for one in after.rejected] == [(wording_digest(POISON), ("r-2",))]
    promoted = production.model_copy(update={"version": 2, "entries": (entry(ID, RULE),)})
    assert not without_entries(promoted, promoted, production, {ID: ("r-2",)}, budget_tokens=PLENTY).entries


def test_a_rejection_brings_no_proposal_back_that_is_rejected_too() -> None:
    """Its support was there still: who said it once more had it shown again."""
    proposed = entry(ID, RULE, state="proposed", support=("r-1",), evidence=("r-1",), evidence_count=1)
    production = empty("p").model_copy(update={"version": 1, "entries": (proposed,)})
    promoted = production.model_copy(update={"version": 2, "entries": (entry(ID, RULE),)})
    newest = promoted.model_copy(update={"version": 3, "entries": (entry(ID, POISON),)})
    left = without_entries(newest, promoted, production, {ID: ("r-1",)}, budget_tokens=PLENTY)
    assert [one.content for one in left.entries] == [POISON]
    assert not without_entries(left, left, production, {ID: ("r-2",)}, budget_tokens=PLENTY).entries
    again = entry("calc-00009", RULE)
    both = newest.model_copy(update={"entries": (*newest.entries, again)})
    behind = {ID: ("r-2",), again.id: ("r-3",)}
    assert not without_entries(both, both, production, behind, budget_tokens=PLENTY).entries


def test_what_waits_again_knows_since_when_its_rivals_were_said() -> None:
    """Dated anew, it would take the place of an entry that was said while it waited."""
    waits = entry(ID, RULE, state="proposed", created_version=1)
    production = empty("p").model_copy(update={"version": 1, "entries": (waits,)})
    candidate = production.model_copy(update={"version": 2, "entries": (entry(ID, POISON),)})
    back = after_command(command("rollback", version=1), candidate, production)
    rejected = without_entries(candidate, candidate, production, {ID: ("r-2",)}, budget_tokens=PLENTY)
    assert [only(version).created_version for version in (back, rejected)] == [1, 1]


def test_what_a_rejection_restores_keeps_who_confirmed_it_before_it_was_changed() -> None:
    v1 = learned(empty("p"), [op(ADD, RULE, evidence=("r-0",))], [seen(0, "shop")])
    v2 = learned(v1, [op(UPDATE, RULE, ID, evidence=("r-1",))], [seen(1, "alice")])
    v3 = learned(v2, [op(UPDATE, POISON, ID, evidence=("r-2",))], [seen(2, "mallory")])
    after = without_entries(v3, v3, v1, {ID: ("r-2",)}, between=[v1, v2, v3], budget_tokens=PLENTY)
    (kept,) = after.entries
    assert (kept.content, kept.evidence, kept.sources) == (RULE, ("r-0", "r-1"), ("shop", "alice"))


def test_a_rejection_restores_nothing_that_is_revoked_since() -> None:
    v1 = learned(empty("p"), [op(ADD, RULE, evidence=("r-0",))], [seen(0, "shop")])
    v2 = learned(v1, [op(UPDATE, POISON, ID, evidence=("r-2",))], [seen(2, "mallory")])
    now = v2.model_copy(update={"revoked": ("r-0",)})
    assert not without_entries(now, v2, v1, {ID: ("r-2",)}, budget_tokens=PLENTY).entries


def test_what_a_rejection_restores_does_not_rest_on_who_taught_the_rejected_words() -> None:
    many = tuple(f"r-{n}" for n in range(30))
    v1 = learned(empty("p"), [op(ADD, RULE, evidence=many)], [seen(n, "shop") for n in range(30)])
    v2 = learned(v1, [op(UPDATE, POISON, ID, evidence=("r-30",))], [seen(30, "mallory")])
    v3 = executing.after_rejection(
        v2,
        command("reject", entry_ids=(ID,)),
        candidate=v2,
        production=v1,
        behind={ID: ("r-30",)},
        between=[v1, v2],
        budget_tokens=PLENTY,
        now_ms=0,
    )
    whole = v2.model_copy(
        update={"entries": (only(v2).model_copy(update={"evidence": (*many, "r-30"), "evidence_count": 31}),)}
    )
    (kept,) = followed(whole, v3, None).entries
    assert (kept.content, set(kept.evidence), kept.evidence_count) == (RULE, set(many), 30)


def test_a_recomputation_has_what_a_person_kept_as_it_was_recorded() -> None:
    first, made, one, kept = taught_and_kept()
    book = Recomputation(first, kept)
    book.follow(one, made)
    book.follow(kept, None)
    assert tuple(book.entries.values()) == kept.entries


# ---- words that mean the same


SHORTENED = "do not refund opened parcels twice"
IN_FULL = "Do not refund opened parcels twice."


def test_a_merge_that_says_what_a_person_said_leaves_the_persons_words() -> None:
    known = imported(OTHER, IN_FULL)
    first, ours = (each.id for each in known.entries)
    evidence = tuple(f"r-{n}" for n in range(91, 94))
    against = (first, "harmful")
    reflections = [
        seen(n, source, against) for n, source in zip(range(91, 94), ("shop", "desk", "lab"), strict=True)
    ]
    merged = learned(known, [op(MERGE, SHORTENED, first, ours, evidence=evidence)], reflections)
    assert [(each.id, each.content, each.by_hand) for each in merged.entries] == [(ours, IN_FULL, True)]


def test_a_persons_words_take_the_place_of_those_that_a_source_found_for_them() -> None:
    known = learned(
        empty("p"),
        [op(ADD, SHORTENED, evidence=("r-1",)), op(ADD, OTHER, evidence=("r-2",))],
        [seen(1), seen(2)],
    )
    theirs, other = (each.id for each in known.entries)
    added = after_command(command("edit", operations=(op(ADD, IN_FULL),)), known)
    first = added.entries[0]
    assert (first.id, first.content, first.by_hand) == (theirs, IN_FULL, True)
    edited = after_command(command("edit", operations=(op(UPDATE, IN_FULL, other),)), known)
    assert [(each.content, each.by_hand) for each in edited.entries] == [(IN_FULL, True)]


@each_row("kind", [UPDATE, REMOVE])
def test_who_fills_the_first_batch_after_an_import_is_not_its_only_source(kind: Any) -> None:
    book = imported(RULE, sources=[])
    operation, reflections = said(kind, "mallory", "mallory", "mallory")
    assert only(learned(book, [operation], reflections)).content == RULE


def test_a_person_who_moves_a_text_to_another_entry_loses_neither_text() -> None:
    """The entry became one with that whose words it got, and went with these words."""
    first, second = BASE.entries[0].id, BASE.entries[1].id
    moves = (op(UPDATE, "two", first), op(UPDATE, "three", second))
    after = after_command(command("edit", operations=moves))
    assert [entry.content for entry in after.entries] == ["two", "three", "seven"]
