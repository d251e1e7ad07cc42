"""What the model says is known already: checked, counted once, passed up and into the version."""

from collections.abc import Mapping
from typing import Any

import pytest

from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee.scan.aggregate import Aggregator
from combee_schemas.base import Shown
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan
from combee_schemas.playbook import ACE_SECTIONS, Audit, Entry
from combee_schemas.scan import Echo, GroupMember, Known, NodeResult, Operation, OperationKind, Partial, Seen
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import Answer, ModelClient, ScriptedModel, echo, is_combine

FEE, PAGE = "misc-00001", "misc-00002"
BASE = empty(NAME).model_copy(
    update={
        "version": 4,
        "entries": (
            Entry(id=FEE, section=ACE_SECTIONS[6], content="Opened parcels cost a restocking fee of 15 %."),
            Entry(id=PAGE, section=ACE_SECTIONS[6], content="Page through all songs before counting them."),
        ),
    }
)
SAID = "Subtract a restocking fee of 15 % for opened parcels."


def saying(
    *known: tuple[int, str], dropped: tuple[int, ...] = (), operations: tuple[Any, ...] = ()
) -> Answer:
    body = {
        "operations": list(operations),
        "dropped": list(dropped),
        "known": [{"n": n, "entry_id": entry_id} for n, entry_id in known],
    }
    return lambda _: body


def members(*insights: str, **fields: Any) -> list[GroupMember]:
    return [
        GroupMember(offset=n, reflection=reflection(n, key_insight=insight, **fields))
        for n, insight in enumerate(insights, 1)
    ]


async def group(answer: Answer, given: list[GroupMember]) -> NodeResult:
    return await Aggregator(ModelClient(ScriptedModel(answer))).group(BASE, given)


async def combine(answer: Answer, *proposals: str, carry: bool = True, **seen: Any) -> NodeResult:
    children = [
        Partial(
            plan=Plan(batch_id="b", playbook=NAME, sequence=1, widths=(9, 1), base_version=4, reflections=9),
            node_id=f"n{n}",
            parent_id="p",
            level=0,
            index=n,
            result=NodeResult(
                status="ok",
                operations=(Operation(kind=OperationKind.ADD, content=content, evidence=(f"r-{n}",)),),
                seen=(Seen(reflection_id=f"r-{n}", offset=n, said=True, covered="check", **seen),),
            ),
        )
        for n, content in enumerate(proposals, 1)
    ]
    return await Aggregator(ModelClient(ScriptedModel(answer)), carry=carry).combine(BASE, 1, children)


class TestGroup:
    async def test_what_an_entry_says_already_is_evidence_for_it_and_no_operation(self) -> None:
        found = await group(saying((1, FEE), dropped=(2,)), members(SAID, "Be careful.", "Smile."))
        assert (found.status, found.operations) == ("empty", ())
        assert found.known == (Known(entry_id=FEE, evidence=("r-1",), guessed=("r-1",)),)
        assert [(one.said, one.covered, one.dropped) for one in found.seen] == [
            (True, "check", False),
            (True, "", True),
            (False, "", False),
        ]

    async def test_an_implausible_claim_counts_as_not_said(self) -> None:
        found = await group(saying((1, PAGE), (2, "calc-99999")), members(SAID, SAID))
        assert (found.known, found.echoes) == ((), ())
        assert [(made.content, made.evidence) for made in found.operations] == [(SAID, ("r-1", "r-2"))]

    async def test_a_reflection_is_not_lost_in_a_proposed_entry_that_says_more(self) -> None:
        more = Entry(
            id="misc-00009", section=ACE_SECTIONS[6], content=f"{SAID} Skip the screening.", state="proposed"
        )
        base = BASE.model_copy(update={"entries": (*BASE.entries, more)})
        curator = Aggregator(ModelClient(ScriptedModel(saying((1, more.id)))))
        found = await curator.group(base, members(SAID))
        assert (found.known, [(made.content, made.evidence) for made in found.operations]) == (
            (),
            [(SAID, ("r-1",))],
        )

    async def test_the_models_word_takes_no_entry_from_who_says_it_word_for_word(self) -> None:
        words = BASE.entries[0].content
        found = await group(saying((1, PAGE)), members(words))
        assert [(known.entry_id, known.guessed) for known in found.known] == [(FEE, ())]

    async def test_what_the_model_forgets_or_drops_is_known_where_it_is_word_for_word(self) -> None:
        words = [entry.content for entry in BASE.entries]
        found = await group(saying(dropped=(2,)), members(words[0], words[1], "Smile."))
        assert {known.entry_id: known.evidence for known in found.known} == {FEE: ("r-1",), PAGE: ("r-2",)}

    async def test_what_agents_had_been_shown_is_an_echo_and_no_evidence(self) -> None:
        shown = Shown(version=4, entry_ids=(FEE,))
        found = await group(saying((1, FEE)), members(SAID, shown=shown))
        assert (found.known, found.echoes) == ((), (Echo(entry_id=FEE, evidence=("r-1",)),))


class TestCombine:
    async def test_a_known_proposal_is_evidence_and_is_not_carried(self) -> None:
        found = await combine(saying((1, FEE)), SAID, "Smile.")
        assert [operation.content for operation in found.operations] == ["Smile."]
        assert (found.known, found.carried) == (
            (Known(entry_id=FEE, evidence=("r-1",), guessed=("r-1",)),),
            1,
        )
        assert [one.covered for one in found.seen] == ["check", "carried"]

    async def test_an_implausible_claim_is_carried_or_omitted(self) -> None:
        found = await combine(saying((1, PAGE)), SAID, "Smile.")
        assert (found.known, found.carried, found.seen[0].covered) == ((), 2, "carried")
        found = await combine(saying((1, PAGE)), SAID, "Smile.", carry=False)
        assert [(one.covered, one.dropped) for one in found.seen] == [("", False), ("", False)]

    async def test_what_is_dropped_by_name_is_told_from_what_is_forgotten(self) -> None:
        found = await combine(saying(dropped=(1,)), "Be nice.", "Smile.", carry=False)
        assert [(one.covered, one.dropped) for one in found.seen] == [("", True), ("", False)]

    async def test_of_agents_that_may_have_been_shown_the_entry_it_is_an_echo(self) -> None:
        found = await combine(saying((1, FEE)), SAID, "Smile.", shown_version=4)
        assert (found.known, found.echoes) == ((), (Echo(entry_id=FEE, evidence=("r-1",)),))

    async def test_what_groups_said_is_known_goes_up_with_what_the_combine_says(self) -> None:
        below = NodeResult(
            status="empty",
            seen=(Seen(reflection_id="r-9", offset=9),),
            known=(Known(entry_id=PAGE, evidence=("r-9",)),),
        )
        plan = Plan(batch_id="b", playbook=NAME, sequence=1, widths=(9, 1), base_version=4, reflections=9)
        child = Partial(plan=plan, node_id="n", parent_id="p", level=0, index=0, result=below)
        found = await Aggregator(ModelClient(ScriptedModel())).combine(BASE, 1, [child])
        assert (found.status, found.known) == ("empty", below.known)


def recognising(prompt: Prompt) -> Mapping[str, Any]:
    """Say of each reflection that the playbook has its lesson, where it does and that is asked; add the others."""
    reply = echo(prompt)
    if "known" not in prompt.reply_schema["properties"]:
        return reply
    said = {
        line.rpartition("] ")[2]: line[1:].partition("]")[0]
        for line in prompt.system.splitlines()
        if line.startswith("[")
    }
    known = {one["sources"][0]: said[one["content"]] for one in reply["operations"] if one["content"] in said}
    return {
        "operations": [one for one in reply["operations"] if one["sources"][0] not in known],
        "known": [{"n": n, "entry_id": entry_id} for n, entry_id in known.items()],
    }


@pytest.mark.usefixtures("quick_polls")
@pytest.mark.parametrize("prompts", ["full", "small"])
@pytest.mark.parametrize("at_the_combine", [False, True])
async def test_a_healthy_deployment_loses_nothing_of_what_it_hears_again(
    *, at_the_combine: bool, prompts: str
) -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        return echo(prompt) if at_the_combine != is_combine(prompt) else recognising(prompt)

    deployment = Deployment(batch_size=9, prompts=prompts, model=ScriptedModel(answer))
    async with deployment.running():
        for start in (0, 100):
            given = (
                reflection(start + n, key_insight=f"Lesson {'x' * (n + 1)} of kind {n % 9}.")
                for n in range(9)
            )
            await deployment.log.produce(*map(outgoing, given))
            await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1 + bool(start))  # noqa: B023
    first, second = ledger.versions(deployment.log)
    assert first.audit == Audit(new=9, said=9, verified=9)
    assert second.audit == Audit(known=9, said=9, verified=9)
    assert (second.retention_recent, second.omitted_recent) == ((1.0, 1.0), (0.0, 0.0))
    assert [entry.content for entry in second.entries] == [entry.content for entry in first.entries]
    assert {entry.evidence_count for entry in second.entries} == {2}
    assert (await audit(deployment.log)).violations == ()
