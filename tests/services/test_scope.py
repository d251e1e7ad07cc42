"""Calls that read the entries nearest to their items instead of the whole playbook."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from combee.core.methods import ace
from combee.core.playbook.versions import empty
from combee_schemas import topics
from combee_schemas.model import Prompt, request_hash
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import Entry
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import NodeResult, Partial, Update
from support import ledger
from support.deployment import Deployment
from support.ledger import lessons, outgoing, reflection
from support.models import ScriptedModel, echo, is_combine

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 9
KNOWN = 8 * COUNT
"""Entries before the batch that is looked at."""
SCOPE = 4
NAMED = re.compile(r"^\[([a-z]+-\d{5})\] ", re.MULTILINE)


async def scoped_batch(
    answer: Any = echo, insight: str = "otherwise than lesson {}", **settings: Any
) -> Deployment:
    """Learn some lessons in batches of nine, then nine others that each speak of one of them."""
    deployment = Deployment(model=ScriptedModel(), batch_size=COUNT, **{"scope": SCOPE, **settings})
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(KNOWN)))
        await deployment.until(lambda: ledger.applied(deployment.log) == KNOWN)
        deployment.model.prompts.clear()
        deployment.model.answer = answer
        known = ledger.latest(deployment.log).entries
        others = (
            reflection(
                KNOWN + n,
                key_insight=insight.format(n),
                bullet_tags=(BulletTag(id=known[n].id, tag="helpful"),),
            )
            for n in range(COUNT)
        )
        await deployment.log.produce(*map(outgoing, others))
        await deployment.until(lambda: ledger.applied(deployment.log) == KNOWN + COUNT)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


def groups(deployment: Deployment) -> list[NodeResult]:
    partials = ledger.messages(deployment.log, topics.PARTIALS[0], Partial)
    last = max(one.plan.sequence for one in partials)
    return [one.result for one in sorted(partials, key=lambda one: one.index) if one.plan.sequence == last]


def root(deployment: Deployment) -> NodeResult:
    return ledger.messages(deployment.log, topics.UPDATES, Update)[-1].result


def asked(deployment: Deployment, result: NodeResult) -> Prompt:
    """Return the prompt that a node's result rests on."""
    return next(
        prompt
        for prompt in deployment.model.prompts
        if request_hash([{"system": prompt.system, "user": prompt.user}], {}) in result.requests
    )


async def test_a_group_reads_the_nearest_entries_and_how_many_others_there_are() -> None:
    deployment = await scoped_batch()
    for result in groups(deployment):
        prompt = asked(deployment, result)
        assert NAMED.findall(prompt.user) == list(result.scope)
        assert len(result.scope) == SCOPE
        assert f"it has {KNOWN - SCOPE} others that are not shown" in prompt.user
        assert not NAMED.findall(prompt.system)
        assert f"The playbook has {KNOWN} entries" in prompt.system


async def test_every_item_has_its_nearest_entry_before_it() -> None:
    deployment = await scoped_batch(scope=8)
    by_content = {entry.content: entry.id for entry in ledger.latest(deployment.log).entries}
    for result in groups(deployment):
        prompt = asked(deployment, result)
        spoken_of = {by_content[one] for one in re.findall(r"otherwise than (lesson \d)", prompt.user)}
        assert spoken_of <= set(result.scope)


async def test_tags_are_told_of_the_entries_that_are_shown() -> None:
    deployment = await scoped_batch()
    for result in groups(deployment):
        told = re.findall(r"(\w+-\d{5}) so far", asked(deployment, result).user)
        assert set(told) <= set(result.scope)


async def test_the_calls_of_a_batch_share_what_stands_before_their_entries() -> None:
    prompts = (await scoped_batch()).model.prompts
    assert len({one.system for one in prompts}) == len({one.cache_key for one in prompts}) == 1


def updating(prompt: Prompt) -> Mapping[str, Any]:
    """Correct every entry that is shown, in groups; pass proposals on."""
    if is_combine(prompt):
        return echo(prompt)
    operations = [
        {"type": "UPDATE", "content": f"corrected {entry_id}", "entry_ids": [entry_id], "sources": [1]}
        for entry_id in prompt.entry_ids or ()
    ]
    return {"operations": operations}


async def test_a_combine_reads_every_entry_that_its_proposals_name() -> None:
    deployment = await scoped_batch(updating, scope=3)
    proposed = {
        entry_id
        for result in groups(deployment)
        for operation in result.operations
        for entry_id in operation.entry_ids
    }
    assert len(proposed) > 3
    assert set(root(deployment).scope) == proposed


async def test_a_combine_reads_what_each_of_its_proposals_may_repeat() -> None:
    deployment = await scoped_batch()
    repeated = {
        entry.id for entry in ledger.latest(deployment.log).entries if entry.content in lessons(range(COUNT))
    }
    assert len(repeated) == COUNT > SCOPE
    assert repeated <= set(root(deployment).scope)


async def test_entries_that_were_not_shown_stay_as_they_are_and_the_lesson_is_passed_on() -> None:
    def meddling(prompt: Prompt) -> Mapping[str, Any]:
        unseen = sorted({f"misc-{n:05d}" for n in range(1, KNOWN + 1)} - set(prompt.entry_ids or ()))
        meddled = [
            {"type": "REMOVE", "entry_ids": [unseen[0]], "sources": [1]},
            {"type": "MERGE", "content": "x", "entry_ids": [prompt.entry_ids[0], unseen[0]], "sources": [1]},  # type: ignore[index]
        ]
        kept = [] if is_combine(prompt) else echo(prompt)["operations"]
        return {"operations": [*kept, *meddled, {"type": "ADD", "content": "vague", "sources": [2]}]}

    deployment = await scoped_batch(meddling)
    contents = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert lessons(range(KNOWN)) <= contents
    assert len({f"otherwise than lesson {n}" for n in range(COUNT)} - contents) <= 1, (
        "but for what 'vague' is said of"
    )
    assert {one.kind.value for result in groups(deployment) for one in result.operations} == {"ADD"}
    assert any(seen.covered == "carried" for seen in root(deployment).seen)


async def test_an_addition_that_says_what_an_unseen_entry_says_repeats_it() -> None:
    def repeating(prompt: Prompt) -> Mapping[str, Any]:
        repeats = [{"type": "ADD", "content": f"Lesson {n}.", "sources": [1]} for n in range(COUNT)]
        return {"operations": [] if is_combine(prompt) else repeats}

    deployment = await scoped_batch(repeating, "Lesson {}.")
    assert len(ledger.latest(deployment.log).entries) == KNOWN


async def test_a_smaller_playbook_is_read_whole_as_without_a_scope() -> None:
    scoped, whole = await scoped_batch(scope=KNOWN), await scoped_batch(scope=0)
    prompts = [[(one.system, one.user) for one in made.model.prompts] for made in (scoped, whole)]
    assert sorted(prompts[0]) == sorted(prompts[1])
    assert {result.scope for result in (*groups(scoped), root(scoped))} == {()}


async def test_the_same_batch_is_asked_about_with_the_same_bytes() -> None:
    first, second = await scoped_batch(), await scoped_batch()
    assert [groups(first), root(first)] == [groups(second), root(second)]
    assert [one.requests for one in groups(first)] == [one.requests for one in groups(second)]


def test_a_scoped_call_reads_proposed_entries_apart() -> None:
    kept = Entry(id="calc-00001", section="calc", content="lesson one")
    pending = kept.model_copy(update={"id": "calc-00002", "state": "proposed", "support": ("r",)})
    other = kept.model_copy(update={"id": "calc-00004", "content": "nothing of it"})
    base = empty("p").model_copy(update={"entries": (kept, pending, other)})
    given = [reflection(1, key_insight="lesson one")]
    prompt = ace.aggregate_prompt(base, given, settings=PlanSettings(scope=2))
    playbook, proposed = prompt.user.split("<proposed ")
    assert (NAMED.findall(playbook), NAMED.findall(proposed)) == (["calc-00001"], ["calc-00002"])
    assert prompt.entry_ids == ("calc-00001", "calc-00002")
    assert "it has 1 others that are not shown" in playbook
