"""Agents of LangChain read the playbook, and each of their runs becomes one trace."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from openai import InternalServerError

from combee import Client, MemoryTransport, Run, learning
from combee.core.formats.render import with_citations
from combee.integrations.langchain import CombeeMiddleware

PLAYBOOK = "shop/rates"
QUESTION = "Refunds: 30; orders: 120. What is the refund rate?"
RIGHT = "25.0"


@pytest.fixture
async def chat(model: Any) -> AsyncIterator[ChatOpenAI]:
    """Return a chat model on the stand-in; what it opens is closed again."""
    with httpx.Client() as plain:
        async with httpx.AsyncClient() as awaited:
            yield ChatOpenAI(
                model="simulated",
                base_url=model.base_url,
                api_key="none",
                max_retries=0,
                http_client=plain,
                http_async_client=awaited,
            )


def agent(chat: ChatOpenAI, combee: Client, *tools: Any, **options: Any) -> Any:
    middleware = CombeeMiddleware(PLAYBOOK, combee=combee, **options)
    return create_agent(chat, tools, system_prompt="Be exact.", middleware=[middleware])


def asked(question: str = QUESTION) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


def answer(text: str) -> str:
    return str(json.loads(text)["final_answer"])


def traces(combee: Client, memory: MemoryTransport) -> list[Any]:
    combee.flush()
    return memory.traces


def paid(order: int) -> str:
    """Return the amount paid for an order."""
    return f"Order {order}: 120 were paid."


def breaks(order: int) -> str:
    """Look an order up."""
    raise ConnectionError(f"no order {order}")


def test_an_agent_is_shown_the_playbook_and_its_run_becomes_a_trace(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    reply = agent(chat, combee).invoke(asked())

    (trace,) = traces(combee, memory)
    assert answer(reply["messages"][-1].content) == RIGHT
    assert (trace.playbook, trace.task, answer(trace.answer)) == (PLAYBOOK, QUESTION, RIGHT)
    assert (trace.shown.version, len(trace.shown.entry_ids)) == (1, 2)
    assert with_citations(trace, ()).bullet_ids == tuple(json.loads(trace.answer)["bullet_ids"]) != ()
    assert trace.trajectory == f"user: {QUESTION}\n\nassistant: {trace.answer}"
    assert trace.metadata["gen_ai.request.model"] == "simulated"
    assert int(trace.metadata["gen_ai.usage.input_tokens"]) > 0
    assert [message.type for message in reply["messages"]] == ["human", "ai"]
    assert "combee_run" not in reply


async def test_runs_side_by_side_do_not_mix(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    learner = agent(chat, combee)
    await asyncio.gather(*(learner.ainvoke(asked(f"{QUESTION} {number}")) for number in range(8)))

    recorded = traces(combee, memory)
    assert {trace.task for trace in recorded} == {f"{QUESTION} {number}" for number in range(8)}
    assert all(trace.trajectory.count("user: ") == 1 for trace in recorded)


def test_a_streamed_run_is_passed_on_in_pieces_and_recorded_whole(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    pieces = [
        message.content
        for message, _ in agent(chat, combee).stream(asked(), stream_mode="messages")
        if isinstance(message, AIMessageChunk)
    ]

    (trace,) = traces(combee, memory)
    assert len(pieces) > 2
    assert trace.answer == "".join(pieces)


async def test_an_async_stream_is_recorded_whole(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    pieces = [
        message.content
        async for message, _ in agent(chat, combee).astream(asked(), stream_mode="messages")
        if isinstance(message, AIMessageChunk)
    ]

    (trace,) = traces(combee, memory)
    assert trace.answer == "".join(pieces)


@pytest.mark.parametrize("is_async", [False, True])
async def test_calls_of_tools_and_their_results_are_part_of_the_run(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport, *, is_async: bool
) -> None:
    learner = agent(chat, combee, paid)
    await (
        learner.ainvoke(asked("Refund order 7?"))
        if is_async
        else asyncio.to_thread(learner.invoke, asked("Refund order 7?"))
    )

    (trace,) = traces(combee, memory)
    steps = trace.trajectory.split("\n\n")
    assert steps[:3] == [
        "user: Refund order 7?",
        'assistant: [{"name": "paid", "arguments": "{\\"order\\": 7}"}]',
        "tool: Order 7: 120 were paid.",
    ]
    assert len(steps) == 4
    assert "final_answer" in trace.answer


def test_an_error_of_the_model_reaches_the_agent_and_is_the_run_s_feedback(
    model: Any, chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    with model.failing(), pytest.raises(InternalServerError):
        agent(chat, combee).invoke(asked())

    (trace,) = traces(combee, memory)
    assert trace.task == QUESTION
    assert trace.feedback.endswith("simulated: an internal error")


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_of_a_tool_reaches_the_agent_and_is_recorded(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport, *, is_async: bool
) -> None:
    learner = agent(chat, combee, breaks)
    with pytest.raises(ConnectionError, match="no order 7"):
        await (
            learner.ainvoke(asked("Refund order 7?"))
            if is_async
            else asyncio.to_thread(learner.invoke, asked("Refund order 7?"))
        )

    (trace,) = traces(combee, memory)
    assert "tool: breaks failed with ConnectionError: no order 7" in trace.trajectory
    assert trace.feedback == "The run ended with ConnectionError: no order 7"


def test_while_combee_is_down_the_agent_goes_on(chat: ChatOpenAI, nobody: Client) -> None:
    reply = agent(chat, nobody, fallback="Say what you know.").invoke(asked())

    assert answer(reply["messages"][-1].content) == "0.25"
    assert nobody.counts.waiting == 1


async def test_while_combee_is_down_an_async_agent_goes_on(chat: ChatOpenAI, nobody: Client) -> None:
    reply = await agent(chat, nobody).ainvoke(asked())

    assert answer(reply["messages"][-1].content) == "0.25"


def test_inside_a_block_all_runs_are_one_and_the_block_says_how_it_went(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    learner = agent(chat, combee)
    with learning(PLAYBOOK, client=combee) as run:
        learner.invoke(asked("One?"))
        learner.invoke(asked("Two?"))
        run.outcome("Both were wrong.", success=False)

    (trace,) = traces(combee, memory)
    assert (trace.task, trace.success, trace.feedback) == ("One?", False, "The run failed. Both were wrong.")
    assert trace.trajectory.count("user: ") == 2


def test_without_a_playbook_only_blocks_learn(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    learner = create_agent(chat, middleware=[CombeeMiddleware(combee=combee)])
    reply = learner.invoke(asked())
    with learning(PLAYBOOK, client=combee):
        shown = learner.invoke(asked())

    assert [answer(run["messages"][-1].content) for run in (reply, shown)] == ["0.25", RIGHT]
    assert len(traces(combee, memory)) == 1


def test_each_run_is_judged_before_it_is_handed_over(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    def judge(run: Run) -> None:
        run.outcome(success=answer(run.answer) == RIGHT, score=0.5)

    agent(chat, combee, on_end=judge).invoke(asked())

    (trace,) = traces(combee, memory)
    assert (trace.success, trace.score) == (True, {"score": 0.5})


def test_a_judge_that_fails_harms_nobody(chat: ChatOpenAI, combee: Client, memory: MemoryTransport) -> None:
    def judge(run: Run) -> None:
        raise ValueError(run.answer)

    agent(chat, combee, on_end=judge).invoke(asked())

    assert len(traces(combee, memory)) == 1


def test_with_a_budget_only_the_nearest_entries_are_shown(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    reply = agent(chat, combee, budget_tokens=30).invoke(asked())

    (trace,) = traces(combee, memory)
    assert answer(reply["messages"][-1].content) == RIGHT
    assert len(trace.shown.entry_ids) == 1


def test_what_is_personal_is_taken_out_before_it_leaves(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport
) -> None:
    agent(chat, combee, paid).invoke(asked("Refund 7 of ann@example.com, card 4111 1111 1111 1111."))

    (trace,) = traces(combee, memory)
    assert "ann@example.com" not in trace.model_dump_json()
    assert "4111" not in trace.model_dump_json()
    assert "[email]" in trace.task
    assert combee.counts.redacted["email"] >= 2


def asks_a_person(order: int) -> str:
    """Ask whether an order may be refunded."""
    return f"{interrupt(f'Refund {order}?')}!"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_waits_for_a_person_is_one_run_wherever_it_goes_on(
    chat: ChatOpenAI, combee: Client, memory: MemoryTransport, *, elsewhere: bool
) -> None:
    saver, thread = InMemorySaver(), {"configurable": {"thread_id": "1"}}

    def made() -> Any:
        middleware = CombeeMiddleware(PLAYBOOK, combee=combee)
        return create_agent(chat, [asks_a_person], middleware=[middleware], checkpointer=saver)

    learner = made()
    learner.invoke(asked("Refund order 7?"), thread)
    assert traces(combee, memory) == []
    (made() if elsewhere else learner).invoke(Command(resume="yes"), thread)

    (trace,) = traces(combee, memory)
    assert trace.task == "Refund order 7?"
    assert "tool: yes!" in trace.trajectory
    assert trace.trajectory.count("assistant: ") == 2


@pytest.mark.timeout(400)
def test_the_example_s_runs_are_counted_by_a_deployment(
    run_example: Callable[[str], str], outcomes: Callable[[], list[Any]], eventually: Callable[[Any], Any]
) -> None:
    assert "final_answer" in run_example("langchain_agent.py")
    assert eventually(lambda: sum(version["success"]["n"] for version in outcomes()) == 4)
