"""What a combine sets aside, the order of its items, and results too large to write."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from combee.adapters.ports import PoisonError, PromptTooLongError
from combee.core.batching import tree
from combee.core.playbook.operations import MAX_DETAIL_CHARS
from combee.core.playbook.results.guards import MAX_CONFLICTS
from combee.core.playbook.versions import empty
from combee.scan.aggregate import Aggregator
from combee.scan.worth import fitted, shorter
from combee_schemas.base import Shown, Source, SourceNames
from combee_schemas.codec import encode
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import EVIDENCE_KEPT
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import (
    Conflict,
    GroupMember,
    Known,
    NodeResult,
    Operation,
    OperationKind,
    Partial,
    Seen,
)
from support.flat import flat
from support.ledger import NAME, reflection
from support.models import Answer, ModelClient, ScriptedModel, echo, items
from support.playbooks import BASE, entry
from support.rows import each_row
from support.scanned import learned, reflections

# ---- combines

NO_SOURCES: Mapping[int, Source] = {}


class Combine:
    """One combine call on proposals that rest on reflections 1, 2, 3 …, each with its offset."""

    def __init__(
        self, *evidence: Sequence[int], per_child: int = 1, sources: Mapping[int, Source] = NO_SOURCES
    ) -> None:
        self.model = ScriptedModel()
        found = [
            Operation(
                kind=OperationKind.ADD, content=f"lesson {n}", evidence=tuple(f"r-{one}" for one in ids)
            )
            for n, ids in enumerate(evidence, 1)
        ]
        cuts = range(0, len(found), per_child)
        self.children = [child(n, found[at : at + per_child], sources=sources) for n, at in enumerate(cuts)]

    async def outcome(
        self, answer: Answer = echo, *, carry: bool = True, names: SourceNames = "declared"
    ) -> NodeResult:
        self.model.answer = answer
        settings = PlanSettings(carry=carry, trust="lab" if names == "declared" else "team")
        aggregator = Aggregator(ModelClient(self.model), settings=settings)
        return await aggregator.combine(empty(NAME), 1, self.children)


def child(
    index: int, operations: Sequence[Operation], *, sources: Mapping[int, Source] = NO_SOURCES, **fields: Any
) -> Partial:
    ids = dict.fromkeys(one for operation in operations for one in operation.evidence)
    plan = Plan(batch_id="b", playbook=NAME, sequence=1, widths=(99, 1), base_version=0, reflections=len(ids))
    seen = tuple(
        Seen(
            reflection_id=one,
            offset=int(one[2:]),
            said=True,
            covered="check",
            source=sources.get(int(one[2:])),
        )
        for one in ids
    )
    given = {
        "plan": plan,
        "node_id": f"n{index}",
        "parent_id": "p",
        "level": 0,
        "index": index,
        "status": "ok",
    }
    return flat(Partial, **{**given, "operations": tuple(operations), "seen": seen, **fields})


def keeping(*numbers: int, dropped: Sequence[int] = ()) -> Answer:
    """Use only the items with these numbers."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        kept = [one for one in echo(prompt)["operations"] if one["sources"][0] in numbers]
        return {"operations": kept, "dropped": list(dropped)}

    return answer


def contents(outcome: NodeResult) -> list[str]:
    return [one.content for one in outcome.operations]


SHOP, DESK, CLAIM = (
    Source(name="shop", proven="key"),
    Source(name="desk", proven="key"),
    Source(name="many"),
)
SUPPORT = ([7, 1], [3], [5, 2], [4], [6, 8], [9, 10, 11])
"""The reflections behind the lessons 1, 2, 3 …"""


@each_row(
    ("sources", "names", "told"),
    [
        (
            {},
            "declared",
            (
                "2: 1 reflection, 4: 1 reflection, 3: 2 reflections, 1: 2 reflections, 5: 2 reflections,"
                " 6: 3 reflections"
            ),
        ),
        (
            {7: SHOP, 1: DESK, 3: SHOP, 6: SHOP, 9: DESK, 10: DESK, 11: DESK},
            "declared",
            (
                "2: 1 reflection of 1 producer, 4: 1 reflection of 1 producer,"
                " 3: 2 reflections of 1 producer, 6: 3 reflections of 1 producer,"
                " 1: 2 reflections of 2 producers, 5: 2 reflections of 2 producers"
            ),
        ),
        (
            {5: CLAIM, 2: CLAIM.model_copy(update={"name": "more"}), 7: SHOP, 1: DESK},
            "proven",
            (
                "2: 1 reflection of 1 producer, 4: 1 reflection of 1 producer,"
                " 3: 2 reflections of 1 producer, 5: 2 reflections of 1 producer,"
                " 6: 3 reflections of 1 producer, 1: 2 reflections of 2 producers"
            ),
        ),
    ],
    ids=["nobody is named", "those without a name are one", "a claim is no name"],
)
async def test_proposals_tell_their_support_and_stand_in_its_order_and_in_that_of_their_newest_evidence(
    sources: dict[int, Source], names: SourceNames, told: str
) -> None:
    combine = Combine(*SUPPORT, sources=sources)
    await combine.outcome(names=names)
    read = items(combine.model.prompts[0])
    said = (f"{item['content'].removeprefix('lesson ')}: {item['support']}" for item in read)
    assert ", ".join(said) == told


async def test_halves_of_a_prompt_that_is_too_long_tell_the_support_of_their_own_items() -> None:
    def short(prompt: Prompt) -> Mapping[str, Any]:
        if len(items(prompt)) > 3:
            raise PromptTooLongError("too long")
        return echo(prompt)

    combine = Combine(*SUPPORT, sources={7: SHOP, 1: DESK})
    await combine.outcome(short)
    first, second = combine.model.prompts[1:]
    assert [item["support"] for item in items(first)] == [
        "1 reflection of 1 producer", "1 reflection of 1 producer", "2 reflections of 1 producer",
    ]  # fmt: skip
    assert [item["content"] for item in items(second)] == ["lesson 5", "lesson 6", "lesson 1"]
    assert items(second)[-1]["support"] == "2 reflections of 2 producers"


async def test_what_a_combine_does_not_repeat_is_set_aside_for_the_root_with_what_was_set_aside_below() -> (
    None
):
    combine, below = Combine([1], [2], [3]), Operation(kind=OperationKind.ADD, content="lost below")
    first = combine.children[0]
    set_aside = first.result.model_copy(update={"aside": (below,)})
    combine.children[0] = first.model_copy(update={"result": set_aside})
    outcome = await combine.outcome(keeping(2, dropped=[3]))
    assert contents(outcome) == ["lesson 2"]
    assert [one.content for one in outcome.aside] == ["lost below", "lesson 1", "lesson 3"]
    assert (await combine.outcome(keeping(2), carry=False)).aside == ()


async def test_more_than_one_reply_may_hold_can_be_carried() -> None:
    given = reflections(*(f"weigh{n} parcels{n}" for n in range(2_501)))
    result = await learned(keeping(), given, groups=5)
    assert len(result.operations) == 2_501


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
        update={"name": NAME, "entries": tuple(entry(f"calc-{n:05}", f"lesson {n}") for n in range(300))}
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
    assert f"{400 - len(short.operations)} operations" in short.reason


LONG = "\U00020000" * 8_000
MANY = "\U00020000" * 120


@pytest.mark.parametrize(
    ("content", "count", "entry_ids"),
    [(LONG, 31, 0), (MANY, 1_950, 0), ("merged", 1, 25_000)],
    ids=["long", "many", "of many entries"],
)
@pytest.mark.parametrize("evidence", [(), ("m-1", "m-2")], ids=["nobody", "one source"])
def test_what_one_source_or_nobody_says_at_length_costs_others_no_support(
    content: str, count: int, entry_ids: int, evidence: tuple[str, ...]
) -> None:
    names = [f"r-{n}" for n in range(12)]
    tag = (BulletTag(id="e", tag="harmful"),)
    honest = [
        Seen(reflection_id=one, offset=n, tags=tag, source=Source(name=f"shop-{n % 4}", proven="secret"))
        for n, one in enumerate(names)
    ]
    mine = Source(name="mallory", proven="secret")
    own = [Seen(reflection_id=one, offset=20, source=mine) for one in ("m-1", "m-2")]
    said = [
        Operation(kind=OperationKind.ADD, content="Ask for the number. " * 20 + f"{n}", evidence=tuple(ids))
        for n, ids in enumerate((names, *([one] for one in names)))
    ]
    entries = tuple(f"{n:040}" for n in range(entry_ids))
    kind = OperationKind.MERGE if entries else OperationKind.ADD
    flood = [
        Operation(kind=kind, content=f"{content} {n}", entry_ids=entries, evidence=evidence)
        for n in range(count)
    ]
    ids = tuple(f"{n}" + "\U00020000" * 190 for n in range(EVIDENCE_KEPT))
    conflicts = (Conflict(content="x", against=LONG, evidence=ids),) * MAX_CONFLICTS
    short = fitting(
        NodeResult(status="ok", operations=(*flood, *said), seen=(*honest, *own), conflicts=conflicts)
    )
    assert [one for one in short.operations if one in said] == said
    assert [one for one in short.seen if one.reflection_id in names] == honest


async def test_lessons_that_a_model_drops_as_vague_take_little_room_in_a_record() -> None:
    vague = ["\U00010400" * 7_900 + f" {n}" for n in "abc"]

    def dropping(prompt: Prompt) -> Mapping[str, Any]:
        numbers = [item["n"] for item in items(prompt) if item.get("key_insight") in vague]
        return {"operations": [], "dropped": numbers}

    others = [f"Ask shop {n} for the number of the order first." for n in "defghi"]
    result = await learned(dropping, reflections(*vague, *others))
    assert [len(one.text) for one in result.seen if one.dropped] == [MAX_DETAIL_CHARS] * 3


@pytest.mark.usefixtures("small_records")
def test_no_operation_goes_while_most_names_of_what_they_rest_on_can() -> None:
    whole = large(operations=5, ids=1_600, evidence=0)
    short = fitting(whole)
    assert contents(short) == contents(whole)
    assert {len(one.evidence) for one in short.operations} == {EVIDENCE_KEPT}
    assert [s.reflection_id for s in short.seen if s.ok] == [s.reflection_id for s in whole.seen]
    assert f"evidence beyond {EVIDENCE_KEPT} each" in short.reason


@pytest.mark.parametrize(
    ("carry", "level", "all_stay"), [(True, 0, True), (False, 0, False), (True, 1, False)]
)
def test_who_loses_his_last_operation_below_a_root_that_carries_stays(
    *, carry: bool, level: int, all_stay: bool
) -> None:
    plan = child(0, ()).plan.model_copy(update={"settings": PlanSettings(carry=carry), "widths": (2, 1)})
    node = tree.node_at(plan.batch_id, plan.widths, level, 0)
    made, _ = fitted(plan, 0, node, large(operations=400, ids=400, content="x" * 3_000, evidence=1))
    assert len(made.result.operations) < 400
    assert all(seen.ok for seen in made.result.seen) is all_stay


@pytest.mark.usefixtures("small_records")
def test_names_of_what_is_known_go_before_operations_too() -> None:
    whole = large(operations=5, ids=1_600, evidence=0)
    names = [seen.reflection_id for seen in whole.seen]
    claim = Known(entry_id="calc-00001", evidence=tuple(names))
    short = fitting(whole.model_copy(update={"operations": whole.operations[:1], "known": (claim,)}))
    assert len(short.operations) == 1
    assert len(short.known[0].evidence) == EVIDENCE_KEPT


@pytest.mark.usefixtures("small_records")
@pytest.mark.parametrize("also", ["", "at length", "in other words"])
def test_who_says_a_lesson_often_under_long_names_leaves_others_their_support(also: str) -> None:
    """A quorum of sources had said it, and one of them was left."""
    said, known, first = "Ask for the number.", "misc-00001", "Look it up."
    honest, mallory = [f"r-{n}" for n in range(7)], [f"{n:02}" + "\U00020000" * 190 for n in range(70)]
    sources = {one: Source(name=f"shop-{n}", proven="secret") for n, one in enumerate(honest)}
    sources |= dict.fromkeys(mallory, Source(name="mallory", proven="secret"))
    claims = {said: [*mallory[:35], *honest]}
    if also == "at length":
        claims |= {f"{n} {'x' * 300}": [one] for n, one in enumerate(mallory)}
    elif also:  # what the same reflections advise comes first
        claims = {first: honest, **claims}
    short = fitting(
        NodeResult(
            status="ok",
            operations=tuple(
                Operation(kind=OperationKind.ADD, content=content, evidence=tuple(ids))
                for content, ids in claims.items()
            ),
            known=(Known(entry_id=known, evidence=(*mallory[35:], *honest)),),
            seen=tuple(
                Seen(reflection_id=one, offset=n, source=source)
                for n, (one, source) in enumerate(sources.items())
            ),
        )
    )
    assert set(honest) <= {e for one in short.operations if one.content == said for e in one.evidence}
    assert also == "at length" or set(honest) <= set(short.known[0].evidence)


@pytest.mark.usefixtures("small_records")
def test_what_a_model_calls_known_goes_before_operations() -> None:
    whole = large(operations=5, ids=100, evidence=0)
    claims = tuple(Known(entry_id=f"{n:040}", evidence=("r-000001",)) for n in range(2_000))
    short = fitting(whole.model_copy(update={"known": claims}))
    assert contents(short) == contents(whole)
    assert not short.known


@pytest.mark.usefixtures("small_records")
def test_long_names_that_nobody_proves_cost_neither_an_operation_nor_the_batch() -> None:
    """The ids seemed too many for one record, and everybody's reflections became dead letters."""
    whole = large(operations=5, ids=300, evidence=0)
    proven, claim = Source(name="shop", proven="secret"), Source(name="\U0001f41d" * 80)
    seen = tuple(
        one.model_copy(update={"source": claim if n else proven}) for n, one in enumerate(whole.seen)
    )
    short = fitting(whole.model_copy(update={"seen": seen}))
    assert contents(short) == contents(whole)
    assert {one.source for one in short.seen} == {proven, None}


async def test_only_an_entry_of_the_playbook_can_be_known() -> None:
    def claiming(prompt: Prompt) -> Mapping[str, Any]:
        return {**keeping(1)(prompt), "known": [{"n": 2, "entry_id": "x" * 800}]}

    assert (await Combine([1], [2]).outcome(claiming)).known == ()


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


async def test_a_producer_s_free_text_about_its_source_takes_no_room_in_a_record() -> None:
    claim = Source(name="shop", proof="x" * 200)
    result = await learned(echo, reflections("Pay within 14 days.", "Ship by rail.", source=claim))
    assert {seen.source for seen in result.seen} == {Source(name="shop")}
