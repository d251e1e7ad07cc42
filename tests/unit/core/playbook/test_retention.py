"""The retention audit: what a batch's reflections did, what the model claims of them, and when that is a warning."""

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
from combee.core.playbook.comparison import compare
from combee.core.playbook.draft import Landed, apply_operations, finish
from combee.core.playbook.lineage import evidence
from combee.core.playbook.retention import (
    MAX_OMITTED,
    MIN_WARNED,
    RECENT_KEPT,
    RISEN_BY,
    audit,
    recent_shares,
    reflection_effects,
    shares,
    total,
    warnings,
)
from combee.core.playbook.versions import after_update, drafted, empty
from combee.log.reports.audit import changes_text
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import AppliedBatch, Audit, Change, Playbook
from combee_schemas.scan import (
    Coverage,
    Echo,
    Known,
    NodeResult,
    Operation,
    OperationKind,
    Seen,
    Update,
)
from support import ledger
from support.deployment import Deployment, one_batch
from support.flat import flat
from support.ledger import outgoing, reflection
from support.models import Answer, ScriptedModel, echo, is_combine, items
from support.rows import each_row

ROOM = 10**6
IDS = st.frozensets(st.sampled_from("abcdefgh"))


def seen(**covered: Coverage) -> tuple[Seen, ...]:
    """Return one reflection for each name, claimed by the model if anything but code covers it."""
    return tuple(
        Seen(reflection_id=name, offset=0, said=how not in {"", "carried"}, covered=how)
        for name, how in covered.items()
    )


def op(content: str, *evidence: str, kind: str = "ADD", ids: tuple[str, ...] = ()) -> Operation:
    return Operation(kind=OperationKind(kind), content=content, entry_ids=ids, evidence=evidence)


# ---- counts


def audit_of(*seen: Seen, changed: str = "", known: str = "") -> Audit | None:
    landed = Landed(changed=frozenset(changed), known=frozenset(known))
    return audit(NodeResult(status="ok", seen=seen), landed)


def test_each_reflection_that_got_through_is_new_known_dropped_or_omitted() -> None:
    found = audit_of(
        *seen(n="words", k="check", o="", s="meaning"),
        Seen(reflection_id="d", offset=0, said=True, dropped=True),
        Seen(reflection_id="b", offset=0, said=True, dropped=True),
        Seen(reflection_id="x", offset=0, ok=False),
        changed="nd",
        known="k",
    )
    # s is said, and nothing came of it
    assert found == Audit(new=2, known=1, dropped=1, omitted=2, said=5, verified=3)
    assert found.reflections == 6
    assert shares(found) == {"retention": 0.5, "omitted": round(2 / 6, 4)}


@each_row(
    ("covered", "is_verified", "is_carried"),
    [
        ("words", True, False),
        ("meaning", True, False),
        ("check", True, False),
        ("carried", False, True),
        ("", False, False),
    ],
)
def test_what_is_witnessed_or_checked_is_verified_and_what_code_put_there_is_carried(
    covered: Coverage, *, is_verified: bool, is_carried: bool
) -> None:
    found = audit_of(Seen(reflection_id="a", offset=0, said=True, covered=covered), changed="a")
    assert found == Audit(new=1, said=1, verified=is_verified, carried=is_carried)


def test_a_batch_of_dead_letters_has_no_audit() -> None:
    assert audit_of(Seen(reflection_id="x", offset=0, ok=False)) is None
    assert audit_of() is None
    assert shares(None) == shares(Audit()) == {"retention": None, "omitted": None}


COVERAGES = st.sampled_from(["", "words", "meaning", "check", "carried", "proposal"])


@given(st.lists(st.tuples(COVERAGES, st.booleans(), st.booleans()), min_size=1, max_size=20), IDS, IDS)
def test_every_reflection_has_one_effect_and_the_effects_add_up(
    told: list[tuple[Coverage, bool, bool]], changed: frozenset[str], known: frozenset[str]
) -> None:
    given = [
        Seen(reflection_id=name, offset=0, said=said, covered=covered, dropped=dropped)
        for name, (covered, said, dropped) in zip("abcdefghijklmnopqrst", told, strict=False)
    ]
    found = audit_of(*given, changed="".join(changed), known="".join(known))
    assert found is not None
    assert found.reflections == len(given)
    assert found.said == sum(one.said for one in given)
    assert found.verified + found.carried == sum(one.covered != "" for one in given)


def test_audits_add_up() -> None:
    one, two = Audit(new=1, omitted=2, said=3), Audit(new=4, known=5, said=6, verified=7, carried=8)
    assert total([one, two]) == Audit(new=5, known=5, omitted=2, said=9, verified=7, carried=8)
    assert total([]) == Audit()


# ---- what lands in the playbook


def landed(*operations: Operation, base: Playbook | None = None, budget: int = ROOM) -> frozenset[str]:
    playbook = base or empty("p")
    draft = apply_operations(playbook, operations, ())
    finish(playbook, draft, budget)
    found = draft.landed()
    return found.changed | found.known


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
    assert found == Landed(changed=frozenset("bc"), known=frozenset("a"))


def update(
    *operations: Operation,
    seen: tuple[Seen, ...],
    echoes: tuple[Echo, ...] = (),
    known: tuple[Known, ...] = (),
) -> Update:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(2, 1), base_version=0, reflections=len(seen))
    result = NodeResult(status="ok", operations=operations, seen=seen, echoes=echoes, known=known)
    return Update(plan=plan, node_id="n", result=result)


def test_a_version_has_its_batchs_audit_and_remembers_the_last_shares() -> None:
    known = empty("p").model_copy(update={"retention_recent": (0.9,) * RECENT_KEPT})
    version = after_update(
        known, update(op("new", "a"), seen=seen(a="words", b="")), budget_tokens=ROOM, now_ms=0
    )
    assert version.audit == Audit(new=1, omitted=1, said=1, verified=1)
    assert version.retention_recent == (*(0.9,) * (RECENT_KEPT - 1), 0.5)
    assert (version.omitted_recent, version.omitted_count) == ((0.5,), 1)


def test_an_echo_counts_while_its_entry_is_there() -> None:
    known = with_entries("known")
    echoes = (
        Echo(entry_id=known.entries[0].id, evidence=("a",)),
        Echo(entry_id="left long ago", evidence=("b",)),
    )
    version = after_update(known, update(seen=seen(a="", b=""), echoes=echoes), budget_tokens=ROOM, now_ms=0)
    assert version.audit == Audit(known=1, omitted=1)
    assert version.entries[0].evidence_count == known.entries[0].evidence_count


def test_what_is_known_is_evidence_for_its_entry_whose_text_stays() -> None:
    known = with_entries("known").model_copy(update={"version": 1})
    entry = known.entries[0]
    claims = (Known(entry_id=entry.id, evidence=("a", "b")), Known(entry_id="gone-00009", evidence=("c",)))
    told = update(seen=seen(a="", b="", c=""), known=claims)
    version = after_update(known, told, budget_tokens=ROOM, now_ms=0)
    assert version.entries[0].evidence == (*entry.evidence, "a", "b")
    assert (version.entries[0].content, version.entries[0].evidence_count) == (entry.content, 3)
    assert [change.kind for change in version.changes] == ["duplicate", "dropped"]
    assert version.audit == Audit(known=2, omitted=1)
    assert (
        reflection_effects(drafted(known, told), told, version)["c"].why
        == "the model proposed nothing for it"
    )
    complete = evidence.followed(known, version, told)
    assert complete.entries[0].evidence_count == 3


def test_what_is_known_in_an_entry_moves_with_it_and_is_omitted_without_it() -> None:
    base = with_entries("one", "two")
    first, second = (entry.id for entry in base.entries)
    claims = (Known(entry_id=second, evidence=("a",)),)
    merge = op("both", "b", kind="MERGE", ids=(first, second))
    version = after_update(
        base, update(merge, seen=seen(a="", b="words"), known=claims), budget_tokens=ROOM, now_ms=0
    )
    assert set(version.entries[0].evidence) == {"old", "a", "b"}
    assert version.audit == Audit(new=1, known=1, said=1, verified=1)
    remove = op("", "b", kind="REMOVE", ids=(second,))
    version = after_update(
        base, update(remove, seen=seen(a="", b="words"), known=claims), budget_tokens=ROOM, now_ms=0
    )
    assert version.audit == Audit(new=1, omitted=1, said=1, verified=1)


def test_revoked_reflections_are_no_evidence_for_what_is_known() -> None:
    base = with_entries("known").model_copy(update={"revoked": ("a",)})
    claims = (Known(entry_id=base.entries[0].id, evidence=("a",)),)
    version = after_update(base, update(seen=seen(a=""), known=claims), budget_tokens=ROOM, now_ms=0)
    assert version.entries == base.entries


# ---- when it is a warning


def omitting(*shares_omitted: float, count: int = 100, name: str = "p") -> Playbook:
    """Return a playbook whose last batches omitted such shares, the newest of them so many reflections."""
    return empty(name).model_copy(update={"omitted_recent": shares_omitted, "omitted_count": count})


@pytest.mark.parametrize(
    "found", [(0.51,), (0.0, 0.0, 0.0, 0.21), (0.3, 0.3, 0.3, 0.51), (0.1, 0.9, 0.1, 0.1, 0.4)], ids=str
)
def test_omitting_most_or_much_more_than_before_is_a_warning(found: tuple[float, ...]) -> None:
    assert warnings(omitting(*found)).keys() == {"omitted"}


@each_row(
    "found",
    [(), (0.5,), (0.0, 0.0, 0.4), (0.0, 0.0, 0.0, 0.2), (0.5, 0.5, 0.5, 0.5), (0.9, 0.9, 0.9, 0.1)],
    ids=str,
)
def test_omitting_little_or_little_more_than_before_is_no_warning(found: tuple[float, ...]) -> None:
    assert not warnings(omitting(*found))


@each_row(
    ("shares_omitted", "count", "is_warning"),
    [
        ((1.0,), 1, False),
        ((1.0,), MIN_WARNED - 1, False),
        ((1.0,), MIN_WARNED, True),
        ((0.1, 0.1, 0.1, 1.0), 1, False),
        ((0.1, 1.0, 1.0, 1.0, 1.0, 1.0), 1, True),
        ((1.0, 0.5, 1.0, 1.0, 1.0, 1.0), 1, False),
        ((0.0, 0.0, 0.0, 0.4), MIN_WARNED - 1, False),
        ((0.0, 0.0, 0.0, 0.4), MIN_WARNED, True),
    ],
)
def test_a_few_omitted_reflections_are_no_warning_before_more_batches_omit_theirs(
    shares_omitted: tuple[float, ...], count: int, *, is_warning: bool
) -> None:
    assert bool(warnings(omitting(*shares_omitted, count=count))) is is_warning


@given(st.floats(0, MAX_OMITTED), st.integers(0, 30))
def test_what_stays_as_it_was_is_never_a_warning(share: float, count: int) -> None:
    assert not warnings(omitting(*[share] * count))
    assert RISEN_BY > 0


@given(st.lists(st.floats(0, 1), max_size=40), st.none() | st.integers(0, 10))
def test_only_the_last_share_of_each_of_the_last_batches_is_remembered(
    before: list[float], newest: int | None
) -> None:
    current = empty("p").model_copy(update={"omitted_recent": tuple(before)})
    batch = None if newest is None else Audit(new=10 - newest, omitted=newest)
    found = recent_shares(current, batch).get("omitted_recent", current.omitted_recent)
    assert found == tuple(before if newest is None else [*before, newest / 10][-RECENT_KEPT:])


def claiming(audit: Audit, *, carry: bool = True, name: str = "p") -> Playbook:
    """Return a playbook whose last batch has this audit."""
    plan = Plan(
        batch_id="b",
        playbook=name,
        sequence=1,
        widths=(1,),
        base_version=0,
        reflections=audit.reflections,
        settings=PlanSettings(carry=carry),
    )
    return empty(name).model_copy(update={"batch": AppliedBatch(plan=plan, audit=audit)})


@each_row(
    ("audit", "is_warning"),
    [
        (Audit(new=100, said=97, verified=51, carried=49), True),
        (Audit(new=100, said=97, verified=90, carried=10), False),
        # Combee carries what the model leaves out in silence, and the model claims nothing.
        (Audit(new=100, said=51, verified=51, carried=49), False),
        # A dropped reflection is believed only for a reason.
        (Audit(new=70, dropped=30, said=100, verified=70), False),
        (Audit(new=MIN_WARNED, said=MIN_WARNED, carried=MIN_WARNED), True),
        (Audit(new=MIN_WARNED - 1, said=MIN_WARNED - 1, carried=MIN_WARNED - 1), False),
        (Audit(new=100, said=100, verified=80, carried=20), False),
        (Audit(new=100, said=100, verified=79, carried=21), True),
    ],
)
def test_a_model_that_claims_many_more_than_are_verified_is_a_warning(
    audit: Audit, *, is_warning: bool
) -> None:
    assert warnings(claiming(audit)).keys() == ({"unverified"} if is_warning else set())


def test_without_the_carry_nothing_is_checked_and_no_claim_is_a_warning() -> None:
    audit = Audit(new=100, said=97)
    assert warnings(claiming(audit)).keys() == {"unverified"}
    assert not warnings(claiming(audit, carry=False))


# ---- through the services


@pytest.mark.usefixtures("quick_polls")
async def test_what_agents_were_shown_and_say_back_counts_as_known_and_is_no_news() -> None:
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
    assert (version.audit, retention_of(version)) == (Audit(known=9, said=9, verified=9), 1.0)
    assert {change.kind for change in version.changes} <= {"echo"}
    assert {entry.evidence_count for entry in version.entries} == {1}


def retention_of(version: Playbook) -> float | None:
    return shares(version.audit)["retention"]


async def learned(answer: Answer, count: int = 9, **settings: Any) -> Playbook:
    return ledger.latest((await one_batch(answer, count, **settings)).log)


@pytest.mark.usefixtures("quick_polls")
class TestServices:
    async def test_a_model_that_keeps_everything_retains_everything(self) -> None:
        assert (await learned(echo)).audit == Audit(new=9, said=9, verified=9)

    async def test_a_lesson_that_the_combine_drops_by_name_is_dropped_where_it_is_believed(self) -> None:
        def strict(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            if not is_combine(prompt):
                return reply
            dropped = [item["n"] for item in items(prompt) if item["content"] == "lesson 1"]
            kept = [one for one in reply["operations"] if one["sources"][0] not in dropped]
            return {"operations": kept, "dropped": dropped}

        assert (await learned(strict, carry=False, trust="lab")).audit == Audit(new=8, dropped=1, said=9)

    async def test_what_a_combine_forgets_is_carried_and_without_carry_omitted(self) -> None:
        def forgetful(prompt: Prompt) -> Mapping[str, Any]:
            reply = echo(prompt)
            return {"operations": reply["operations"][:1]} if is_combine(prompt) else reply

        assert (await learned(forgetful, carry=False, trust="lab")).audit == Audit(new=1, omitted=8, said=1)
        assert (await learned(forgetful)).audit == Audit(new=9, said=1, verified=1, carried=8)

    async def test_operations_that_name_no_source_claim_all_and_words_verify_them(self) -> None:
        def vague(prompt: Prompt) -> Mapping[str, Any]:
            return {"operations": [{**one, "sources": []} for one in echo(prompt)["operations"]][:1]}

        assert (await learned(vague)).audit == Audit(new=9, said=9, verified=1, carried=8)

    async def test_what_the_budget_evicts_at_once_is_not_in_the_playbook(self) -> None:
        version = await learned(echo, budget_tokens=30)
        assert retention_of(version) == round(len(version.entries) / 9, 4)
        assert len(version.entries) < 9


# ---- one judgement, one wording


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            omitting(0.1, 0.1, 0.1, 0.64, name="bad"),
            "64 % of the last batch's reflections were omitted: the playbook has nothing of them",
        ),
        (
            claiming(Audit(new=100, said=97, verified=51, carried=49), name="bad"),
            (
                "the model accounted for 97 % of the last batch's reflections, and 51 % were verified in what it"
                " wrote; Combee carried 49 %"
            ),
        ),
    ],
    ids=["omitted", "unverified"],
)
def test_retention_is_judged_once_and_told_in_the_same_words_everywhere(bad: Playbook, text: str) -> None:
    good = omitting(0.1, 0.1, 0.1, 0.1, name="good")
    assert (list(warnings(good).values()), list(warnings(bad).values())) == ([], [text])
    check = judge_retention([good, bad])
    assert (check.verdict, check.says) == ("warn", f"bad: {text}")
    assert judge_retention([good]).verdict == "ok"
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(full_view(bad))
    assert f"warning: {text}" in shown.export_text()


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
            *seen(kept="words", evicted="check", late="check", silent=""),
            Seen(reflection_id="lumped", offset=0, said=True),
            Seen(reflection_id="dead", offset=0, ok=False),
            Seen(reflection_id="named", offset=0, said=True, dropped=True),
        ),
    )
    after = after_update(empty("p"), update, budget_tokens=60, now_ms=0)
    found = reflection_effects(drafted(empty("p"), update), update, after)
    assert {name: one.effect for name, one in found.items()} == {
        "kept": "new", "evicted": "omitted", "late": "omitted", "silent": "omitted", "lumped": "omitted",
        "named": "dropped",
    }  # fmt: skip
    why = {name: fate.why for name, fate in found.items() if fate.why}
    assert why.keys() == found.keys() - {"kept"}
    assert why["named"] == "the model dropped it by name"
    assert "token budget" in why["evicted"]
    assert "no longer applied" in why["late"]
    assert "the model proposed nothing" in why["silent"]
    assert why["lumped"] == "the model named it, and nothing that it wrote says it"


async def test_learn_says_which_reflections_left_nothing_and_why(quick_polls: None) -> None:  # noqa: ARG001
    given = [reflection(n) for n in range(4)]

    def forgets_one(prompt: Prompt) -> Mapping[str, Any]:
        said = dict(echo(prompt))
        said["operations"] = [one for one in said["operations"] if one["content"] != given[0].key_insight]
        return said

    deployment = Deployment(batch_size=4, carry=False, trust="lab", model=ScriptedModel(forgets_one))
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
