import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, PoisonError, PromptTooLongError
from combee.core.names import identity
from combee.core.names.sources import KnownSources
from combee.core.playbook.versions import empty
from combee.process.worker.provenance import Provenance
from combee.scan.handler import ScanHandler
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.digests import spread
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Group, NodeResult, Partial, Update
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment, one_batch
from support.flat import flat
from support.ledger import NAME, batch_of, dead_letters, lessons, outgoing, reflection
from support.models import Answer, ModelClient, ScriptedModel, echo, is_combine, is_control, items
from support.planned import PlanningDeployment

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 9
NUMBERS = range(COUNT)


def texts(prompt: Prompt) -> set[str]:
    return {str(item.get("key_insight") or item.get("content")) for item in items(prompt)}


def failing(when: Any, error: Exception, otherwise: Answer = echo) -> Answer:
    """Answer with ``otherwise``, but fail where ``when`` says so of the prompt."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if when(prompt):
            raise error
        return otherwise(prompt)

    return answer


def update(deployment: Deployment) -> Update:
    (found,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    return found


def version(deployment: Deployment) -> Playbook:
    return ledger.latest(deployment.log)


def learned(deployment: Deployment) -> set[str]:
    return {entry.content for entry in version(deployment).entries}


# ---- nodes that fail


async def test_a_leaf_that_fails_for_good_still_completes_the_tree_and_other_copies_live_on() -> None:
    failed: list[Prompt] = []

    def first_leaf(prompt: Prompt) -> bool:
        if not failed and not is_combine(prompt):
            failed.append(prompt)
        return prompt in failed

    deployment = await one_batch(failing(first_leaf, PoisonError("no use")))
    statuses = sorted(one.result.status for one in ledger.messages(deployment.log, topics.SCAN[1], Partial))
    assert statuses == ["empty", "ok", "ok"]
    assert learned(deployment) == lessons(NUMBERS)
    assert not batch_of(version(deployment)).degraded
    assert dead_letters(deployment.log) == []


async def test_reflections_of_which_no_copy_survives_are_dead_lettered_with_their_bytes() -> None:
    deployment = await one_batch(
        failing(
            lambda prompt: "lesson 3" in texts(prompt) or is_control(prompt),
            PoisonError("I do not like lesson 3"),
        )
    )
    lost = [seen for seen in update(deployment).result.seen if not seen.ok]
    assert "r-3" in {seen.reflection_id for seen in lost}
    letters = {letter.record_id: letter for letter in dead_letters(deployment.log)}
    assert set(letters) == {seen.reflection_id for seen in lost}
    for one in letters.values():
        number = int(one.record_id.removeprefix("r-"))
        assert one.value == encode(reflection(number))
        assert (one.origin_topic, one.origin_offset, one.playbook) == ("reflections", number, NAME)
    assert learned(deployment) == lessons(NUMBERS) - {f"lesson {one[2:]}" for one in letters}
    assert batch_of(version(deployment)).degraded


@pytest.mark.parametrize("trust", ["team", "public"])
async def test_a_source_that_makes_every_reply_unusable_costs_no_lesson(trust: str) -> None:
    def about(prompt: Prompt) -> bool:
        return not texts(prompt).isdisjoint({"lesson 0", "lesson 1", "lesson 2"})

    for answer in (
        failing(about, PoisonError("the prompt was flagged")),
        lambda prompt: {"operations": ["none"]} if about(prompt) else echo(prompt),
    ):
        # Each group has a copy of one of them, and so has the question about what is left.
        proven = Provenance(KnownSources(prefix_owner="shop"))
        deployment = await one_batch(answer, trust=trust, provenance=proven)
        assert learned(deployment) == lessons(NUMBERS)
        assert dead_letters(deployment.log) == []


async def test_a_batch_of_which_nothing_survives_still_gets_its_version() -> None:
    deployment = await one_batch(failing(lambda _: True, PoisonError("down to the last")))
    assert batch_of(version(deployment)).degraded
    assert version(deployment).entries == ()
    assert {letter.record_id for letter in dead_letters(deployment.log)} == {f"r-{n}" for n in NUMBERS}


async def test_a_combine_that_fails_for_good_merges_its_children_by_code() -> None:
    deployment = await one_batch(failing(is_combine, PoisonError("cannot combine")))
    assert update(deployment).result.status == "merged"
    assert batch_of(version(deployment)).degraded
    assert learned(deployment) == lessons(NUMBERS)
    assert {e.evidence for e in version(deployment).entries} == {(f"r-{n}",) for n in NUMBERS}


async def test_a_combine_that_fails_in_the_middle_of_a_tree_loses_nothing() -> None:
    levels: list[Prompt] = []

    def lowest_combine(prompt: Prompt) -> bool:
        if is_combine(prompt) and len(levels) < 2:
            levels.append(prompt)
        return prompt in levels

    deployment = await one_batch(failing(lowest_combine, PoisonError("no")), 25, fan_in=2)
    assert learned(deployment) == lessons(range(25))


# ---- prompts that are too long


@pytest.mark.parametrize("longest", [1, 2, 4])
async def test_a_prompt_too_long_is_split_and_merged_by_code(longest: int) -> None:
    too_long = failing(lambda prompt: len(items(prompt)) > longest, PromptTooLongError("too long"))
    deployment = await one_batch(too_long)
    assert learned(deployment) == lessons(NUMBERS)
    assert {e.evidence for e in version(deployment).entries} == {(f"r-{n}",) for n in NUMBERS}
    assert dead_letters(deployment.log) == []


async def test_one_item_that_is_too_long_alone_hurts_only_itself() -> None:
    deployment = await one_batch(
        failing(lambda prompt: "lesson 3" in texts(prompt), PromptTooLongError("too long"))
    )
    assert learned(deployment) == lessons(NUMBERS) - {"lesson 3"}


def window(characters: int, answer: Answer = echo) -> Answer:
    """Answer only prompts up to this length, as a model with a small window."""

    def too_long(prompt: Prompt) -> bool:
        return len(prompt.system) + len(prompt.user) > characters

    return failing(too_long, PromptTooLongError("too long"), answer)


def insight(prompt: Prompt) -> Mapping[str, Any]:
    """Keep of everything its first words."""
    kept = echo(prompt)
    for operation in kept["operations"]:
        operation["content"] = operation["content"][:10].strip()
    return kept


async def test_a_reflection_longer_than_the_models_window_is_cut_and_learned() -> None:
    long = {n: reflection(n, reasoning="x y z " * 5_000) for n in range(3)}
    deployment = Deployment(model=ScriptedModel(window(8_000, insight)), batch_size=3)
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, long.values()))
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
    assert learned(deployment) == lessons(long)
    assert dead_letters(deployment.log) == []


async def test_a_playbook_longer_than_the_models_window_is_shown_in_part_and_still_learns() -> None:
    entries = tuple(Entry(id=f"e-{n}", section="OTHERS", content=f"{n} " + "word " * 40) for n in range(100))
    full = empty(NAME).model_copy(update={"version": 1, "entries": entries})
    deployment = Deployment(model=ScriptedModel(window(8_000)), batch_size=2, budget_tokens=10**6)
    await deployment.log.produce(
        *(Outgoing(topic=topic, key=NAME.encode(), value=encode(full)) for topic in ("history", "playbooks"))
    )
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(2)))
        await deployment.until(lambda: ledger.latest(deployment.log).version == 2)
    assert learned(deployment) == lessons(range(2)) | {entry.content for entry in entries}
    assert dead_letters(deployment.log) == []


async def test_a_window_that_holds_nothing_ends_every_node_and_its_worker_goes_on() -> None:
    deployment = await one_batch(window(10))
    assert len(dead_letters(deployment.log)) == COUNT
    assert (version(deployment).batch_sequence, batch_of(version(deployment)).degraded) == (1, True)


# ---- nodes without a call


async def test_nothing_to_say_costs_no_combine_call_and_still_makes_a_version() -> None:
    deployment = await one_batch(lambda _: {"operations": []}, carry=False, trust="lab")
    assert (deployment.model.calls, version(deployment).usage.skips) == (3, 1)
    assert update(deployment).result.status == "empty"
    assert (version(deployment).version, batch_of(version(deployment)).degraded) == (1, False)


async def test_a_single_proposal_is_passed_on_without_a_call() -> None:
    calls: list[Prompt] = []

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        calls.append(prompt)
        return echo(prompt) if len(calls) == 1 else {"operations": []}

    deployment = await one_batch(answer, carry=False, trust="lab")
    assert (len(calls), version(deployment).usage.skips) == (3, 1)
    assert update(deployment).result.status == "passed"
    assert learned(deployment) == texts(calls[0])


# ---- what the log may bring


async def again(deployment: Deployment, topic: topics.AnyTopic) -> None:
    """Write every record of a topic a second time."""
    await deployment.log.produce(
        *(
            Outgoing(topic=topic.name, key=r.key, value=r.value, partition=r.partition)
            for r in ledger.records(deployment.log, topic)
        )
    )


@pytest.mark.parametrize("topic", [topics.SCAN[0], topics.SCAN[1]], ids=lambda topic: topic.name)
async def test_records_that_come_twice_cost_no_call_and_change_nothing(topic: topics.AnyTopic) -> None:
    deployment = await one_batch(echo)
    before, calls = version(deployment), deployment.model.calls
    deployment.clock.advance(3600)  # so that results are older than what comes, and not read back
    async with deployment.running():
        await again(deployment, topic)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert (version(deployment), deployment.model.calls) == (before, calls)


async def test_groups_that_come_twice_while_they_are_with_the_model_are_asked_once() -> None:
    deployment = Deployment(batch_size=COUNT)
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in NUMBERS))
        await deployment.until(lambda: deployment.model.calls == 3)
        await again(deployment, topics.SCAN[0])
        await again(deployment, topics.SCAN[0])
        deployment.model.gate.set()
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert deployment.model.calls == 4
    assert len(ledger.messages(deployment.log, topics.UPDATES, Update)) == 1


GHOST = "ghost"
"""A playbook that has nothing but what a test forges."""


def partial(**changes: object) -> Partial:
    """Return a child (0 of 2) of a root, with something wrong."""
    batch = identity.batch_id(GHOST, 1)
    plan = {
        "batch_id": batch,
        "playbook": GHOST,
        "sequence": 1,
        "widths": (2, 1),
        "base_version": 0,
        "reflections": 4,
    }
    good = {
        "plan": plan,
        "node_id": identity.node_id(batch, 0, 0),
        "parent_id": identity.node_id(batch, 1, 0),
        "level": 0,
        "index": 0,
        "status": "ok",
    }
    return flat(Partial, **{**good, **changes})


def child_saying(content: str, index: int) -> Outgoing:
    """Return the record of one of the two children of the ghost's root."""
    operation = {"kind": "ADD", "section": "OTHERS", "content": content, "evidence": ("r",)}
    node_id = identity.node_id(partial().plan.batch_id, 0, index)
    child = partial(node_id=node_id, index=index, operations=(operation,))
    return Outgoing(topic="scan.1", value=encode(child), partition=spread(child.parent_id, 3))


async def test_of_two_results_of_one_node_the_first_in_the_log_counts() -> None:
    deployment = PlanningDeployment()
    async with deployment.running(["scan"]):
        sent = [child_saying("first", 0), child_saying("second", 0), child_saying("other", 1)]
        await deployment.log.produce(*sent)
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.UPDATES, Update)))
    assert [one.content for one in update(deployment).result.operations] == ["first", "other"]


FOREIGN = {
    "parent": partial(parent_id="n-somebody-else"),
    "level": partial(level=1),
    "index": partial(index=2),
    "negative index": partial(index=-1),
    "shallow tree": partial(plan={**partial().plan.model_dump(), "widths": (1,)}),
    "no tree": partial(plan={**partial().plan.model_dump(), "widths": ()}),
    "zero width": partial(plan={**partial().plan.model_dump(), "widths": (0, 1)}),
    "parent level of width 0": partial(plan={**partial().plan.model_dump(), "widths": (2, 0)}),
    "negative width": partial(plan={**partial().plan.model_dump(), "widths": (2, -1)}),
    "huge width": partial(plan={**partial().plan.model_dump(), "widths": (2**40, 1)}),
    "levels that do not shrink": partial(plan={**partial().plan.model_dump(), "widths": (3, 2, 2, 1)}),
    "many levels": partial(plan={**partial().plan.model_dump(), "widths": (6, 5, 4, 3, 2, 1)}),
}


@pytest.mark.parametrize("child", FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_child_that_does_not_belong_is_dead_lettered_and_its_neighbours_go_on(child: Partial) -> None:
    deployment = Deployment(batch_size=COUNT)
    partition = spread(child.parent_id, 3)
    sent = Outgoing(topic="scan.1", key=b"k", value=encode(child), partition=partition)
    await deployment.log.produce(sent)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in NUMBERS))
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (letter,) = dead_letters(deployment.log)
    assert letter.value == sent.value
    assert learned(deployment) == lessons(NUMBERS)


async def test_a_child_on_the_wrong_partition_is_dead_lettered() -> None:
    deployment = Deployment()
    child = partial()
    wrong = (spread(child.parent_id, 3) + 1) % 3
    async with deployment.running(["scan"]):
        await deployment.log.produce(Outgoing(topic="scan.1", value=encode(child), partition=wrong))
        await deployment.until(lambda: bool(dead_letters(deployment.log)))
    assert "siblings" in dead_letters(deployment.log)[0].reason


@pytest.mark.parametrize("widths", [(), (0,), (-1, 1), (2,), (6, 5, 4, 3, 2, 1)], ids=str)
async def test_a_group_of_an_impossible_tree_is_dead_lettered(widths: tuple[int, ...]) -> None:
    plan = {**partial().plan.model_dump(), "widths": widths}
    node_id = identity.node_id(partial().plan.batch_id, 0, 0)
    group = flat(Group, plan=plan, node_id=node_id, index=0, members=())
    deployment = Deployment()
    async with deployment.running(["scan"]):
        await deployment.log.produce(Outgoing(topic="scan.0", value=encode(group), partition=0))
        await deployment.until(lambda: bool(dead_letters(deployment.log)))
    assert deployment.model.calls == 0


async def test_a_node_waits_for_its_version_to_reach_the_view_and_looks_nothing_up() -> None:
    log, clock = MemoryLog(ManualClock()), ManualClock()
    handler = ScanHandler(log, ModelClient(ScriptedModel()), clock)
    child = partial()
    child = child.model_copy(update={"plan": child.plan.model_copy(update={"base_version": 2})})
    base = asyncio.create_task(handler._base(child.plan))
    view = asyncio.create_task(handler.playbooks.view.run())
    for number in (1, 2):
        await asyncio.sleep(0)
        version = Playbook(name=GHOST, version=number, history_offset=number)
        await log.produce(topics.PLAYBOOKS.record(version))
    async with asyncio.timeout(5):
        assert await base == version
    view.cancel()


async def test_children_whose_batch_was_closed_without_them_are_let_go() -> None:
    deployment = PlanningDeployment()
    child = partial()
    partition = spread(child.parent_id, 3)
    root = identity.node_id(child.plan.batch_id, 1, 0)
    closed = Update(plan=child.plan, node_id=root, result=NodeResult(status="failed"))
    async with deployment.running(["scan", "publish"]):
        for value in (encode(child), b"the child before this one has been taken in"):
            await deployment.log.produce(Outgoing(topic="scan.1", value=value, partition=partition))
        await deployment.until(lambda: bool(dead_letters(deployment.log)))
        assert ledger.behind(deployment.log)["scan", "scan.1", partition][0] == 0
        await deployment.log.produce(outgoing(closed))
        await deployment.until(lambda: bool(ledger.versions(deployment.log, GHOST)))
        await deployment.until(lambda: not ledger.behind(deployment.log), timeout_s=3)


# ---- prompts


async def test_a_model_that_is_away_is_asked_again_and_costs_no_reflection() -> None:
    deployment = Deployment(batch_size=3)
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(3)))
        await deployment.until(lambda: deployment.model.calls == 1)
    deployment.model.gate.set()
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 3)
    assert learned(deployment) == lessons(range(3))
