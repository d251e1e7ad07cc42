import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from combee.adapters.ports import Outgoing, TopicPartition
from combee.cli.learn.learning import Learning
from combee.core.formats.intake import Sample, read_line
from combee.core.gate.policy import GatePolicy
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.versions import empty
from combee.sdk.view import PlaybookView
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag, Reflection, Tag
from combee_schemas.topics import AnyTopic
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, lessons, outgoing, reflection
from support.models import ModelClient, ScriptedModel, echo

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCHED = (topics.BATCHES, *topics.SCAN, topics.UPDATES, topics.HISTORY, topics.PLAYBOOKS)


async def publish(deployment: Deployment, *messages: Reflection | Command) -> None:
    await deployment.log.produce(*map(outgoing, messages))


async def settle(deployment: Deployment, count: int, name: str = NAME) -> None:
    await deployment.until(lambda: ledger.applied(deployment.log, name) == count)
    await deployment.until(lambda: not ledger.behind(deployment.log))


def learned(deployment: Deployment, name: str = NAME) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log, name).entries}


async def test_every_reflection_ends_in_exactly_one_version_of_its_playbook() -> None:
    published = {name: [reflection(n, name) for n in range(20)] for name in (NAME, "a", "b/c")}
    async with Deployment(batch_size=10).running() as running:
        await publish(running, *(one for some in published.values() for one in some))
        for name in published:
            await settle(running, 20, name)
    ledger.check(running.log, published)
    assert all(learned(running, name) == lessons(range(20)) for name in published)


async def test_a_trace_becomes_a_lesson_in_the_playbook() -> None:
    async with Deployment(batch_size=1).running() as running:
        trace = Trace(trace_id="t", playbook=NAME, task="a task", answer="forty-two")
        await running.log.produce(Outgoing(topic="traces", key=b"t", value=encode(trace)))
        await settle(running, 1)
    assert learned(running) == {"learned: forty-two"}


async def test_a_tree_of_three_levels_keeps_every_lesson() -> None:
    published = [reflection(n) for n in range(30)]
    async with Deployment(batch_size=30, fan_in=2).running() as running:
        await publish(running, *published)
        await settle(running, 30)
    ledger.check(running.log, {NAME: published})
    (batch,) = ledger.batches(running.log)
    assert batch.plan.widths == (5, 3, 2, 1)
    assert running.model.calls == ledger.planned_calls(running.log) == 9
    assert ledger.latest(running.log).usage.calls == 9
    assert learned(running) == lessons(range(30))


async def test_a_reflection_published_three_times_counts_once_and_the_manifest_lists_the_repeats() -> None:
    published = [reflection(n) for n in range(10)]
    async with Deployment(batch_size=10).running() as running:
        await publish(running, *published[:9], *published[:9], *published[:9], published[9])
        await settle(running, 10)
    ledger.check(running.log, {NAME: published})
    (batch,) = ledger.batches(running.log)
    assert sorted(member.reflection_id for member in batch.dropped) == sorted(
        one.reflection_id for one in published[:9] * 2
    )
    assert all(entry.evidence_count == 1 for entry in ledger.latest(running.log).entries)


OLD = Entry(id="misc-00001", section="OTHERS", content="an old lesson", helpful=1)


def tagged(n: int, *tags: Tag, **fields: Any) -> Reflection:
    return reflection(n, bullet_tags=tuple(BulletTag(id=OLD.id, tag=tag) for tag in tags), **fields)


async def after_tags(*reflections: Reflection, **settings: Any) -> Playbook:
    """Return the version that follows when reflections speak of a playbook of one old entry."""
    async with Deployment(batch_size=len(reflections), **settings).running() as running:
        await publish(running, Command(command_id="i", playbook=NAME, kind="import", entries=(OLD,)))
        await running.until(lambda: len(ledger.versions(running.log)) == 1)
        await publish(running, *reflections, *reflections)
        await settle(running, len(reflections))
    return ledger.latest(running.log)


async def test_a_tag_counts_once_however_many_copies_of_its_reflection_there_are() -> None:
    tags: list[tuple[Tag, ...]] = [("helpful",) * 2, ("harmful",), ("neutral",), ("helpful",), ("helpful",)]
    after = await after_tags(*(tagged(n, *some, shown=Shown(version=1)) for n, some in enumerate(tags)))
    (kept,) = [one for one in after.entries if one.id == OLD.id]
    assert (kept.helpful, kept.harmful) == (4, 1)


async def test_tags_without_what_was_shown_swing_no_counter_and_evict_nobody() -> None:
    budget = entry_tokens(OLD) + 20  # of the forty lessons most must go, or the honest entry
    after = await after_tags(*(tagged(n, "harmful") for n in range(40)), budget_tokens=budget)
    assert OLD in [
        one.model_copy(update={"created_version": 0, "updated_version": 0}) for one in after.entries
    ]
    assert "evict" in [one.kind for one in after.changes]


async def test_the_tags_of_a_reflection_that_reflect_made_of_a_trace_count() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        match prompt.reply_name:
            case "answer":
                return {"final_answer": "42"}
            case "reflection":
                return {**echo(prompt), "bullet_tags": [{"id": OLD.id, "tag": "helpful"}]}
        return echo(prompt)

    async with Deployment(batch_size=2, model=ScriptedModel(answer)).running() as running:
        await publish(running, Command(command_id="i", playbook=NAME, kind="import", entries=(OLD,)))
        await running.until(lambda: len(ledger.versions(running.log)) == 1)
        newest = ledger.latest(running.log)
        learning = Learning(running.log, ModelClient(running.model), running.clock, concurrency=1)
        await learning._answer(Sample(trace_id="s", playbook=NAME, question="?", target="42"), newest)
        shown = PlaybookView(name=NAME, snapshot=newest).shown()  # what the SDK puts into the trace of a run
        trace = Trace(trace_id="t", playbook=NAME, task="a task", answer="forty-two", shown=shown)
        await running.log.produce(Outgoing(topic="traces", key=b"t", value=encode(trace)))
        await settle(running, 2)
    assert next(one.helpful for one in ledger.latest(running.log).entries if one.id == OLD.id) == 3


async def test_where_a_gate_is_on_a_sample_is_answered_with_what_agents_read() -> None:
    model = ScriptedModel(lambda p: {"final_answer": "42"} if p.reply_name == "answer" else echo(p))
    gates = GatePolicy(judges=("approve",))
    async with Deployment(batch_size=1, model=model, gates=gates).running() as running:
        await publish(running, Command(command_id="i", playbook=NAME, kind="import", entries=(OLD,)))
        await running.until(lambda: len(ledger.versions(running.log)) == 1)
        learning = Learning(running.log, ModelClient(running.model), running.clock, concurrency=1)
        await learning.run([Sample(trace_id="s", playbook=NAME, question="?", target="42")], NAME, stall_s=10)
    (answered,) = (prompt for prompt in model.prompts if prompt.reply_name == "answer")
    assert OLD.content not in answered.system


async def test_a_formula_sample_is_answered_and_reflected_on_without_its_formula() -> None:
    row = {
        "context": "Use formula Quick Ratio to answer the question. Formula: Quick Ratio = a / b, Explanation: none."
        ' Question: "What is 42 of ten?". Answer:',
        "target": "42.0",
    }
    sample = read_line(json.dumps(row), NAME)
    assert isinstance(sample, Sample)
    model = ScriptedModel(lambda p: {"final_answer": "42%"} if p.reply_name == "answer" else echo(p))
    async with Deployment(batch_size=1, model=model).running() as running:
        learning = Learning(running.log, ModelClient(running.model), running.clock, concurrency=1)
        await learning._answer(sample, empty(NAME))
        await settle(running, 1)
    asked = model.prompts[:2]
    assert [prompt.reply_name for prompt in asked] == ["answer", "reflection"]
    for prompt in asked:
        assert "What is 42 of ten? Your answer should be a plain floating point number" in prompt.user
        assert not [text for text in ("Quick", "Explanation", "a / b") if text in prompt.system + prompt.user]
    assert "The answer is wrong" in asked[1].user


class SlowModel(ScriptedModel):
    """Answers after a number of turns that differs from call to call."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = Random(seed)

    async def reply(self, prompt: Prompt) -> Reply:
        for _ in range(self._rng.randrange(30)):
            await asyncio.sleep(0)
        return await super().reply(prompt)


def contents(deployment: Deployment, topic: AnyTopic) -> list[tuple[int, bytes | None]]:
    return sorted(
        (r.partition, r.value) for r in ledger.records(deployment.log, topic) if r.value is not None
    )


async def test_the_same_input_gives_byte_identical_plans_and_playbooks_whatever_the_model_takes() -> None:
    async def run(seed: int) -> Deployment:
        deployment = Deployment(model=SlowModel(seed), batch_size=9, fan_in=2)
        await publish(deployment, *(reflection(n) for n in range(27)))
        async with deployment.running():
            await settle(deployment, 27)
        return deployment

    first, second = await run(1), await run(2)
    for topic in BATCHED:
        assert contents(first, topic) == contents(second, topic), topic.name
    assert len(contents(first, topics.BATCHES)) == 3


async def reset(deployment: Deployment, group: str, *inputs: AnyTopic) -> None:
    """Set a group's committed offsets back to 0, as an operator's slip does."""

    async def ignore(_: frozenset[TopicPartition]) -> None:
        return

    consumer = await deployment.log.consumer(group, [topic.name for topic in inputs], ignore)
    await consumer.poll(0)
    await consumer.commit(dict.fromkeys(await consumer.positions(), 0))
    await consumer.close()


async def test_group_offsets_set_back_to_zero_cost_no_call_and_change_no_byte() -> None:
    deployment = Deployment(batch_size=9, fan_in=2)
    commands = [
        Command(
            command_id="e", playbook=NAME, kind="import", entries=(Entry(id="x-1", section="S", content="c"),)
        ),
        Command(command_id="p", playbook=NAME, kind="promote", label="production", version=1),
    ]
    async with deployment.running():
        await publish(deployment, *commands)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        await publish(deployment, *(reflection(n) for n in range(18)))
        await settle(deployment, 18)
    calls = deployment.model.calls
    before = {topic.name: contents(deployment, topic) for topic in topics.TOPICS}
    await reset(deployment, "reflect", topics.TRACES)
    await reset(deployment, "shuffle", topics.REFLECTIONS, topics.COMMANDS)
    await reset(deployment, "scan", *topics.SCAN)
    await reset(deployment, "publish", topics.UPDATES, topics.COMMANDS)
    async with deployment.running():
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert deployment.model.calls == calls
    assert {topic.name: contents(deployment, topic) for topic in topics.TOPICS} == before


async def test_after_offsets_were_set_back_the_next_manifest_lists_no_old_reflection_as_a_repeat() -> None:
    deployment = Deployment(batch_size=10)
    async with deployment.running():
        await publish(deployment, *(reflection(n) for n in range(20)))
        await settle(deployment, 20)
    await reset(deployment, "shuffle", topics.REFLECTIONS, topics.COMMANDS)
    async with deployment.running():
        await publish(deployment, *(reflection(n) for n in range(20, 30)))
        await settle(deployment, 30)
    assert ledger.batches(deployment.log)[-1].dropped == ()
