"""A playbook and its branches side by side: their order, what differs, and the one cap."""

from collections.abc import Mapping

import pytest

from combee.core.names.tenants import Tenants
from combee.core.playbook.comparison import compare
from combee.core.playbook.side_by_side import (
    batch_size_of,
    in_order,
    learned,
    today_of,
)
from combee.core.playbook.spend import UNCAPPED, LineSpend, Pause, SpendPolicy
from combee.core.playbook.versions import empty
from combee.log.reports.branch import branch_report, branch_text
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.plan import Branch, BranchSettings, Plan, PlanSettings
from combee_schemas.playbook import AppliedBatch, Audit, Change, Entry, Playbook, Spend

NAME, LINE = "a/b", "a/b@x"
OWN = BranchSettings(batch_size=5, carry=False, prompts="small")


def plan(name: str, reflections: int) -> Plan:
    return Plan(
        batch_id=f"{name}-{reflections}",
        playbook=name,
        sequence=1,
        settings=PlanSettings(carry=True, prompts="full"),
        widths=(1,),
        base_version=0,
        reflections=reflections,
        batch_size=40,
    )


def made(name: str, reflections: int = 4, audit: Audit | None = None) -> Playbook:
    batch = AppliedBatch(plan=plan(name, reflections), audit=audit, usage=Usage(calls=2, tokens_in=10))
    return empty(name).model_copy(update={"version": 1, "batch": batch, "origin": "batch"})


def saying(name: str, version: int, **contents: str) -> Playbook:
    entries = tuple(
        Entry(id=entry_id, section="S", content=content) for entry_id, content in contents.items()
    )
    return empty(name).model_copy(update={"version": version, "entries": entries})


def test_branches_stand_behind_their_playbook_whatever_else_begins_so() -> None:
    assert in_order(["a/b@x", "a/b-c", "a/b", "a/b/d", "a", "a@z"]) == [
        "a",
        "a@z",
        "a/b",
        "a/b@x",
        "a/b-c",
        "a/b/d",
    ]


def test_what_a_branch_does_otherwise_is_told_beside_what_its_playbook_did_last() -> None:
    report = branch_report(Branch(of=NAME, version=3, sequence=2, settings=OWN), made(NAME))
    assert report is not None
    assert report.instead_of == {"batch_size": 40, "carry": True, "prompts": "full"}
    assert branch_text(report) == "version 3: batch_size 5 (40), carry off (on), prompts small (full)"


def test_where_no_batch_says_how_the_playbook_does_it_the_branch_alone_is_told() -> None:
    report = branch_report(Branch(of=NAME, version=3, sequence=2, settings=OWN), saying(NAME, 3))
    assert branch_text(report) == "version 3: batch_size 5, carry off, prompts small"
    assert (
        branch_text(branch_report(Branch(of=NAME, version=3, sequence=2))) == "version 3: the same settings"
    )
    assert (branch_report(None), branch_text(None)) == (None, "")


def test_a_branchs_own_batch_size_goes_before_the_controllers() -> None:
    forked = empty(LINE).model_copy(
        update={"branch": Branch(of=NAME, version=1, sequence=1, settings=BranchSettings(batch_size=5))}
    )
    assert [batch_size_of(forked, 26, 40), batch_size_of(empty(NAME), 26, 40)] == [5, 26]
    assert batch_size_of(empty(NAME), None, 40) == 40


def line(tokens: int, in_flight: int = 0, **spend: int) -> LineSpend:
    return LineSpend(
        spend=Spend(day=3, tokens=tokens, tokens_each=1.0, **spend), in_flight=in_flight, batch_size=5
    )


def pause_of(lines: Mapping[str, LineSpend], policy: SpendPolicy) -> Pause | None:
    return today_of(LINE, lines, policy, Tenants({}), 3 * DAY_MS).paused


@pytest.mark.parametrize("other", ["a/b", "a/b@ended"])
def test_a_line_is_paused_by_what_all_lines_of_its_playbook_spent(other: str) -> None:
    lines = {LINE: line(10), other: line(990)}
    capped = SpendPolicy(daily_tokens=1000)
    paused = pause_of(lines, capped)
    assert paused is not None
    assert "1,000 of 1,000 tokens spent today" in paused.reason
    assert pause_of({LINE: lines[LINE]}, capped) is None
    assert pause_of(lines, UNCAPPED) is None


def test_the_cap_that_a_playbook_was_measured_against_holds_for_a_branch_that_has_none_yet() -> None:
    lines = {LINE: line(0), NAME: line(990, cap_tokens=990)}
    assert pause_of(lines, UNCAPPED) is not None


def test_what_versions_were_learned_from_is_summed_up() -> None:
    fates = Audit(new=2, known=1, omitted=1)
    sums = learned([made(LINE, 0), made(LINE, 4, fates), made(LINE, 4, Audit(new=4))])
    assert (sums.versions, sums.batches, sums.reflections, sums.usage.calls) == (3, 2, 8, 6)
    assert (sums.retention, sums.omitted) == (7 / 8, 1 / 8)
    assert learned([]).retention is None


def test_of_two_lines_an_id_given_since_the_fork_is_another_entry_on_each() -> None:
    before = saying(NAME, 5, old="stays", word="was so", n6="learned here", n7="learned on both")
    after = saying(LINE, 2, old="stays", word="is so", n6="learned there", n9="learned on both")
    found = compare(before, after, shared={"old", "word"})
    assert [(change.id, change.before, change.after) for change in found.changed] == [
        ("word", "was so", "is so")
    ]
    assert [entry.content for entry in found.added] == ["learned there"]
    assert [entry.content for entry in found.removed] == ["learned here"]
    assert (found.unchanged, found.name_before, found.name) == (2, NAME, LINE)
    by_id = compare(before, after.model_copy(update={"name": NAME}))
    assert [change.id for change in by_id.changed] == ["word", "n6"], "on one line an id means one entry"


def test_a_comparison_names_open_conflicts_of_all_versions_in_between() -> None:
    conflict, later = (
        Change(kind="conflict", entry_id="a", detail=detail) for detail in ("loses 14 days", "loses 5 %")
    )
    old = saying(NAME, 1, a="Refund within 14 days")
    middle, new = saying(NAME, 2, a="Refund within 14 days"), saying(NAME, 3, a="Refund within 14 days, 5 %")
    noting = middle.model_copy(update={"changes": (conflict, conflict.model_copy(update={"entry_id": "b"}))})
    assert [(c.id, c.why) for c in compare(old, new, [noting]).conflicts] == [("a", "loses 14 days")]
    settled = (Change(kind="update", entry_id="a"), later)
    newest = new.model_copy(update={"changes": settled})
    assert [(c.id, c.why) for c in compare(old, newest, [noting]).conflicts] == [("a", "loses 5 %")]
    assert compare(newest, old, [noting]).conflicts == ()
