"""A combine's carry, the order of its items, and results too large to write."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from combee.adapters.ports import PoisonError
from combee.core.playbook import operations as ops
from combee.core.playbook.versions import empty
from combee.scan.aggregate import Aggregator
from combee.scan.outcome import shorter
from combee_schemas import topics
from combee_schemas.base import Shown, Source
from combee_schemas.codec import encode
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan
from combee_schemas.playbook import EVIDENCE_KEPT
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import (
    GroupMember,
    Known,
    NodeResult,
    Operation,
    OperationKind,
    Partial,
    Seen,
    Update,
)
from support import ledger
from support.deployment import one_batch
from support.flat import flat
from support.ledger import NAME, batch_of, dead_letters, reflection
from support.models import Answer, ModelClient, ScriptedModel, echo, is_combine, items
from support.playbooks import BASE, entry

# ---- carry


class Combine:
    """One combine call on proposals that rest on reflections 1, 2, 3 …, each with its offset."""

    def __init__(self, *evidence: Sequence[int], per_child: int = 1) -> None:
        self.model = ScriptedModel()
        found = [
            Operation(
                kind=OperationKind.ADD, content=f"lesson {n}", evidence=tuple(f"r-{one}" for one in ids)
            )
            for n, ids in enumerate(evidence, 1)
        ]
        cuts = range(0, len(found), per_child)
        self.children = [child(n, found[at : at + per_child]) for n, at in enumerate(cuts)]

    async def outcome(self, answer: Answer = echo, *, carry: bool = True) -> NodeResult:
        self.model.answer = answer
        aggregator = Aggregator(ModelClient(self.model), carry=carry)
        return await aggregator.combine(empty(NAME), 1, self.children)


def child(index: int, operations: Sequence[Operation], **fields: Any) -> Partial:
    ids = dict.fromkeys(one for operation in operations for one in operation.evidence)
    plan = Plan(batch_id="b", playbook=NAME, sequence=1, widths=(99, 1), base_version=0, reflections=len(ids))
    seen = tuple(Seen(reflection_id=one, offset=int(one[2:]), said=True, covered="check") for one in ids)
    given = {
        "plan": plan,
        "node_id": f"n{index}",
        "parent_id": "p",
        "level": 0,
        "index": index,
        "status": "ok",
    }
    return flat(Partial, **{**given, "operations": tuple(operations), "seen": seen, **fields})


def keeping(*numbers: int, dropped: Sequence[int] = (), sources: object = ...) -> Answer:
    """Use only the items with these numbers."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        kept = [one for one in echo(prompt)["operations"] if one["sources"][0] in numbers]
        named = kept if sources is ... else [{**one, "sources": sources} for one in kept]
        return {"operations": named, "dropped": list(dropped)}

    return answer


def contents(outcome: NodeResult) -> list[str]:
    return [one.content for one in outcome.operations]


def saying(*said: tuple[str, list[int]]) -> Answer:
    """Propose contents that are said to rest on items with these numbers."""
    operations = [{"type": "ADD", "content": content, "sources": numbers} for content, numbers in said]
    return lambda _: {"operations": operations}


async def test_what_a_combine_did_not_make_of_an_item_is_only_guessed_to_rest_on_it() -> None:
    combine = Combine([1, 2], [3], [4])
    texts = ("Gross margin is in percent", "Beta is a plain ratio", "Weight parcels in grams")
    combine.children = [
        child(n, [Operation(kind=OperationKind.ADD, content=text, evidence=ids)])
        for n, (text, ids) in enumerate(zip(texts, (("r-1", "r-2"), ("r-3",), ("r-4",)), strict=True))
    ]
    made_up, merged = "Frobnicate every widget twice", "Gross margin is in percent, and beta a plain ratio"
    outcome = await combine.outcome(saying((made_up, [1]), (merged, [1, 2]), ("No item named", [])))
    guesses = {operation.content: operation.guessed for operation in outcome.operations}
    assert guesses == {
        made_up: ("r-1", "r-2"),
        merged: ("r-1", "r-2", "r-3"),
        "No item named": ("r-1", "r-2", "r-3", "r-4"),
    }


async def test_a_guess_stays_one_on_the_way_up() -> None:
    combine = Combine([1], [2])
    guess = Operation(kind=OperationKind.ADD, content="lesson 1", evidence=("r-1", "r-3"), guessed=("r-3",))
    combine.children[0] = child(0, [guess])
    outcome = await combine.outcome(keeping(1, 2))
    assert [operation.guessed for operation in outcome.operations] == [(), ("r-3",)]


async def test_proposals_stand_in_the_order_of_their_newest_evidence_oldest_first() -> None:
    combine = Combine([7, 1], [3], [5, 2], [4])
    await combine.outcome()
    assert [item["content"] for item in items(combine.model.prompts[0])] == [
        "lesson 2", "lesson 4", "lesson 3", "lesson 1",
    ]  # fmt: skip


async def test_what_a_combine_neither_used_nor_dropped_by_name_is_passed_on_and_counted() -> None:
    outcome = await Combine([1], [2], [3], [4]).outcome(keeping(2, dropped=[3]))
    assert contents(outcome) == ["lesson 2", "lesson 1", "lesson 4"]
    assert (outcome.carried, outcome.status) == (2, "ok")
    assert {s.reflection_id: s.covered for s in outcome.seen} == {
        "r-1": "carried", "r-2": "check", "r-3": "", "r-4": "carried",
    }  # fmt: skip


async def test_what_was_carried_below_is_counted_with_it() -> None:
    combine = Combine([1], [2])
    combine.children = [
        one.model_copy(update={"result": one.result.model_copy(update={"carried": 5})})
        for one in combine.children
    ]
    assert (await combine.outcome(keeping(1))).carried == 11


async def test_without_carry_it_is_gone() -> None:
    outcome = await Combine([1], [2]).outcome(keeping(1), carry=False)
    assert (contents(outcome), outcome.carried) == (["lesson 1"], 0)


async def test_what_rests_on_guesses_alone_is_carried_too() -> None:
    combine = Combine([1], [2])
    combine.children[0] = child(
        0,
        [
            Operation(kind=OperationKind.ADD, content=content, evidence=("r-3", "r-4"), guessed=guessed)
            for content, guessed in (("guessed", ("r-3", "r-4")), ("guessed in part", ("r-4",)))
        ],
    )
    outcome = await combine.outcome(saying(("lesson 2", [1])))
    assert contents(outcome) == ["lesson 2", "guessed", "guessed in part"]
    assert outcome.carried == 2
    assert {seen.reflection_id: seen.covered for seen in outcome.seen} == {
        "r-2": "check", "r-3": "carried", "r-4": "carried",
    }  # fmt: skip


async def test_a_proposal_without_evidence_is_carried() -> None:
    combine = Combine([1], [2])
    combine.children[0] = child(0, [Operation(kind=OperationKind.ADD, content="no evidence")])
    outcome = await combine.outcome(saying(("lesson 2", [2])))
    assert contents(outcome) == ["lesson 2", "no evidence"]


@pytest.mark.parametrize("sources", [[], None], ids=str)
async def test_a_weak_model_that_names_no_sources_does_not_have_everything_carried(sources: object) -> None:
    outcome = await Combine(*([n] for n in range(1, 41)), per_child=8).outcome(keeping(1, 2, sources=sources))
    assert (contents(outcome), outcome.carried) == (["lesson 1", "lesson 2"], 0)
    assert len(outcome.operations[0].evidence) == 40
    assert {(one.said, one.covered) for one in outcome.seen} == {(False, "")}


async def test_a_model_that_names_what_does_not_exist_is_no_witness_and_all_is_carried() -> None:
    outcome = await Combine([1], [2], [3]).outcome(keeping(1, sources=[99]))
    assert contents(outcome) == ["lesson 1", "lesson 2", "lesson 3"]
    assert outcome.carried == 3


async def test_what_only_an_unusable_operation_names_is_carried() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        first, second = echo(prompt)["operations"]
        return {"operations": [first, {**second, "type": "DESTROY"}]}

    outcome = await Combine([1], [2]).outcome(answer)
    assert contents(outcome) == ["lesson 1", "lesson 2"]


async def test_more_than_one_reply_may_hold_can_be_carried() -> None:
    outcome = await Combine(*([n] for n in range(1, 2_502)), per_child=500).outcome(keeping(1))
    assert (len(outcome.operations), outcome.carried) == (2_501, 2_500)


async def test_what_failed_below_is_told_at_the_root() -> None:
    failed = child(2, (), status="failed", reason="the model's reply stayed unusable")
    combine = Combine([1], [2])
    combine.children.append(failed)
    outcome = await combine.outcome()
    assert outcome.reason == "the model's reply stayed unusable"


# ---- results too large for a record


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a record hold a tenth of what it holds: as much is left out of a tenth of the names, ten times sooner."""
    monkeypatch.setattr(Partial, "max_bytes", Partial.max_bytes // 10)


def large(operations: int, ids: int, content: str = "lesson", evidence: int = 10**6) -> NodeResult:
    """Return the outcome of a node; each of its operations rests on (the first of) all reflections."""
    names = [f"r-{n:06}" for n in range(ids)]
    own = [(*names[n::operations], *names[:evidence]) for n in range(operations)]
    return NodeResult(
        status="ok",
        operations=tuple(
            Operation(kind=OperationKind.ADD, content=f"{content} {n}", evidence=tuple(dict.fromkeys(one)))
            for n, one in enumerate(own)
        ),
        seen=tuple(
            Seen(
                reflection_id=one,
                offset=n,
                said=True,
                covered="check",
                tags=(BulletTag(id="e", tag="helpful"),),
            )
            for n, one in enumerate(names)
        ),
    )


def fitting(outcome: NodeResult) -> NodeResult:
    """Return the first of the shorter ones that a record holds, as the handler does."""
    for one in shorter(outcome):
        try:
            encode(child(0, ()).model_copy(update={"result": one}))
        except ValueError:
            continue
        return one
    raise AssertionError("unreachable")


def test_evidence_that_others_have_too_goes_first_and_nothing_is_lost() -> None:
    whole = large(operations=200, ids=2_000)
    short = fitting(whole)
    assert contents(short) == contents(whole)
    assert {len(one.evidence) for one in short.operations[1:]} == {EVIDENCE_KEPT}
    assert {e for one in short.operations for e in one.evidence} == {s.reflection_id for s in whole.seen}
    assert short.seen == whole.seen
    assert "evidence" in short.reason


@pytest.mark.parametrize("tags", [5_000, 20], ids=["large tags", "tags of all"])
def test_sources_stay_where_tags_are_too_large_for_a_record_and_nobody_else_loses_tags(tags: int) -> None:
    whole = large(operations=10, ids=600, evidence=0)
    long = tuple(BulletTag(id="x" * 190 + f"{n:04}", tag="neutral") for n in range(tags))
    mine = Source(name="mallory", proven="secret")
    heavy = 5 if tags > 20 else 600
    tagged = tuple(
        one.model_copy(update={"source": mine, **({"tags": long} if n < heavy else {})})
        for n, one in enumerate(whole.seen)
    )
    short = fitting(whole.model_copy(update={"seen": tagged}))
    assert {one.source for one in short.seen} == {mine}
    assert short.operations == whole.operations
    assert all(one.tags for one in short.seen[heavy:])


async def test_tags_count_of_entries_that_the_playbook_has_and_of_200_of_each_reflection() -> None:
    base = BASE.model_copy(
        update={"entries": tuple(entry(f"calc-{n:05}", f"lesson {n}") for n in range(300))}
    )
    tags = [BulletTag(id=f"invented-{n:05}", tag="harmful") for n in range(300)]
    tags += [BulletTag(id=one.id, tag="helpful") for one in base.entries]
    told = reflection(1, bullet_tags=tuple(tags), shown=Shown(version=4))
    aggregator = Aggregator(ModelClient(ScriptedModel()))
    outcome = await aggregator.group(base, [GroupMember(offset=1, reflection=told)])
    assert [tag.id for tag in outcome.seen[0].tags] == [one.id for one in base.entries[:200]]


def test_operations_go_last_the_longest_first_and_who_loses_his_last_did_not_get_through() -> None:
    whole = large(operations=400, ids=400, content="x" * 3_000, evidence=1)
    short = fitting(whole)
    kept = {e for one in whole.operations if one.content in contents(short) for e in one.evidence}
    assert 0 < len(short.operations) < 400
    assert {s.reflection_id for s in short.seen if s.ok} == kept
    assert {s.covered for s in short.seen if not s.ok} == {""}
    assert not any(s.tags for s in short.seen)
    assert f"{400 - len(short.operations)} operations" in short.reason


@pytest.mark.usefixtures("small_records")
def test_no_operation_goes_while_most_names_of_what_they_rest_on_can() -> None:
    whole = large(operations=5, ids=1_600, evidence=0)
    short = fitting(whole)
    assert contents(short) == contents(whole)
    assert {len(one.evidence) for one in short.operations} == {EVIDENCE_KEPT}
    assert [s.reflection_id for s in short.seen if s.ok] == [s.reflection_id for s in whole.seen]
    assert f"evidence beyond {EVIDENCE_KEPT} each" in short.reason


@pytest.mark.usefixtures("small_records")
def test_the_entries_that_calls_were_shown_go_before_any_evidence_that_no_other_operation_has() -> None:
    whole = large(operations=5, ids=1_000, evidence=0)
    many = tuple(f"calc-{n:05}" for n in range(5_000))
    short = fitting(whole.model_copy(update={"scope": many}))
    assert (short.scope, ops.rests(short.operations)) == ((), ops.rests(whole.operations))


@pytest.mark.usefixtures("small_records")
def test_names_of_what_is_known_go_before_operations_too_and_what_is_sure_stays() -> None:
    whole = large(operations=5, ids=1_600, evidence=0)
    names = [seen.reflection_id for seen in whole.seen]
    claim = Known(entry_id="calc-00001", evidence=tuple(names), guessed=tuple(names[:-5]))
    short = fitting(whole.model_copy(update={"operations": whole.operations[:1], "known": (claim,)}))
    assert len(short.operations) == 1
    assert short.known[0].evidence[:5] == tuple(names[-5:])
    assert len(short.known[0].evidence) == EVIDENCE_KEPT


def test_the_names_of_10_000_reflections_fit_a_record_beside_their_operations() -> None:
    whole = large(operations=50, ids=10_000, evidence=0)
    plain = tuple(seen.model_copy(update={"tags": ()}) for seen in whole.seen)
    encode(child(0, whole.operations, seen=plain))


def test_a_babbling_operation_goes_before_a_short_one() -> None:
    short = fitting(large(operations=300, ids=300, content="x" * 4_000, evidence=1))
    plain = Operation(kind=OperationKind.ADD, content="short", evidence=("r-000001",))
    whole = large(operations=300, ids=300, content="x" * 4_000, evidence=1)
    mixed = NodeResult(status="ok", operations=(*whole.operations, plain), seen=whole.seen)
    assert "short" in contents(fitting(mixed))
    assert "short" not in contents(short)


@pytest.mark.usefixtures("small_records")
def test_ids_that_alone_are_too_many_are_poison() -> None:
    names = [f"{n:06}" + "x" * 190 for n in range(600)]
    seen = tuple(Seen(reflection_id=one, offset=0) for one in names)
    with pytest.raises(PoisonError, match="smaller batch size"):
        fitting(NodeResult(status="ok", seen=seen))


@pytest.mark.usefixtures("quick_polls")
async def test_lessons_too_large_for_one_record_are_dead_letters_and_never_lost() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        return {
            "operations": [
                {**one, "content": f"{item['key_insight']} " + "x" * 7_900}
                for one, item in zip(echo(prompt)["operations"], items(prompt), strict=True)
            ]
        }

    count = 140
    deployment = await one_batch(lambda p: echo(p) if is_combine(p) else answer(p), count)
    version = ledger.latest(deployment.log)
    kept = {e for entry in version.entries for e in entry.evidence}
    buried = {letter.record_id for letter in dead_letters(deployment.log)}
    assert buried
    assert kept | buried == {f"r-{n}" for n in range(count)}
    assert kept & buried == set()
    (update,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    assert "operations" in update.result.reason
    assert batch_of(version).degraded
