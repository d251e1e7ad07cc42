"""Agents of OpenAI's SDK read the playbook, and each of their runs becomes one trace."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, InternalServerError

from combee import Client, MemoryTransport, Run, learning
from combee.core.formats.render import with_citations
from combee.integrations.openai_agents import NO_END, CombeeHooks

PLAYBOOK = "shop/rates"
QUESTION = "Refunds: 30; orders: 120. What is the refund rate?"
RIGHT = "25.0"


@pytest.fixture(autouse=True)
def no_tracing() -> None:
    set_tracing_disabled(disabled=True)  # it would be sent to OpenAI


@pytest.fixture
async def chat(model: Any) -> AsyncIterator[OpenAIChatCompletionsModel]:
    """Return a chat model on the stand-in; what it opens is closed again."""
    async with AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0) as client:
        yield OpenAIChatCompletionsModel("simulated", client)


def agent(chat: Any, hooks: CombeeHooks, *tools: Any, own: Any = "Be exact.", **options: Any) -> Agent[Any]:
    instructions = hooks.instructions(own)
    return Agent("Rates", instructions=instructions, tools=list(tools), model=chat, **options)


def answer(text: Any) -> str:
    return str(json.loads(str(text))["final_answer"])


def traces(combee: Client, memory: MemoryTransport) -> list[Any]:
    combee.flush()
    return memory.traces


def say_what_was_paid(order: int) -> str:
    return f"Order {order}: 120 were paid."


paid: Any = function_tool(say_what_was_paid, name_override="paid")


async def test_an_agent_is_shown_the_playbook_and_its_run_becomes_a_trace(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    reply = await Runner.run(agent(chat, hooks), QUESTION, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert answer(reply.final_output) == RIGHT
    assert (trace.playbook, trace.task, answer(trace.answer)) == (PLAYBOOK, QUESTION, RIGHT)
    assert (trace.shown.version, len(trace.shown.entry_ids)) == (1, 2)
    assert with_citations(trace, ()).bullet_ids == tuple(json.loads(trace.answer)["bullet_ids"]) != ()
    assert trace.trajectory == f"user: {QUESTION}\n\nassistant: {trace.answer}"
    assert trace.metadata["gen_ai.request.model"] == "simulated"
    assert int(trace.metadata["gen_ai.usage.input_tokens"]) > 0


async def test_runs_side_by_side_do_not_mix(chat: Any, combee: Client, memory: MemoryTransport) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    learner = agent(chat, hooks)
    await asyncio.gather(*(Runner.run(learner, f"{QUESTION} {number}", hooks=hooks) for number in range(8)))

    recorded = traces(combee, memory)
    assert {trace.task for trace in recorded} == {f"{QUESTION} {number}" for number in range(8)}
    assert all(trace.trajectory.count("user: ") == 1 for trace in recorded)


def test_an_agent_without_an_event_loop_learns_too(
    model: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    client = AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0)
    loop = asyncio.new_event_loop()  # the one that run_sync takes
    asyncio.set_event_loop(loop)
    try:
        learner = agent(OpenAIChatCompletionsModel("simulated", client), hooks)
        reply = Runner.run_sync(learner, QUESTION, hooks=hooks)
        loop.run_until_complete(client.close())
    finally:
        asyncio.set_event_loop(None)
        loop.close()

    (trace,) = traces(combee, memory)
    assert answer(reply.final_output) == answer(trace.answer) == RIGHT


async def test_a_streamed_run_is_passed_on_in_pieces_and_recorded_whole(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    streamed = Runner.run_streamed(agent(chat, hooks), QUESTION, hooks=hooks)
    pieces = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]

    (trace,) = traces(combee, memory)
    assert len(pieces) > 2
    assert trace.answer == "".join(pieces) == streamed.final_output


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_calls_of_tools_and_their_results_are_part_of_the_run(
    chat: Any, combee: Client, memory: MemoryTransport, *, is_streamed: bool
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    learner = agent(chat, hooks, paid)
    if is_streamed:
        streamed = Runner.run_streamed(learner, "Refund order 7?", hooks=hooks)
        assert [event async for event in streamed.stream_events()]
    else:
        await Runner.run(learner, "Refund order 7?", hooks=hooks)

    (trace,) = traces(combee, memory)
    steps = trace.trajectory.split("\n\n")
    assert steps[:3] == [
        "user: Refund order 7?",
        'assistant: [{"name": "paid", "arguments": "{\\"order\\": 7}"}]',
        "function_call_output: Order 7: 120 were paid.",
    ]
    assert len(steps) == 4
    assert "final_answer" in trace.answer


async def test_a_run_goes_on_with_the_agent_it_is_handed_to(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    other = agent(chat, hooks)
    other.name = "Other"
    first = agent(chat, hooks, handoffs=[other])
    await Runner.run(first, QUESTION, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert "handoff: Rates hands over to Other" in trace.trajectory
    assert answer(trace.answer) == RIGHT


async def test_an_error_of_the_model_reaches_the_agent_and_a_block_records_it(
    model: Any, chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(combee=combee)
    with model.failing(), pytest.raises(InternalServerError):
        async with learning(PLAYBOOK, client=combee):
            await Runner.run(agent(chat, hooks), QUESTION, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert trace.task == QUESTION
    assert trace.feedback.startswith("The run ended with InternalServerError")


async def fails(model: Any, learner: Agent[Any], hooks: CombeeHooks) -> None:
    """Let a run fail, and nothing of it remain."""
    with model.failing(), pytest.raises(InternalServerError):
        await Runner.run(learner, QUESTION, hooks=hooks)


async def test_a_run_without_an_answer_is_handed_over_when_nobody_holds_it(
    model: Any, chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    await fails(model, agent(chat, hooks), hooks)
    gc.collect()

    (trace,) = traces(combee, memory)
    assert (trace.task, trace.feedback) == (QUESTION, NO_END)


async def test_a_run_that_takes_too_many_turns_is_recorded_as_far_as_it_went(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(combee=combee)
    with pytest.raises(MaxTurnsExceeded):
        async with learning(PLAYBOOK, client=combee):
            await Runner.run(agent(chat, hooks, paid), "Refund order 7?", hooks=hooks, max_turns=1)

    (trace,) = traces(combee, memory)
    assert "function_call_output: Order 7: 120 were paid." in trace.trajectory
    assert "MaxTurnsExceeded" in trace.feedback


async def test_while_combee_is_down_the_agent_goes_on(chat: Any, nobody: Client) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=nobody, fallback="Say what you know.")
    reply = await Runner.run(agent(chat, hooks), QUESTION, hooks=hooks)

    assert answer(reply.final_output) == "0.25"
    assert nobody.counts.waiting == 1


async def test_inside_a_block_all_runs_are_one_and_the_block_says_how_it_went(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    learner = agent(chat, hooks)
    async with learning(PLAYBOOK, client=combee) as run:
        await Runner.run(learner, "One?", hooks=hooks)
        await Runner.run(learner, "Two?", hooks=hooks)
        run.outcome("Both were wrong.", success=False)

    (trace,) = traces(combee, memory)
    assert (trace.task, trace.success, trace.feedback) == ("One?", False, "The run failed. Both were wrong.")
    assert trace.trajectory.count("user: ") == 2


async def test_each_run_is_judged_before_it_is_handed_over(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    def judge(run: Run) -> None:
        run.outcome(success=answer(run.answer) == RIGHT)

    hooks = CombeeHooks(PLAYBOOK, combee=combee, on_end=judge)
    await Runner.run(agent(chat, hooks), QUESTION, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert trace.success is True


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_agent_s_own_instructions_may_be_a_function(
    chat: Any, combee: Client, memory: MemoryTransport, *, is_async: bool
) -> None:
    def plain(context: Any, agent: Any) -> str:
        del context, agent
        return "Be exact."

    async def awaited(context: Any, agent: Any) -> str:
        return plain(context, agent)

    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    learner = agent(chat, hooks, own=awaited if is_async else plain)
    instructions: Any = learner.instructions

    assert answer((await Runner.run(learner, QUESTION, hooks=hooks)).final_output) == RIGHT
    assert len(traces(combee, memory)) == 1

    class Context:
        usage = object.__new__(Agent)
        turn_input = ()

    assert (await instructions(Context(), learner)).endswith("\n\nBe exact.")


async def test_with_a_budget_only_the_nearest_entries_are_shown(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee, budget_tokens=30)
    reply = await Runner.run(agent(chat, hooks), QUESTION, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert answer(reply.final_output) == RIGHT
    assert len(trace.shown.entry_ids) == 1


async def test_what_is_personal_is_taken_out_before_it_leaves(
    chat: Any, combee: Client, memory: MemoryTransport
) -> None:
    hooks = CombeeHooks(PLAYBOOK, combee=combee)
    question = "Refund 7 of ann@example.com, card 4111 1111 1111 1111."
    await Runner.run(agent(chat, hooks, paid), question, hooks=hooks)

    (trace,) = traces(combee, memory)
    assert "ann@example.com" not in trace.model_dump_json()
    assert "4111" not in trace.model_dump_json()
    assert "[email]" in trace.task


@pytest.mark.timeout(400)
def test_the_example_s_runs_are_counted_by_a_deployment(
    run_example: Callable[[str], str], outcomes: Callable[[], list[Any]], eventually: Callable[[Any], Any]
) -> None:
    assert "final_answer" in run_example("openai_agents_run.py")
    assert eventually(lambda: sum(version["success"]["n"] for version in outcomes()) == 1)
