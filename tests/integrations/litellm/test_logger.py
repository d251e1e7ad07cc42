"""Calls of LiteLLM read the playbook that they name, and become traces."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import litellm
import pytest

from combee import Client, MemoryTransport, Run, learning
from combee.core.formats.render import with_citations
from combee.integrations.litellm import CombeeLogger

PLAYBOOK = "shop/rates"
QUESTION = "Refunds: 30; orders: 120. What is the refund rate?"
RIGHT = "25.0"
DEADLINE_S = 20.0
# LiteLLM's own types, which pydantic reads at the first call.
pytestmark = pytest.mark.filterwarnings("ignore:.* is using the `ReadOnly` qualifier:UserWarning")
TOOL = {
    "type": "function",
    "function": {
        "name": "paid",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
    },
}


@pytest.fixture(autouse=True)
def callbacks() -> Iterator[None]:
    """Leave no callback to the next test."""
    yield
    litellm.callbacks = []
    for names in ("input_callback", "success_callback", "failure_callback"):
        setattr(litellm, names, [])
        setattr(litellm, f"_async_{names}", [])


def learn(combee: Client, *playbook: str, **options: Any) -> CombeeLogger:
    made = CombeeLogger(*playbook, combee=combee, **options)
    litellm.callbacks = [made]
    return made


def call(model: Any, question: str = QUESTION, **more: Any) -> dict[str, Any]:
    messages = more.pop("messages", [{"role": "user", "content": question}])
    return {
        "model": "openai/simulated",
        "api_base": model.base_url,
        "api_key": "none",
        "messages": messages,
        "max_retries": 0,
        **more,
    }


def answer(text: Any) -> str:
    return str(json.loads(str(text))["final_answer"])


def said(reply: Any) -> str:
    return answer(reply.choices[0].message.content)


class Traces:
    """Waits for traces: LiteLLM tells of calls after they have returned."""

    def __init__(self, combee: Client, memory: MemoryTransport) -> None:
        self._combee, self._memory = combee, memory

    async def __call__(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self._memory.traces) < count:
                await asyncio.to_thread(self._combee.flush)
                await asyncio.sleep(0.01)
        assert len(self._memory.traces) == count
        return self._memory.traces


@pytest.fixture
def traces(combee: Client, memory: MemoryTransport) -> Traces:
    return Traces(combee, memory)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_call_that_names_a_playbook_is_shown_it_and_becomes_a_trace(
    model: Any, combee: Client, traces: Traces, *, is_async: bool
) -> None:
    learn(combee)
    wanted = call(model, prompt_id=PLAYBOOK)
    reply = await litellm.acompletion(**wanted) if is_async else litellm.completion(**wanted)

    (trace,) = await traces()
    assert said(reply) == RIGHT
    assert (trace.playbook, trace.task, answer(trace.answer)) == (PLAYBOOK, QUESTION, RIGHT)
    assert (trace.shown.version, len(trace.shown.entry_ids)) == (1, 2)
    assert with_citations(trace, ()).bullet_ids == tuple(json.loads(trace.answer)["bullet_ids"]) != ()
    assert trace.trajectory == f"user: {QUESTION}\n\nassistant: {trace.answer}"
    assert trace.metadata["gen_ai.request.model"] == "simulated"
    assert int(trace.metadata["gen_ai.usage.input_tokens"]) > 0
    assert trace.trace_id == reply._hidden_params["litellm_call_id"]


async def test_async_calls_that_name_none_are_shown_the_callback_s(
    model: Any, combee: Client, traces: Traces
) -> None:
    learn(combee, PLAYBOOK)
    reply = await litellm.acompletion(**call(model))

    (trace,) = await traces()
    assert said(reply) == answer(trace.answer) == RIGHT


def test_a_synchronous_call_that_names_none_passes_untouched_and_that_is_logged(
    model: Any, combee: Client, memory: MemoryTransport, caplog: pytest.LogCaptureFixture
) -> None:
    learn(combee, PLAYBOOK)
    replies = [litellm.completion(**call(model)) for _ in range(2)]

    assert [said(reply) for reply in replies] == ["0.25", "0.25"]
    assert caplog.text.count("pass prompt_id=") == 1
    assert memory.traces == []


async def test_calls_that_nobody_asked_for_pass_untouched(
    model: Any, combee: Client, memory: MemoryTransport, caplog: pytest.LogCaptureFixture
) -> None:
    learn(combee)
    assert said(await litellm.acompletion(**call(model))) == "0.25"
    assert said(litellm.completion(**call(model))) == "0.25"
    assert "prompt_id" not in caplog.text
    assert memory.traces == []


async def test_calls_side_by_side_do_not_mix(model: Any, combee: Client, traces: Traces) -> None:
    learn(combee, PLAYBOOK)
    await asyncio.gather(*(litellm.acompletion(**call(model, f"{QUESTION} {n}")) for n in range(8)))

    recorded = await traces(8)
    assert {trace.task for trace in recorded} == {f"{QUESTION} {n}" for n in range(8)}


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_streamed_call_is_passed_on_in_pieces_and_recorded_whole(
    model: Any, combee: Client, traces: Traces, *, is_async: bool
) -> None:
    learn(combee)
    wanted = call(model, prompt_id=PLAYBOOK, stream=True)
    if is_async:
        chunks = [chunk async for chunk in await litellm.acompletion(**wanted)]
    else:
        chunks = list(litellm.completion(**wanted))

    (trace,) = await traces()
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len(pieces) > 2
    assert trace.answer == "".join(pieces)
    assert answer(trace.answer) == RIGHT


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_tools_and_their_results_are_recorded(
    model: Any, combee: Client, traces: Traces, *, stream: bool
) -> None:
    learn(combee)
    wanted = call(model, "Refund order 7?", prompt_id=PLAYBOOK, tools=[TOOL], stream=stream)
    reply = await litellm.acompletion(**wanted)
    if stream:
        reply = litellm.stream_chunk_builder([chunk async for chunk in reply])
    message = reply.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "120 were paid."}
    messages = [*wanted["messages"], message.model_dump(), result]
    await litellm.acompletion(**{**wanted, "messages": messages, "stream": False})

    first, second = sorted(await traces(2), key=lambda trace: len(trace.trajectory))
    assert first.answer == '[{"name": "paid", "arguments": "{\\"order\\": 7}"}]'
    assert "tool: 120 were paid." in second.trajectory
    assert "final_answer" in second.answer


@contextmanager
def block(combee: Client) -> Iterator[None]:
    with learning(PLAYBOOK, client=combee, task=QUESTION):
        yield


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_of_the_model_reaches_the_agent_and_a_block_records_it(
    model: Any, combee: Client, traces: Traces, *, is_async: bool
) -> None:
    learn(combee)
    wanted = call(model, prompt_id=PLAYBOOK)
    with model.failing(), pytest.raises(litellm.InternalServerError), block(combee):
        await (litellm.acompletion(**wanted) if is_async else asyncio.to_thread(litellm.completion, **wanted))

    (trace,) = await traces()
    assert trace.feedback.startswith("The run ended with InternalServerError")


@pytest.mark.parametrize("is_async", [False, True])
async def test_while_combee_is_down_the_agent_goes_on(model: Any, nobody: Client, *, is_async: bool) -> None:
    learn(nobody, fallback="Say what you know.")
    wanted = call(model, prompt_id=PLAYBOOK)
    reply = await litellm.acompletion(**wanted) if is_async else litellm.completion(**wanted)

    assert said(reply) == "0.25"


@pytest.mark.parametrize("is_async", [False, True])
async def test_inside_a_block_all_calls_are_one_run_although_they_are_told_of_later(
    model: Any, combee: Client, traces: Traces, *, is_async: bool
) -> None:
    learn(combee)
    with learning(PLAYBOOK, client=combee) as run:
        for question in ("One?", "Two?"):
            wanted = call(model, question, prompt_id="another")
            await (
                litellm.acompletion(**wanted) if is_async else asyncio.to_thread(litellm.completion, **wanted)
            )
        run.outcome("Both were wrong.", success=False)

    (trace,) = await traces()
    assert (trace.success, trace.feedback) == (False, "The run failed. Both were wrong.")
    assert trace.playbook == PLAYBOOK
    assert trace.trajectory.count("user: ") == 2
    assert trace.trajectory.count("assistant: ") == 2
    assert len(trace.shown.entry_ids) == 2


async def test_inside_a_block_async_calls_need_name_nothing(
    model: Any, combee: Client, traces: Traces
) -> None:
    learn(combee)
    with learning(PLAYBOOK, client=combee):
        reply = await litellm.acompletion(**call(model))

    (trace,) = await traces()
    assert said(reply) == answer(trace.answer) == RIGHT


async def test_each_call_is_judged_before_it_is_handed_over(
    model: Any, combee: Client, traces: Traces
) -> None:
    def judge(run: Run) -> None:
        run.outcome(success=answer(run.answer) == RIGHT)

    learn(combee, on_end=judge)
    await litellm.acompletion(**call(model, prompt_id=PLAYBOOK))

    (trace,) = await traces()
    assert trace.success is True


async def test_a_label_or_version_is_what_the_call_says(
    model: Any, combee: Client, memory: MemoryTransport, traces: Traces
) -> None:
    memory.put_playbook(PLAYBOOK, "Nothing of use.")
    learn(combee)
    reply = await litellm.acompletion(**call(model, prompt_id=PLAYBOOK, prompt_version=1))

    (trace,) = await traces()
    assert (said(reply), trace.shown.version) == (RIGHT, 1)


async def test_a_router_s_calls_learn(model: Any, combee: Client, traces: Traces) -> None:
    learn(combee, PLAYBOOK)
    params = {name: value for name, value in call(model).items() if name != "messages"}
    router = litellm.Router(model_list=[{"model_name": "any", "litellm_params": params}], num_retries=0)
    reply = await router.acompletion("any", messages=[{"role": "user", "content": QUESTION}])

    (trace,) = await traces()
    assert said(reply) == answer(trace.answer) == RIGHT


async def test_with_a_budget_only_the_nearest_entries_are_shown(
    model: Any, combee: Client, traces: Traces
) -> None:
    learn(combee, budget_tokens=30)
    reply = await litellm.acompletion(**call(model, prompt_id=PLAYBOOK))

    (trace,) = await traces()
    assert said(reply) == RIGHT
    assert len(trace.shown.entry_ids) == 1


async def test_what_is_personal_is_taken_out_before_it_leaves(
    model: Any, combee: Client, traces: Traces
) -> None:
    learn(combee)
    question = "Refund 7 of ann@example.com, card 4111 1111 1111 1111."
    await litellm.acompletion(**call(model, question, prompt_id=PLAYBOOK))

    (trace,) = await traces()
    assert "ann@example.com" not in trace.model_dump_json()
    assert "4111" not in trace.model_dump_json()
    assert "[email]" in trace.task


@pytest.mark.timeout(400)
def test_the_example_s_runs_are_counted_by_a_deployment(
    run_example: Callable[[str], str], outcomes: Callable[[], list[Any]], eventually: Callable[[Any], Any]
) -> None:
    assert "final_answer" in run_example("litellm_calls.py")
    assert eventually(lambda: sum(version["success"]["n"] for version in outcomes()) == 2)
