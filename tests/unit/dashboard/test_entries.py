"""Lists of entries, what a search finds, the newest lessons and the table of playbooks."""

from combee.core.log.live.picture import Picture
from combee.core.log.live.values import LivePlaybook, LiveVersion, Snapshot
from combee.core.playbook.budget import shown_tokens
from combee.core.playbook.comparison import compare
from combee.core.playbook.versions import empty
from combee.dashboard.views.entries import entry_list, search
from combee.dashboard.views.rows import figures, playbook_rows
from combee.log.reports.lessons import LESSONS, newest_lessons
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Change, Entry, Playbook, Spend

STRATEGIES, MISTAKES = "STRATEGIES & INSIGHTS", "COMMON MISTAKES TO AVOID"


def entry(number: int, content: str, section: str = STRATEGIES, **fields: int) -> Entry:
    return Entry(id=f"e-{number}", section=section, content=content, **fields)


def playbook(name: str, version: int, *entries: Entry) -> Playbook:
    return empty(name).model_copy(update={"version": version, "entries": entries, "created_at_ms": version})


BEFORE = playbook("a", 1, entry(1, "ask first"), entry(2, "old words"), entry(3, "gone", MISTAKES))
AFTER = playbook("a", 2, entry(4, "Brand new", MISTAKES), entry(1, "ask first"), entry(2, "new words"))
CHANGES = compare(BEFORE, AFTER)


def test_entries_are_listed_by_section_with_what_changed_and_what_left() -> None:
    listed = entry_list(AFTER, CHANGES, only_changed=False)
    assert [(row["id"], row["kind"]) for row in listed.rows] == [
        (f"section {STRATEGIES}", "section"),
        ("e-1", ""),
        ("e-2", "changed"),
        (f"section {MISTAKES}", "section"),
        ("e-4", "added"),
        ("e-3", "removed"),
    ]
    assert listed.sections == {STRATEGIES: 0, MISTAKES: 3}
    assert listed.at("e-4") == 4
    assert [(row["before"], row["sign"], row["words"]) for row in listed.rows[1:3]] == [
        ("", "", "ask first"),
        ("old words", "+ ", "new words"),
    ]
    assert listed.rows[0]["words"] == "Strategies & insights"


def test_only_what_changed_or_only_what_has_the_words_is_listed() -> None:
    changed = entry_list(AFTER, CHANGES, only_changed=True)
    assert [row["id"] for row in changed.rows if row["kind"] != "section"] == ["e-2", "e-4", "e-3"]
    found = entry_list(AFTER, CHANGES, "NEW brand", only_changed=False)
    assert [row["id"] for row in found.rows] == [f"section {MISTAKES}", "e-4"]
    assert (found.shown, found.at("e-1")) == (1, None)


def test_an_entry_in_conflict_is_listed_with_who_says_what_even_where_only_changes_are() -> None:
    why = "UPDATE would lose 14 days (said by desk); (said by reflection r-1): Refund soon"
    after = AFTER.model_copy(update={"changes": (Change(kind="conflict", entry_id="e-1", detail=why),)})
    listed = entry_list(after, compare(BEFORE, after), only_changed=True)
    row = next(row for row in listed.rows if row["id"] == "e-1")
    assert str(row["about"]).endswith(f", in conflict: {why}")


def test_an_entry_that_agents_are_not_shown_says_so() -> None:
    perhaps = entry(5, "perhaps").model_copy(update={"state": "proposed"})
    after = AFTER.model_copy(update={"entries": (*AFTER.entries, perhaps)})
    listed = entry_list(after, compare(BEFORE, after), only_changed=False)
    assert {row["id"]: row["state"] for row in listed.rows if row["kind"] != "section"} == {
        **dict.fromkeys(("e-1", "e-2", "e-3", "e-4"), ""),
        "e-5": "proposed",
    }
    assert shown_tokens(after) == shown_tokens(AFTER)


def test_a_search_finds_names_and_entries_with_all_words_and_says_how_many_more() -> None:
    books = [AFTER, playbook("support/new", 1, entry(1, "something new"), entry(2, "else"))]
    found = search(books, "new", most=2)
    assert found.playbooks == ("support/new",)
    # The name of a playbook counts for its entries: "support" narrows a search to one.
    assert (found.total, [row["id"] for row in found.rows]) == (4, ["playbook a", "e-4", "e-2"])
    assert search(books, "something support", most=9).total == 1
    assert search(books, "  ", most=9).total == 0


def test_the_newest_lessons_stand_below_the_version_that_brought_them_new_ones_first() -> None:
    many = [entry(n, f"lesson {n}", created_version=2, updated_version=2, evidence_count=n) for n in range(9)]
    confirmed = entry(10, "known", created_version=1, updated_version=2, evidence_count=99)
    books = {
        "a": playbook("a", 2, confirmed, *many),
        "b": playbook("b", 1, entry(1, "b's", updated_version=1)),
    }
    live = [
        LivePlaybook(name="a", versions=(LiveVersion(version=1, at_ms=1), LiveVersion(version=2, at_ms=5))),
        LivePlaybook(name="b", versions=(LiveVersion(version=1, at_ms=9),)),
    ]
    newest, second = newest_lessons(live, lambda name: books[name])
    assert (newest.playbook, second.playbook, second.version.version) == ("b", "a", 2)
    assert [one.id for one in second.lessons] == ["e-8", "e-7", "e-6"]
    assert (second.total, len(second.lessons)) == (10, LESSONS)
    assert (second.is_new(many[0]), second.is_new(confirmed)) == (True, False)
    assert newest_lessons(live, lambda name: books[name], most=1) == (newest,)


def test_playbooks_are_found_by_name_those_that_changed_last_first_and_their_prompts_are_measured() -> None:
    waiting = LivePlaybook(name="b/waits", waiting=3, batch_size=40, changed_at_ms=9)
    live = Snapshot(revision=0, at_ms=DAY_MS, playbooks=(waiting,))
    yesterday = Spend(day=0, tokens=7_000, cost=1.0)
    stored = {
        name: made.model_copy(update={"name": name}) for name, made in (("a/x", AFTER), ("b/y", BEFORE))
    }
    stored["b/y"] = stored["b/y"].model_copy(update={"spend": yesterday})
    rows, total = playbook_rows(live, stored, {"a/x": "production → 1"})
    assert (rows[2]["tokens"], rows[2]["cost"]) == ("0", "0.00"), "what was spent yesterday is not today's"
    assert ([row["name"] for row in rows], total) == (["b/waits", "a/x", "b/y"], 3)
    assert (rows[0]["version"], rows[0]["window"], rows[1]["labels"]) == (0, "3 of 40", "production → 1")
    assert rows[1]["prompt"] == sum(shown_tokens(AFTER).values()) > 0
    rows, total = playbook_rows(live, stored, {}, "B", most=1)
    assert ([row["name"] for row in rows], total) == (["b/waits"], 2)


def test_figures_say_at_a_glance_what_there_is_and_what_somebody_should_look_at() -> None:
    pending = AFTER.entries[0].model_copy(update={"state": "proposed"})
    perhaps = AFTER.model_copy(update={"entries": (pending, *AFTER.entries[1:])})
    (row,), _ = playbook_rows(Snapshot(revision=0, at_ms=0), {"a/x": perhaps}, {})
    assert row["entries"] == f"{len(AFTER.entries) - 1} (+1 proposed)"
    assert figures(Snapshot(revision=0, at_ms=0), [perhaps])[1].number == str(len(AFTER.entries) - 1)
    calm = {one.what: (one.number, one.state) for one in figures(Picture(batch_size=4).snapshot(0), [AFTER])}
    assert (calm["playbooks"], calm["lessons"]) == (("1", ""), ("3", ""))
    waiting = tuple(LivePlaybook(name=line, waiting=3) for line in ("a", "a@x"))
    lines = [AFTER, AFTER.model_copy(update={"name": f"{AFTER.name}@x"})]
    both = {one.what: one.number for one in figures(Snapshot(revision=0, at_ms=0, playbooks=waiting), lines)}
    assert both == {**both, "playbooks": "1", "lessons": "3", "reflections waiting": "3"}, (
        "branches count not again"
    )
    bad = figures(Snapshot(revision=0, at_ms=0, dead_letters=2), [])
    assert [(one.number, one.state) for one in bad if one.what == "dead letters"] == [("2", "bad")]
