"""The root's check in services: killed within it, replayed, with erased reflections, and in the smallest batches."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import LanguageModel, Record, TopicPartition, TransientError
from combee.log.inspection.audit import audit
from combee.scan.recorded import RecordedAnswers, RecordedModel
from combee_schemas import topics
from combee_schemas.model import Prompt, Reply
from combee_schemas.scan import Update
from support import branches, ledger
from support.deployment import Deployment, one_batch
from support.ledger import NAME, batch_of, lessons, outgoing, reflection
from support.models import ModelClient, ScriptedModel, echo, is_combine, items, request_of

pytestmark = pytest.mark.usefixtures("quick_polls")
COUNT = 9
ALL = lessons(range(COUNT))


def said(lesson: str) -> str:
    return f"Please note {lesson} of today"


def rewording(prompt: Prompt) -> Mapping[str, Any]:
    """Propose lessons in other words, which only the check recognises; one of them only when asked about alone."""
    whole = dict(echo(prompt))
    if is_combine(prompt):
        return whole
    alone = len(items(prompt)) == 1
    operations = [
        {**one, "content": said(one["content"])}
        for one in whole["operations"]
        if alone or one["content"] != "lesson 0"
    ]
    return {**whole, "operations": operations}


def is_check(prompt: Prompt) -> bool:
    return prompt.reply_name == "check"


def is_again(prompt: Prompt) -> bool:
    return [item.get("key_insight") for item in items(prompt)] == ["lesson 0"]


def updates(deployment: Deployment) -> list[Update]:
    return ledger.messages(deployment.log, topics.UPDATES, Update)


def contents(deployment: Deployment) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log).entries}


class HeldModel(ScriptedModel):
    """Never answers the first prompt of a kind."""

    def __init__(self, holds: Callable[[Prompt], bool]) -> None:
        super().__init__(rewording)
        self._holds = holds
        self.is_holding = False

    async def reply(self, prompt: Prompt) -> Reply:
        if not self.is_holding and self._holds(prompt):
            self.is_holding = True
            self.prompts.append(prompt)
            await asyncio.Event().wait()
        return await super().reply(prompt)


LEARNED = {said(lesson) for lesson in ALL - {"lesson 0"}} | {"lesson 0"}


@pytest.mark.parametrize(
    ("holds", "repeated"), [(is_check, ["combine", "check"]), (is_again, ["combine", "check", "again"])]
)
async def test_killed_within_its_check_a_root_makes_one_update_with_each_lesson_once(
    holds: Callable[[Prompt], bool], repeated: list[str]
) -> None:
    model = HeldModel(holds)
    deployment = Deployment(batch_size=COUNT, model=model, trust="lab")
    published = [reflection(n) for n in range(COUNT)]
    await deployment.log.produce(*map(outgoing, published))
    async with deployment.running(["shuffle", "publish"]):
        async with deployment.running(["scan"]):
            await deployment.until(lambda: model.is_holding)
        assert updates(deployment) == []
        async with deployment.running(["scan"]):
            await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
            await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: published})
    assert len(updates(deployment)) == 1
    assert contents(deployment) == LEARNED
    entries = ledger.latest(deployment.log).entries
    assert sorted(one for entry in entries for one in entry.evidence) == [f"r-{n}" for n in range(COUNT)]
    version = ledger.latest(deployment.log)
    assert version.usage.checks == len(["check", "again"])
    assert version.usage.calls == sum(batch_of(version).plan.widths) + version.usage.checks
    assert model.calls == version.usage.calls + len(repeated), (
        "what was under way is paid for again, uncounted"
    )
    assert (await audit(deployment.log)).good


class RecordingDeployment(Deployment):
    """Its scan records answers in a log, and asks no question that is recorded there."""

    def __init__(self, answers: MemoryLog | None = None) -> None:
        super().__init__(batch_size=COUNT, model=ScriptedModel(rewording), trust="lab")
        self.known = RecordedAnswers(answers) if answers else None

    def _model(self, role: str) -> LanguageModel:  # noqa: ARG002 - only scan asks here
        return RecordedModel(ModelClient(self.model), request_of, self.log, self.clock, known=self.known)


async def test_a_replay_with_recorded_answers_pays_for_no_check_again() -> None:
    first = RecordingDeployment()
    second = RecordingDeployment(first.log)
    for deployment in (first, second):
        async with deployment.running(["shuffle", "scan", "publish"]):
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
            await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)  # noqa: B023
    used = ledger.latest(second.log).usage
    assert any(map(is_check, first.model.prompts))
    assert any(map(is_again, first.model.prompts))
    assert (second.model.calls, used.reused, used.checks) == (0, used.calls, 2)
    assert ledger.latest(second.log).entries == ledger.latest(first.log).entries
    assert contents(second) == LEARNED


async def test_what_is_erased_after_its_group_s_call_is_not_learned_and_the_batch_is_complete() -> None:
    deployment = Deployment(batch_size=COUNT)

    def erasing(prompt: Prompt) -> Mapping[str, Any]:
        if is_combine(prompt):
            partition = next(one.partition for one in ledger.records(deployment.log, topics.REFLECTIONS))
            deployment.log.expire(TopicPartition(topic=topics.REFLECTIONS.name, partition=partition), 2)
        return echo(prompt)

    deployment.model.answer = erasing
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert contents(deployment) == lessons(range(2, COUNT))
    (update,) = updates(deployment)
    assert {seen.reflection_id for seen in update.result.seen if not seen.covered} == {"r-0", "r-1"}
    assert update.result.reason == "2 reflections are no longer in the log: their lessons were not checked"
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize("key", [None, b"foreign"])
async def test_a_lesson_counts_on_a_playbook_and_its_branch_whatever_the_key_of_its_record(
    key: bytes | None,
) -> None:
    deployment = await one_batch(echo, COUNT)
    home = await deployment.log.partition_for(topics.REFLECTIONS.name, NAME.encode())
    deployment.model.answer = lambda _: {"operations": []}
    own = branches.OWN.model_copy(update={"batch_size": COUNT})
    async with deployment.running():
        await deployment.log.produce(outgoing(branches.FORK.model_copy(update={"settings": own})))
        await deployment.until(lambda: len(ledger.versions(deployment.log, branches.LINE)) == 1)
        sent = (replace(outgoing(reflection(n)), key=key, partition=home) for n in range(10, 10 + COUNT))
        await deployment.log.produce(*sent)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.until(lambda: len(ledger.versions(deployment.log, branches.LINE)) == 2)
    for line in (NAME, branches.LINE):
        learned = {entry.content for entry in ledger.latest(deployment.log, line).entries}
        assert learned == ALL | lessons(range(10, 10 + COUNT))


async def test_a_log_that_is_away_after_a_root_s_combine_does_not_have_it_paid_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment, outages = Deployment(batch_size=COUNT), iter([True, True])
    read_at = deployment.log.read_at

    async def unsteady(source: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
        is_combined = any(map(is_combine, deployment.model.prompts))
        if source.topic == topics.REFLECTIONS.name and is_combined and next(outages, False):
            raise TransientError("away")
        return await read_at(source, offsets)

    monkeypatch.setattr(deployment.log, "read_at", unsteady)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    assert next(outages, None) is None
    assert sum(map(is_combine, deployment.model.prompts)) == 1
    assert contents(deployment) == ALL


async def test_a_batch_of_one_reflection_is_checked() -> None:
    deployment = await one_batch(rewording, 1, trust="lab")
    (entry,) = ledger.latest(deployment.log).entries
    assert (entry.content, entry.evidence) == (said("lesson 0"), ("r-0",))
    assert [is_check(prompt) for prompt in deployment.model.prompts] == [False, True]


async def test_a_reflection_without_an_insight_is_checked_by_its_other_texts() -> None:
    deployment = Deployment(batch_size=COUNT, model=ScriptedModel(lambda _: {"operations": []}))
    async with deployment.running():
        others = (reflection(n, key_insight=" ", reasoning=f"lesson {n}") for n in range(COUNT))
        await deployment.log.produce(*map(outgoing, others))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    assert contents(deployment) == ALL


async def test_reflections_without_text_are_dead_letters_and_make_no_batch() -> None:
    deployment = Deployment(batch_size=COUNT)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n, key_insight=" ")) for n in range(COUNT)))
        await deployment.until(lambda: len(ledger.dead_letters(deployment.log)) == COUNT)
    assert (ledger.batches(deployment.log), deployment.model.calls) == ([], 0)
    assert (await audit(deployment.log)).good
