"""The retention audit: what of a batch survives each level, and when that is a warning."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from combee.adapters.clock import SystemClock
from combee.cli.learn.learning import Learning
from combee.cli.playbook.diff import lines
from combee.cli.playbook.view import full_view
from combee.core.log.diagnosis.flow import judge_retention
from combee.core.playbook import evidence
from combee.core.playbook.comparison import compare
from combee.core.playbook.effects import reflection_effects
from combee.core.playbook.entries import apply_operations, finish
from combee.core.playbook.operations import merge_seen
from combee.core.playbook.retention import (
    MAX_LOST,
    MIN_LOST,
    RECENT_KEPT,
    RISEN_BY,
    Landed,
    audit,
    is_losing,
    losing,
    lost_share,
    recent,
    shares,
    surviving,
    warning,
)
from combee.core.playbook.versions import after_update, empty
from combee.log.reports.audit import changes_text
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan
from combee_schemas.playbook import Change, LevelAudit, Playbook
from combee_schemas.scan import Echo, Known, NodeResult, Operation, OperationKind, Seen, Update
from support import ledger
from support.deployment import Deployment, one_batch
from support.flat import flat
from support.ledger import batch_of, outgoing, reflection
from support.models import Answer, ScriptedModel, echo, is_combine, items
from support.rows import each_row

ROOM = 10**6
IDS = st.frozensets(st.sampled_from("abcdefgh"))


def seen(**survived: int) -> tuple[Seen, ...]:
    """Return one reflection for each name."""
    return tuple(Seen(reflection_id=name, offset=0, survived=n) for name, n in survived.items())


def op(content: str, *evidence: str, kind: str = "ADD", ids: tuple[str, ...] = ()) -> Operation:
    return Operation(kind=OperationKind(kind), content=content, entry_ids=ids, evidence=evidence)


# ---- levels


def test_only_what_got_through_all_levels_below_gets_through_the_next() -> None:
    assert surviving(seen(a=1, b=1, c=0), 1, {"a", "c"}) == seen(a=2, b=1, c=0)


def test_what_is_dropped_at_a_level_got_through_all_levels_below() -> None:
    after = surviving(seen(a=1, b=1, c=0), 1, {"a"}, {"a", "b", "c"})
    assert [(one.survived, one.dropped) for one in after] == [(2, False), (1, True), (0, False)]


def test_of_copies_the_one_that_got_furthest_says_whether_it_was_dropped() -> None:
    lost, dropped = Seen(reflection_id="a", offset=0), Seen(reflection_id="a", offset=0, dropped=True)
    through = Seen(reflection_id="a", offset=0, survived=1)
    assert merge_seen([[lost], [dropped]])[0].dropped
    assert merge_seen([[dropped], [lost]])[0].dropped
    assert merge_seen([[dropped], [through]]) == (through,)


def levels_of(
    *seen: Seen, levels: int = 2, known: str = "", echoed: str = "", changed: str = "", repeated: str = ""
) -> tuple[LevelAudit, ...]:
    """Return the audit of a result; of the known, all claims have landed."""
    result = NodeResult(
        status="ok",
        seen=seen,
        known=(Known(entry_id="x", evidence=tuple(known)),),
        echoes=(Echo(entry_id="x", evidence=tuple(echoed)),),
    )
    claimed = frozenset(known + echoed)
    return audit(
        result, levels, Landed(changed=frozenset(changed), repeated=frozenset(repeated), claimed=claimed)
    )


def test_each_reflection_is_new_known_dropped_or_lost_at_each_level() -> None:
    found = levels_of(
        *seen(n=2, r=2, k=1, e=0, l=0, s=2),
        Seen(reflection_id="d", offset=0, survived=1, dropped=True),
        Seen(reflection_id="x", offset=0, ok=False),
        known="k",
        echoed="e",
        changed="nd",
        repeated="rl",
    )
    assert found == (
        LevelAudit(new=5, known=1, lost=1),  # n r k s d; e; l
        LevelAudit(new=3, known=2, dropped=1, lost=1),
        LevelAudit(new=1, known=3, dropped=1, lost=2),  # s got through, and nothing came of it
    )
    assert shares(found, 8) == (0.75, 0.625, 0.5)
    assert lost_share(found) == round(2 / 7, 4)


def test_a_batch_of_dead_letters_lost_nothing_and_older_versions_do_not_say() -> None:
    assert lost_share(levels_of(Seen(reflection_id="x", offset=0, ok=False))) is None
    assert lost_share(()) is None
    assert levels_of() == ()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 4),
    IDS,
    IDS,
    IDS,
)
def test_every_reflection_has_one_fate_and_shares_never_rise_from_level_to_level(
    survived: list[tuple[int, bool]],
    levels: int,
    changed: frozenset[str],
    repeated: frozenset[str],
    known: frozenset[str],
) -> None:
    names = "abcdefghijklmnopqrst"
    given = [
        Seen(reflection_id=name, offset=0, survived=count, dropped=dropped)
        for name, (count, dropped) in zip(names, survived, strict=False)
    ]
    found = levels_of(
        *given, levels=levels, changed="".join(changed), repeated="".join(repeated), known="".join(known)
    )
    assert [sum(level.model_dump().values()) for level in found] == [len(given)] * (levels + 1)
    kept = shares(found, len(given))
    assert list(kept) == sorted(kept, reverse=True)


# ---- what lands in the playbook


def landed(*operations: Operation, base: Playbook | None = None, budget: int = ROOM) -> frozenset[str]:
    playbook = base or empty("p")
    draft = apply_operations(playbook, operations, ())
    finish(playbook, draft, budget)
    found = draft.landed()
    return found.changed | found.repeated


def with_entries(*contents: str) -> Playbook:
    draft = apply_operations(empty("p"), [op(one, "old") for one in contents], ())
    return empty("p").model_copy(update={"entries": tuple(draft.entries.values()), "next_id": draft.next_id})


def test_more_evidence_than_an_entry_keeps_has_landed_all_the_same() -> None:
    many = [f"r{n}" for n in range(100)]
    assert landed(op("new", *many)) == frozenset(many)


def test_what_was_evicted_at_once_has_not_landed() -> None:
    assert landed(op("x" * 400, "a"), op("short", "b", "c"), budget=20) == {"b", "c"}


def test_what_names_a_vanished_entry_has_not_landed() -> None:
    assert landed(op("new", "a", kind="UPDATE", ids=("gone",)), op("other", "b")) == {"b"}


def test_a_repeat_has_landed_where_it_was_known() -> None:
    assert landed(op("known", "a"), base=with_entries("known")) == {"a"}


def test_what_landed_on_an_entry_moves_with_it_when_it_is_merged_and_goes_when_it_is_removed() -> None:
    base = with_entries("one", "two")
    first, second = (entry.id for entry in base.entries)
    again, merge = op("two", "a"), op("both", "b", kind="MERGE", ids=(first, second))
    assert landed(again, merge, base=base) == {"a", "b"}
    remove = op("", "b", kind="REMOVE", ids=(second,))
    assert landed(again, remove, base=base) == {"b"}


def test_what_repeats_an_entry_that_stood_there_is_known_and_what_repeats_a_new_one_is_new() -> None:
    base = with_entries("known")
    again = [op("known", "a"), op("new", "b"), op("New.", "c")]
    found = apply_operations(base, again, ()).landed()
    assert found == Landed(changed=frozenset("bc"), repeated=frozenset("a"), claimed=frozenset())


def update(
    *operations: Operation,
    seen: tuple[Seen, ...],
    echoes: tuple[Echo, ...] = (),
    known: tuple[Known, ...] = (),
) -> Update:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(2, 1), base_version=0, reflections=len(seen))
    result = NodeResult(status="ok", operations=operations, seen=seen, echoes=echoes, known=known)
    return Update(plan=plan, node_id="n", result=result)


def test_a_version_says_what_survived_and_remembers_the_last_shares() -> None:
    known = empty("p").model_copy(update={"retention_recent": (0.9,) * RECENT_KEPT})
    version = after_update(known, update(op("new", "a"), seen=seen(a=2, b=1)), budget_tokens=ROOM, now_ms=0)
    assert batch_of(version).retention == (1.0, 0.5, 0.5)
    assert batch_of(version).audit == (
        LevelAudit(new=2),
        LevelAudit(new=1, lost=1),
        LevelAudit(new=1, lost=1),
    )
    assert version.retention_recent == (*(0.9,) * (RECENT_KEPT - 1), 0.5)
    assert (version.lost_recent, version.lost_count) == ((0.5,), 1)


def test_an_echo_counts_while_its_entry_is_there() -> None:
    known = with_entries("known")
    echoes = (
        Echo(entry_id=known.entries[0].id, evidence=("a",)),
        Echo(entry_id="left long ago", evidence=("b",)),
    )
    version = after_update(known, update(seen=seen(a=0, b=0), echoes=echoes), budget_tokens=ROOM, now_ms=0)
    assert batch_of(version).retention == (1.0, 1.0, 0.5)
    assert batch_of(version).audit == (LevelAudit(known=2), LevelAudit(known=2), LevelAudit(known=1, lost=1))
    assert version.entries[0].evidence_count == known.entries[0].evidence_count


def test_what_is_known_is_evidence_for_its_entry_whose_text_stays() -> None:
    known = with_entries("known").model_copy(update={"version": 1})
    entry = known.entries[0]
    claims = (Known(entry_id=entry.id, evidence=("a", "b")), Known(entry_id="gone-00009", evidence=("c",)))
    told = update(seen=seen(a=0, b=1, c=0), known=claims)
    version = after_update(known, told, budget_tokens=ROOM, now_ms=0)
    assert version.entries[0].evidence == (*entry.evidence, "a", "b")
    assert (version.entries[0].content, version.entries[0].evidence_count) == (entry.content, 3)
    assert [change.kind for change in version.changes] == ["duplicate", "dropped"]
    assert batch_of(version).audit[-1] == LevelAudit(known=2, lost=1)
    assert reflection_effects(known, told, version)["c"].why == "the model proposed nothing for it"
    complete = evidence.followed(known, version, told)
    assert complete.entries[0].evidence_count == 3


def test_what_is_known_in_an_entry_moves_with_it_and_is_lost_with_it() -> None:
    base = with_entries("one", "two")
    first, second = (entry.id for entry in base.entries)
    claims = (Known(entry_id=second, evidence=("a",)),)
    merge = op("both", "b", kind="MERGE", ids=(first, second))
    version = after_update(
        base, update(merge, seen=seen(a=0, b=2), known=claims), budget_tokens=ROOM, now_ms=0
    )
    assert set(version.entries[0].evidence) == {"old", "a", "b"}
    assert batch_of(version).audit[-1] == LevelAudit(new=1, known=1)
    remove = op("", "b", kind="REMOVE", ids=(second,))
    version = after_update(
        base, update(remove, seen=seen(a=0, b=2), known=claims), budget_tokens=ROOM, now_ms=0
    )
    assert batch_of(version).audit[-1] == LevelAudit(new=1, lost=1)


def test_revoked_reflections_are_no_evidence_for_what_is_known() -> None:
    base = with_entries("known").model_copy(update={"revoked": ("a",)})
    claims = (Known(entry_id=base.entries[0].id, evidence=("a",)),)
    version = after_update(base, update(seen=seen(a=0), known=claims), budget_tokens=ROOM, now_ms=0)
    assert version.entries == base.entries


# ---- when it is a warning


def losses(*shares_lost: float, count: int = 100, name: str = "p") -> Playbook:
    """Return a playbook whose last batches lost such shares, the newest of them so many reflections."""
    return empty(name).model_copy(update={"lost_recent": shares_lost, "lost_count": count})


@pytest.mark.parametrize(
    "found", [(0.51,), (0.0, 0.0, 0.0, 0.21), (0.3, 0.3, 0.3, 0.51), (0.1, 0.9, 0.1, 0.1, 0.4)], ids=str
)
def test_losing_most_or_much_more_than_before_is_a_warning(found: tuple[float, ...]) -> None:
    assert is_losing(losses(*found))


@each_row(
    "found",
    [(), (0.5,), (0.0, 0.0, 0.4), (0.0, 0.0, 0.0, 0.2), (0.5, 0.5, 0.5, 0.5), (0.9, 0.9, 0.9, 0.1)],
    ids=str,
)
def test_losing_little_or_little_more_than_before_is_no_warning(found: tuple[float, ...]) -> None:
    assert not is_losing(losses(*found))


@each_row(
    ("shares_lost", "count", "is_warning"),
    [
        ((1.0,), 1, False),
        ((1.0,), MIN_LOST - 1, False),
        ((1.0,), MIN_LOST, True),
        ((0.1, 0.1, 0.1, 1.0), 1, False),
        ((0.1, 1.0, 1.0, 1.0, 1.0, 1.0), 1, True),
        ((1.0, 0.5, 1.0, 1.0, 1.0, 1.0), 1, False),
        ((0.0, 0.0, 0.0, 0.4), MIN_LOST - 1, False),
        ((0.0, 0.0, 0.0, 0.4), MIN_LOST, True),
    ],
)
def test_a_few_lost_reflections_are_no_warning_before_more_batches_lose_theirs(
    shares_lost: tuple[float, ...], count: int, *, is_warning: bool
) -> None:
    assert is_losing(losses(*shares_lost, count=count)) is is_warning


@given(st.floats(0, MAX_LOST), st.integers(0, 30))
def test_what_stays_as_it_was_is_never_a_warning(share: float, count: int) -> None:
    assert not is_losing(losses(*[share] * count))
    assert RISEN_BY > 0


@given(st.lists(st.floats(0, 1), max_size=40), st.none() | st.floats(0, 1))
def test_only_the_last_share_of_each_of_the_last_batches_is_remembered(
    before: list[float], newest: float | None
) -> None:
    shares = before if newest is None else [*before, newest]
    assert recent(before, newest) == tuple(shares[-RECENT_KEPT:])


# ---- through the services


@pytest.mark.usefixtures("quick_polls")
async def test_what_agents_were_shown_and_say_back_counts_as_survived_and_is_no_news() -> None:
    deployment = Deployment(batch_size=9)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(9)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        entries = {entry.content: entry.id for entry in ledger.latest(deployment.log).entries}
        for n in range(9):
            shown = {"version": 1, "entry_ids": (entries[f"lesson {n}"],)}
            again = reflection(100 + n, key_insight=f"lesson {n}", shown=shown)
            await deployment.log.produce(outgoing(again))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    version = ledger.latest(deployment.log)
    assert batch_of(version).retention == (1.0, 1.0, 1.0)
    assert {change.kind for change in version.changes} <= {"echo"}
    assert {entry.evidence_count for entry in version.entries} == {1}


async def learned(answer: Answer, count: int = 9, **settings: Any) -> Playbook:
    return ledger.latest((await one_batch(answer, count, **settings)).log)


@pytest.mark.usefixtures("quick_polls")
class TestServices:
    async def test_a_model_that_keeps_everything_retains_everything(self) -> None:
        assert (batch_of(await learned(echo))).retention == (1.0, 1.0, 1.0)

    async def test_each_level_of_a_deeper_tree_has_its_share(self) -> None:
        assert (batch_of(await learned(echo, 25, fan_in=2))).retention == (1.0,) * 5

    async def test_one_group_has_one_level(self) -> None:
        assert (batch_of(await learned(echo, 3))).retention == (1.0, 1.0)

    async def test_a_lesson_that_no_group_keeps_ends_at_the_first_level(self) -> None:
        def forgetful(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            kept = [one for one in reply["operations"] if one["content"] not in {"lesson 1", "lesson 2"}]
            return {"operations": kept}

        assert (batch_of(await learned(forgetful))).retention == (0.7778, 0.7778, 0.7778)

    async def test_a_lesson_that_the_combine_drops_by_name_ends_there(self) -> None:
        def strict(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            if not is_combine(prompt):
                return reply
            dropped = [item["n"] for item in items(prompt) if item["content"] == "lesson 1"]
            kept = [one for one in reply["operations"] if one["sources"][0] not in dropped]
            return {"operations": kept, "dropped": dropped}

        version = await learned(strict)
        assert batch_of(version).retention == (1.0, 0.8889, 0.8889)
        assert batch_of(version).audit[1:] == (LevelAudit(new=8, dropped=1),) * 2
        assert batch_of(version).carried == 0

    async def test_without_carry_what_a_combine_forgets_ends_there(self) -> None:
        def forgetful(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            return {"operations": reply["operations"][:1]} if is_combine(prompt) else reply

        assert (batch_of(await learned(forgetful, carry=False))).retention == (1.0, 0.1111, 0.1111)
        kept = await learned(forgetful)
        assert batch_of(kept).retention == (1.0, 1.0, 1.0)
        assert batch_of(kept).carried == 17  # of 18 proposals one was used

    async def test_operations_that_name_no_source_prove_nothing(self) -> None:
        def vague(prompt: Prompt) -> Mapping[str, Any]:
            return {"operations": [{**one, "sources": []} for one in echo(prompt)["operations"]]}

        version = await learned(vague)
        assert batch_of(version).retention == (0.0, 0.0, 0.0)
        assert {entry.evidence_count for entry in version.entries} == {
            9
        }  # as lineage they rest on everything

    async def test_a_level_that_names_no_source_ends_what_was_proven_below(self) -> None:
        def vague(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            return (
                {"operations": [{**reply["operations"][0], "sources": []}]} if is_combine(prompt) else reply
            )

        assert (batch_of(await learned(vague))).retention == (1.0, 0.0, 0.0)

    async def test_what_the_budget_evicts_at_once_is_not_in_the_playbook(self) -> None:
        version = await learned(echo, budget_tokens=30)
        assert batch_of(version).retention == (1.0, 1.0, round(len(version.entries) / 9, 4))
        assert len(version.entries) < 9


# ---- one judgement, one wording


def test_retention_is_judged_once_and_told_in_the_same_words_everywhere() -> None:
    good, bad = losses(0.1, 0.1, 0.1, 0.1, name="good"), losses(0.1, 0.1, 0.1, 0.64, name="bad")
    assert warning(good) is None
    assert warning(bad) == losing(0.64)
    check = judge_retention([good, bad])
    assert (check.verdict, check.says) == ("warn", f"bad: {losing(0.64)}")
    assert "64 % of the last batch's reflections were lost" in check.says
    assert judge_retention([good]).verdict == "ok"
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(full_view(bad))
    assert losing(0.64) in shown.export_text()


# ---- who left nothing, and why


def test_each_reflection_that_left_nothing_is_told_with_the_reason() -> None:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(2, 1), base_version=0, reflections=7)
    update = flat(
        Update,
        plan=plan,
        node_id="root",
        status="ok",
        operations=(
            op("x" * 400, "evicted"),
            op("new", "kept"),
            op("gone", "late", kind="UPDATE", ids=("none-00001",)),
        ),
        seen=(
            *seen(kept=2, evicted=2, late=2, silent=0, combined=1),
            Seen(reflection_id="dead", offset=0, ok=False),
            Seen(reflection_id="named", offset=0, survived=1, dropped=True),
        ),
    )
    after = after_update(empty("p"), update, budget_tokens=60, now_ms=0)
    found = reflection_effects(empty("p"), update, after)
    assert {name: one.effect for name, one in found.items()} == {
        "kept": "new", "evicted": "lost", "late": "lost", "silent": "lost", "combined": "lost", "named": "dropped",
    }  # fmt: skip
    why = {name: fate.why for name, fate in found.items() if fate.why}
    assert why.keys() == found.keys() - {"kept"}
    assert why["named"] == "the model dropped it by name (level 1)"
    assert "token budget" in why["evicted"]
    assert "no longer applied" in why["late"]
    assert "the model proposed nothing" in why["silent"]
    assert "combined (level 1)" in why["combined"]


async def test_learn_says_which_reflections_left_nothing_and_why(quick_polls: None) -> None:  # noqa: ARG001
    given = [reflection(n) for n in range(4)]

    def forgets_one(prompt: Prompt) -> Mapping[str, Any]:
        said = dict(echo(prompt))
        said["operations"] = [one for one in said["operations"] if one["content"] != given[0].key_insight]
        return said

    deployment = Deployment(batch_size=4, model=ScriptedModel(forgets_one))
    async with deployment.running():
        learning = Learning(deployment.log, None, SystemClock(), concurrency=1)
        report = await learning.run(given, given[0].playbook, stall_s=20)
    assert report.as_json()["left_nothing"] == {"the model proposed nothing for it": [given[0].reflection_id]}


# ---- how an entry left


def test_a_diff_says_evicted_where_the_history_does() -> None:
    before = with_entries("one thing", "two things", "x" * 400)
    gone, kept, large = before.entries
    after = before.model_copy(
        update={
            "version": before.version + 1,
            "entries": (kept,),
            "changes": (Change(kind="evict", entry_id=large.id), Change(kind="remove", entry_id=gone.id)),
        }
    )
    found = compare(before, after)
    assert found.counts() == {"removed": 1, "evicted": 1}
    text = "\n".join(map(str, lines(found)))
    assert f"[{large.id}] (evicted)" in text
    assert "1 removed, 1 evicted" in text
    assert changes_text({"evict": 1, "remove": 1}) == "1 evicted, 1 removed"
    later = after.model_copy(update={"version": after.version + 1, "changes": ()})
    assert compare(before, later, [after]).counts() == found.counts()
