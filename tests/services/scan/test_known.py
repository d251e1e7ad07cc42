"""What the model says is known already: confirmed at the root, counted once, and in the version."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from combee.core.methods.checking import MAX_QUOTE_WORDS
from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee.scan.aggregate import Aggregator
from combee_schemas.base import Shown
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import ACE_SECTIONS, Audit, Entry
from combee_schemas.scan import Echo, Known, NodeResult, Operation, OperationKind, Partial, Seen
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ModelClient, ScriptedModel, echo, is_combine, items
from support.scanned import contents, covered, learned, reflections

FEE, PAGE, MORE = "misc-00001", "misc-00002", "misc-00009"
SAID = "Subtract a restocking fee of 15 % for opened parcels."
OTHER = "Smile at every customer who comes in."
BASE = empty(NAME).model_copy(
    update={
        "version": 4,
        "entries": (
            Entry(id=FEE, section=ACE_SECTIONS[6], content="Opened parcels cost a restocking fee of 15 %."),
            Entry(id=PAGE, section=ACE_SECTIONS[6], content="Page through all songs before counting them."),
            Entry(id=MORE, section=ACE_SECTIONS[6], content=f"{SAID} Skip the screening.", state="proposed"),
        ),
    }
)
FEES = BASE.entries[0].content


def saying(
    known: Mapping[str, str],
    *,
    dropped: Collection[str] = (),
    rightly: bool = True,
    at_the_combine: bool = False,
) -> ScriptedModel:
    """Return a model that claims these texts known or drops them; the check confirms that the fee's entry says it."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        numbers = {
            item.get("content") or item.get("key_insight") or item["n"]: item["n"] for item in items(prompt)
        }
        if prompt.reply_name == "check":
            lessons = {item["lesson"]: item["n"] for item in items(prompt) if "lesson" in item}
            said = {item["statement"]: item["n"] for item in items(prompt) if "statement" in item}
            quote = " ".join(FEES.split()[:MAX_QUOTE_WORDS])
            right = {"lesson": lessons[SAID], "statement": said[FEES], "quote": quote} if rightly else {}
            return {"covered": [right], "lost": []}
        if at_the_combine and not is_combine(prompt):
            return echo(prompt)
        return {
            "operations": [],
            "dropped": [n for text, n in numbers.items() if text in dropped],
            "known": [{"n": n, "entry_id": known[text]} for text, n in numbers.items() if text in known],
        }

    model = ScriptedModel(answer)
    model.answers_checks = False
    return model


@pytest.mark.parametrize("at_the_combine", [False, True])
async def test_what_an_entry_says_in_other_words_is_evidence_for_it_and_no_operation(
    *, at_the_combine: bool
) -> None:
    model = saying({SAID: FEE}, at_the_combine=at_the_combine)
    groups = 2 if at_the_combine else 1
    others = sorted(f"{OTHER} Nod {n} times." for n in range(3))
    found = await learned(model, reflections(SAID, *others), BASE, groups=groups)
    assert claims(found) == [(FEE, ("r-0",))]
    assert contents(found) == others
    assert [covered(found)[f"r-{n}"] for n in range(4)] == ["check", "carried", "carried", "carried"]
    assert {one.reflection_id for one in found.seen if one.said} == {"r-0"}


async def test_of_agents_that_were_shown_the_entry_it_is_an_echo() -> None:
    given = reflections(SAID, shown=Shown(version=4, entry_ids=(FEE,)))
    base = BASE.model_copy(update={"name": given[0].playbook})
    found = await learned(saying({SAID: FEE}), given, base, groups=1)
    assert (found.known, found.echoes) == ((), (Echo(entry_id=FEE, evidence=("r-0",)),))
    assert contents(found) == []


@pytest.mark.parametrize("groups", [1, 2])
async def test_of_agents_that_read_another_line_an_id_alone_is_no_echo(groups: int) -> None:
    given = reflections(SAID, SAID, shown=Shown(version=4, entry_ids=(FEE,), line="p@short"))
    base = BASE.model_copy(update={"name": given[0].playbook})
    found = await learned(saying({SAID: FEE}), given, base, groups=groups)
    assert (claims(found), found.echoes) == ([(FEE, ("r-0", "r-1"))], ())


@pytest.mark.parametrize("entry_id", [PAGE, MORE, "calc-99999"])
async def test_a_claim_that_the_check_does_not_confirm_counts_as_not_said(entry_id: str) -> None:
    found = await learned(saying({SAID: entry_id}, rightly=False), reflections(SAID), BASE, groups=1)
    assert (found.known, found.echoes, contents(found)) == ((), (), [SAID])


@pytest.mark.parametrize(("known", "dropped"), [({FEES: PAGE}, []), ({}, [FEES]), ({}, [])])
async def test_who_says_an_entry_word_for_word_needs_no_models_word(
    known: Mapping[str, str], dropped: list[str]
) -> None:
    found = await learned(saying(known, dropped=dropped), reflections(FEES), BASE, groups=1)
    assert (claims(found), contents(found)) == ([(FEE, ("r-0",))], [])
    assert not found.seen[0].dropped


def node(index: int, **result: Any) -> Partial:
    plan = Plan(batch_id="b", playbook=NAME, sequence=1, widths=(9, 1), base_version=4, reflections=9)
    own = {"node_id": f"n{index}", "parent_id": "p", "level": 0, "index": index}
    return Partial(plan=plan, **own, result=NodeResult(**result))


async def test_what_a_combine_drops_by_name_is_told_from_what_it_forgets() -> None:
    children = [
        node(
            n,
            status="ok",
            operations=(Operation(kind=OperationKind.ADD, content=text, evidence=(f"r-{n}",)),),
            seen=(Seen(reflection_id=f"r-{n}", offset=n),),
        )
        for n, text in enumerate(("Be nice.", OTHER))
    ]
    model = ModelClient(saying({}, dropped=["Be nice."]))
    found = await Aggregator(model, settings=PlanSettings(carry=False)).combine(BASE, 1, children)
    assert [one.dropped for one in found.seen] == [True, False]


async def test_what_groups_said_is_known_goes_up_with_what_the_combine_says() -> None:
    known = (Known(entry_id=PAGE, evidence=("r-9",)),)
    child = node(0, status="empty", seen=(Seen(reflection_id="r-9", offset=9),), known=known)
    found = await Aggregator(ModelClient(ScriptedModel())).combine(BASE, 1, [child])
    assert (found.status, found.known) == ("empty", known)


def claims(found: NodeResult) -> list[tuple[str, tuple[str, ...]]]:
    """Return the entries that reflections are evidence of, with them."""
    return [(claim.entry_id, claim.evidence) for claim in found.known]


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
