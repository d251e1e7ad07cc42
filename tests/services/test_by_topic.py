"""A combine that asks by topic: a call for each part, one result, and the record says which part read what."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from combee.core.batching.parts import by_topic
from combee.core.playbook.versions import empty
from combee.inspection.audit import audit
from combee.ports import PoisonError, TransientError
from combee.scan import aggregate
from combee.scan.aggregate import Aggregator
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.scan import NodeResult, Operation, Partial, Update
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, lessons, outgoing, reflection
from support.models import Answer, ModelClient, ScriptedModel, echo, is_combine, items

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 9
PART_TOKENS = 60


async def batch(answer: Answer = echo, **settings: Any) -> Deployment:
    deployment = Deployment(
        model=ScriptedModel(answer), batch_size=COUNT, **{"combine_tokens": PART_TOKENS, **settings}
    )
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


def root(deployment: Deployment) -> NodeResult:
    (update,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    return update.result


def proposals(deployment: Deployment) -> list[Operation]:
    children = ledger.messages(deployment.log, topics.PARTIALS[0], Partial)
    in_order = sorted(children, key=lambda child: child.index)
    return [operation for child in in_order for operation in child.result.operations]


def combines(deployment: Deployment) -> list[Prompt]:
    return [prompt for prompt in deployment.model.prompts if is_combine(prompt)]


async def test_proposals_are_parted_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def parted(proposals: Sequence[Operation], part_tokens: int) -> tuple[tuple[int, ...], ...]:
        threads.append(threading.current_thread())
        return by_topic(proposals, part_tokens)

    monkeypatch.setattr(aggregate, "by_topic", parted)
    await batch()
    assert threads
    assert threading.main_thread() not in threads


async def test_each_part_is_read_by_one_call_and_the_record_says_which() -> None:
    deployment = await batch()
    result, proposed = root(deployment), proposals(deployment)
    assert len(result.parts) > 1
    assert sorted(place for part in result.parts for place in part) == list(range(len(proposed)))
    read = sorted(sorted(item["content"] for item in items(prompt)) for prompt in combines(deployment))
    assert read == sorted(sorted(proposed[place].content for place in part) for part in result.parts)
    assert len(set(result.requests)) == len(result.requests) == len(result.parts)


async def test_both_copies_of_a_lesson_are_in_one_part_and_become_one_entry() -> None:
    deployment = await batch()
    for prompt in combines(deployment):
        said = [item["content"] for item in items(prompt)]
        assert all(said.count(content) == 2 for content in said)
    version = ledger.latest(deployment.log)
    assert {entry.content for entry in version.entries} == lessons(range(COUNT))
    assert all(entry.evidence_count == 1 for entry in version.entries)
    assert (await audit(deployment.log)).good


async def test_its_calls_add_up() -> None:
    deployment = await batch()
    used, parts = root(deployment).usage, len(root(deployment).parts)
    assert (used.calls, used.splits, used.skips) == (3 + parts, parts - 1, 0)
    assert deployment.model.calls == used.calls


async def test_without_the_setting_and_where_all_fits_one_call_asks_about_everything() -> None:
    for tokens in (0, 100_000):
        deployment = await batch(combine_tokens=tokens)
        assert (len(combines(deployment)), root(deployment).parts) == (1, ())


async def test_what_a_call_leaves_out_is_carried_and_what_it_drops_is_not() -> None:
    def forgetful(prompt: Prompt) -> Mapping[str, Any]:
        if not is_combine(prompt):
            return echo(prompt)
        dropped = [item["n"] for item in items(prompt) if item["content"] == "lesson 0"]
        return {"operations": [], "dropped": dropped}

    deployment = await batch(forgetful)
    result = root(deployment)
    assert {operation.content for operation in result.operations} == lessons(range(1, COUNT))
    assert result.carried == 2 * (COUNT - 1)
    assert [seen.dropped for seen in sorted(result.seen, key=lambda seen: seen.offset)] == [True] + [
        False
    ] * 8


async def test_a_call_that_fails_for_good_costs_its_own_part_the_model_s_work_and_no_other() -> None:
    def failing(prompt: Prompt) -> Mapping[str, Any]:
        if is_combine(prompt) and "lesson 3" in {item["content"] for item in items(prompt)}:
            error = PoisonError("unusable")
            error.usage = Usage(calls=1)
            raise error
        if is_combine(prompt):
            renamed = [{**each, "content": f"{each['content']} again"} for each in echo(prompt)["operations"]]
            return {"operations": renamed}
        return echo(prompt)

    deployment = await batch(failing)
    result = root(deployment)
    (failed,) = [part for part in result.parts if "lesson 3" in _said(deployment, part)]
    kept = {operation.content for operation in result.operations}
    assert result.status == "merged"
    assert kept == _said(deployment, failed) | {
        f"{content} again" for content in lessons(range(COUNT)) - _said(deployment, failed)
    }


def _said(deployment: Deployment, part: tuple[int, ...]) -> set[str]:
    proposed = proposals(deployment)
    return {proposed[place].content for place in part}


async def test_an_error_that_will_pass_ends_the_other_calls_and_is_raised_as_it_is() -> None:
    deployment = await batch()
    children = sorted(
        ledger.messages(deployment.log, topics.PARTIALS[0], Partial), key=lambda child: child.index
    )
    ended: list[Prompt] = []

    class Away(ScriptedModel):
        async def reply(self, prompt: Prompt) -> Any:
            if "lesson 3" in {item["content"] for item in items(prompt)}:
                await asyncio.sleep(0)
                raise TransientError("away")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(prompt)
                raise

    aggregator = Aggregator(ModelClient(Away()), part_tokens=PART_TOKENS)
    with pytest.raises(TransientError, match="away"):
        await aggregator.combine(empty(NAME), 1, children)
    assert len(ended) == len(root(deployment).parts) - 1


async def test_a_batch_of_any_size_has_two_levels() -> None:
    deep = await batch(combine_tokens=0, fan_in=2)
    flat = await batch(fan_in=2)
    widths = [ledger.batches(each.log)[0].plan.widths for each in (deep, flat)]
    assert widths == [(3, 2, 1), (3, 1)]
    assert "by topic in parts of 60 tokens" in ledger.batches(flat.log)[0].shape_reason


async def test_whole_texts_are_not_told_apart() -> None:
    """GEPA's proposals are versions of one text: there is one topic."""
    flush = Command(command_id="f", playbook=NAME, kind="flush", through_offset=COUNT - 1)
    answer = {"text": "```\nnew text\n```"}
    deployment = Deployment(
        model=ScriptedModel(lambda _: answer), batch_size=COUNT, combine_tokens=1, method="gepa", fan_in=2
    )
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)), outgoing(flush))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    assert ledger.batches(deployment.log)[0].plan.widths == (3, 2, 1)
    assert root(deployment).parts == ()
