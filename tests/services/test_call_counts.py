"""Model calls of a batch: nodes + checks − skips + splits + re-asks, whatever happens; none for what is logged."""

from collections.abc import Mapping
from typing import Any

import pytest

from combee.adapters.ports import PoisonError, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from support import ledger
from support.deployment import Deployment, one_batch
from support.ledger import batch_of
from support.models import Answer, ScriptedModel, echo, is_combine, items

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 9
K = 3


class CountingModel(ScriptedModel):
    """Counts replies: what a prompt costs that is refused as too long is nothing."""

    def __init__(self, answer: Answer = echo) -> None:
        super().__init__(answer)
        self.replies = 0

    async def reply(self, prompt: Prompt) -> Reply:
        try:
            reply = await super().reply(prompt)
        except PoisonError as error:
            self.replies += error.usage.calls
            raise
        self.replies += reply.usage.calls
        return reply


def counted(deployment: Deployment) -> Usage:
    """Return the version's usage after checking it: it adds up, and it is what the model was asked."""
    version = ledger.latest(deployment.log)
    used = version.usage
    planned = sum(batch_of(version).plan.widths) + used.checks
    assert used.calls == planned - used.skips + used.splits + used.re_asks
    if isinstance(deployment.model, CountingModel):
        assert used.calls == deployment.model.replies
    return used


async def usage(answer: Answer = echo, count: int = COUNT, **settings: Any) -> Usage:
    return counted(await one_batch(CountingModel(answer), count, **settings))


# ---- all well


@pytest.mark.parametrize(
    ("count", "calls"), [(1, 1), (3, 1), (4, 3), (9, 4), (40, 7)], ids=lambda value: f"{value}"
)
async def test_a_batch_of_two_levels_costs_one_call_for_each_group_and_one_more(
    count: int, calls: int
) -> None:
    used = await usage(count=count)
    assert (used.calls, used.skips, used.splits, used.re_asks) == (calls, 0, 0, 0)


@pytest.mark.parametrize("count", [4, 8])
async def test_a_batch_that_each_group_would_hold_whole_costs_one_call(count: int) -> None:
    used = await usage(count=count, small_batches="one-call")
    assert (used.calls, used.skips) == (1, 0)


async def test_a_deeper_tree_costs_one_call_for_each_node_that_has_something_to_combine() -> None:
    used = await usage(count=25, fan_in=2)  # widths 5, 3, 2, 1: two nodes have one child
    assert (used.calls, used.skips) == (9, 2)


# ---- failures


def poison(calls: int) -> PoisonError:
    error = PoisonError("unusable")
    error.usage = Usage(calls=calls, re_asks=max(0, calls - 1))
    return error


def failing(when: Any, error: Exception) -> Answer:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if when(prompt):
            raise error
        return echo(prompt)

    return answer


async def test_replies_that_stay_unusable_count_with_their_re_asks() -> None:
    used = await usage(failing(is_combine, poison(calls=2)))
    assert (used.calls, used.re_asks) == (K + 2, 1)
    used = await usage(failing(lambda prompt: not is_combine(prompt), poison(calls=2)))
    # Each group's call is followed by one about the control.
    assert (used.calls, used.checks, used.re_asks, used.skips) == (4 * K, K, 2 * K, 1)


async def test_prompts_that_the_server_refuses_count_as_calls_not_made() -> None:
    used = await usage(failing(lambda _: True, poison(calls=0)))
    assert (used.calls, used.checks, used.skips) == (0, K, 2 * K + 1)


async def test_replies_of_which_nothing_can_be_used_count() -> None:
    used = await usage(lambda _: {"operations": ["none"]})
    assert (used.calls, used.checks, used.skips) == (2 * K, K, 1)


class ReAskedModel(ScriptedModel):
    """Its first reply to a prompt never fits."""

    async def reply(self, prompt: Prompt) -> Reply:
        reply = await super().reply(prompt)
        return Reply(body=reply.body, usage=reply.usage + Usage(calls=1, re_asks=1))


async def test_replies_that_fit_when_asked_again_count_twice() -> None:
    used = counted(await one_batch(ReAskedModel()))
    assert (used.calls, used.re_asks) == (2 * (K + 1), K + 1)


# ---- prompts that are too long


@pytest.mark.parametrize("longest", [1, 2, 4])
async def test_every_half_of_a_prompt_too_long_counts_as_a_split(longest: int) -> None:
    used = await usage(failing(lambda prompt: len(items(prompt)) > longest, PromptTooLongError("too long")))
    assert used.splits > 0
    assert used.calls == K + 1 + used.splits


async def test_what_is_too_long_alone_counts_as_a_call_not_made() -> None:
    def about_3(prompt: Prompt) -> bool:
        return "lesson 3" in {item.get("key_insight") or item.get("content") for item in items(prompt)}

    used = await usage(failing(about_3, PromptTooLongError("too long")))
    assert used.splits > 0
    assert used.skips >= 2  # in the groups that have a copy


async def test_a_combine_may_be_too_long_and_unusable_in_parts_and_keeps_the_rest() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if is_combine(prompt) and len(items(prompt)) > 12:
            raise PromptTooLongError("too long")
        if is_combine(prompt) and items(prompt)[0]["n"] == 1 and "lesson 0" in prompt.user:
            raise poison(calls=2)
        return echo(prompt)

    deployment = await one_batch(CountingModel(answer))
    used = counted(deployment)
    assert (used.splits, used.skips) == (1, 0)
    assert {e.content for e in ledger.latest(deployment.log).entries} == ledger.lessons(range(COUNT))
