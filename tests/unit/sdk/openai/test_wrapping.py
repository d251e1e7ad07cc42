"""``wrap_openai`` on clients that only look like OpenAI's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from combee.sdk import Client, MemoryTransport, learning, wrap_openai
from combee.sdk.openai.streams import MAX_TOOL_CALLS, RecordedStream, StreamedChat
from support.rows import each_row

NAME = "support/refunds"
ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is 1 + 1?"}]


def reply(text: str = "2", tool_calls: Any = None) -> Any:
    message = SimpleNamespace(content=text, refusal=None, tool_calls=tool_calls)
    return SimpleNamespace(
        choices=[SimpleNamespace(message=message, finish_reason="stop")],
        model="m-1",
        usage=SimpleNamespace(prompt_tokens=7, completion_tokens=3),
    )


def pieces() -> Iterator[Any]:
    for text in ("tw", "o", None):
        delta = SimpleNamespace(content=text, refusal=None, tool_calls=None)
        choice = SimpleNamespace(index=0, delta=delta, finish_reason=None if text else "stop")
        yield SimpleNamespace(choices=[choice], model="m-1", usage=None)


class Completions:
    def __init__(self, owner: "Plain") -> None:
        self.owner = owner

    def create(self, **arguments: Any) -> Any:
        self.owner.seen.append(arguments)
        if self.owner.error:
            raise self.owner.error
        return self.owner.stream() if arguments.get("stream") else self.owner.answer


class Plain:
    """A client as OpenAI's is shaped."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answer: Any = reply()
        self.error: Exception | None = None
        self.chat = SimpleNamespace(completions=Completions(self), other="there")

    def stream(self) -> Any:
        return pieces()

    def models(self) -> str:
        return "models"


class Asynchronous(Plain):
    """The same, awaited."""

    def __init__(self) -> None:
        super().__init__()
        plain = self.chat.completions.create

        async def create(**arguments: Any) -> Any:
            await asyncio.sleep(0)
            return plain(**arguments)

        self.chat = SimpleNamespace(completions=SimpleNamespace(create=create))

    def stream(self) -> Any:
        async def each() -> AsyncIterator[Any]:
            for one in pieces():
                yield one

        return each()

    async def __aenter__(self) -> Self:
        return self


@pytest.fixture
def memory() -> MemoryTransport:
    made = MemoryTransport()
    made.put_playbook(NAME, "be exact")
    made.put_playbook(
        "large", "refunds need a manager\ncouriers are late on Mondays\ngifts go back to the giver"
    )
    return made


@pytest.fixture
def combee(memory: MemoryTransport) -> Iterator[Client]:
    with Client(transport=lambda: memory) as made:
        made.ready(timeout_s=30)
        yield made


def test_a_call_is_shown_the_playbook_and_becomes_a_trace(combee: Client, memory: MemoryTransport) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, playbook=NAME, combee=combee)
    answer = wrapped.chat.completions.create(model="m", messages=ASKED)
    assert answer is plain.answer
    first, *others = plain.seen[0]["messages"]
    assert first["role"] == "system"
    assert "<playbook " in first["content"]
    assert "be exact" in first["content"]
    assert others == ASKED
    combee.flush()
    (trace,) = memory.traces
    assert (trace.task, trace.answer, trace.playbook) == ("what is 1 + 1?", "2", NAME)
    assert trace.shown is not None
    assert (trace.shown.version, trace.shown.entry_ids) == (1, ("misc-00001",))
    assert trace.metadata["gen_ai.usage.input_tokens"] == "7"
    assert "be exact" not in trace.trajectory


# ---- a playbook above the budget


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "hello"}, {"role": "user", "content": question}]


def shown_in(call: dict[str, Any]) -> str:
    return str(call["messages"][0]["content"])


def test_above_a_budget_a_call_is_shown_what_is_nearest_to_its_last_user_message(
    combee: Client, memory: MemoryTransport
) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, playbook="large", combee=combee, budget_tokens=12)
    wrapped.chat.completions.create(messages=asked("is the courier late?"))
    assert "Mondays" in shown_in(plain.seen[0])
    assert "manager" not in shown_in(plain.seen[0])
    combee.flush()
    (trace,) = memory.traces
    assert trace.shown is not None
    assert trace.shown.entry_ids == ("misc-00002",)


def test_a_run_was_shown_what_any_of_its_calls_was_shown(combee: Client, memory: MemoryTransport) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, combee=combee)
    with learning("large", client=combee, budget_tokens=12):
        for question in ("one gift", "one refund", "another gift"):
            wrapped.chat.completions.create(messages=asked(question))
    combee.flush()
    (trace,) = memory.traces
    assert trace.shown is not None
    assert trace.shown.entry_ids == ("misc-00001", "misc-00003")


def test_a_run_with_a_task_has_one_prompt_for_all_its_calls(combee: Client) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, combee=combee, budget_tokens=10_000)
    with learning("large", client=combee, task="a refund", budget_tokens=12):
        for question in ("a gift", "a courier"):
            wrapped.chat.completions.create(messages=asked(question))
    assert shown_in(plain.seen[0]) == shown_in(plain.seen[1])
    assert "manager" in shown_in(plain.seen[0])


@each_row("budget_tokens", [None, 12])
@each_row("messages", [None, 7, [7], "x"])
def test_a_call_without_a_question_fails_only_where_its_server_refuses_it(
    messages: Any, budget_tokens: int | None, combee: Client
) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, playbook="large", combee=combee, budget_tokens=budget_tokens)
    assert wrapped.chat.completions.create(messages=messages) is plain.answer
    if not isinstance(messages, list):
        assert plain.seen[0]["messages"] == messages


def test_the_client_given_stays_as_it_was_and_the_rest_passes_through(combee: Client) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, playbook=NAME, combee=combee)
    plain.chat.completions.create(messages=ASKED)
    assert plain.seen[0]["messages"] == ASKED
    assert (wrapped.models(), wrapped.chat.other) == ("models", "there")
    assert isinstance(wrapped, Plain)


def test_a_developers_role_is_kept(combee: Client) -> None:
    plain = Plain()
    asked = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "x"}]
    wrap_openai(plain, playbook=NAME, combee=combee).chat.completions.create(messages=asked)
    assert plain.seen[0]["messages"][0]["role"] == "developer"


def test_inside_a_run_calls_belong_to_it(combee: Client, memory: MemoryTransport) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, combee=combee)
    with learning(NAME, client=combee) as run:
        wrapped.chat.completions.create(messages=ASKED)
        plain.answer = reply("it is 2")
        more = [*ASKED, {"role": "assistant", "content": "2"}, {"role": "user", "content": "sure?"}]
        wrapped.chat.completions.create(messages=more)
        run.outcome("right", success=True)
    combee.flush()
    (trace,) = memory.traces
    assert trace.trajectory.split("\n\n") == [
        "system: be brief",
        "user: what is 1 + 1?",
        "assistant: 2",
        "user: sure?",
        "assistant: it is 2",
    ]
    assert (trace.trace_id, trace.answer, trace.feedback) == (
        run.trace_id,
        "it is 2",
        "The run succeeded. right",
    )
    assert all("be exact" in one["messages"][0]["content"] for one in plain.seen)


def test_outside_a_run_and_without_a_playbook_a_call_passes_untouched(
    combee: Client, memory: MemoryTransport
) -> None:
    plain = Plain()
    wrap_openai(plain, combee=combee).chat.completions.create(messages=ASKED)
    assert plain.seen[0]["messages"] is ASKED
    combee.flush()
    assert memory.traces == []


def test_a_stream_is_passed_on_piece_by_piece_and_recorded_at_its_end(
    combee: Client, memory: MemoryTransport
) -> None:
    wrapped = wrap_openai(Plain(), playbook=NAME, combee=combee)
    stream = wrapped.chat.completions.create(messages=ASKED, stream=True)
    assert [piece.choices[0].delta.content for piece in stream] == ["tw", "o", None]
    combee.flush()
    assert [one.answer for one in memory.traces] == ["two"]


def test_a_stream_that_is_left_early_is_recorded_as_far_as_it_came(
    combee: Client, memory: MemoryTransport
) -> None:
    wrapped = wrap_openai(Plain(), playbook=NAME, combee=combee)
    stream = wrapped.chat.completions.create(messages=ASKED, stream=True)
    next(stream)
    stream.close()
    stream.close()
    combee.flush()
    assert [one.answer for one in memory.traces] == ["tw"]


def test_an_error_of_the_model_is_the_agents_and_no_lesson(combee: Client, memory: MemoryTransport) -> None:
    plain = Plain()
    plain.error = ConnectionError("429")
    with pytest.raises(ConnectionError):
        wrap_openai(plain, playbook=NAME, combee=combee).chat.completions.create(messages=ASKED)
    combee.flush()
    assert memory.traces == []


def test_an_answer_of_any_shape_reaches_the_agent(combee: Client) -> None:
    plain = Plain()
    wrapped = wrap_openai(plain, playbook=NAME, combee=combee)
    for plain.answer in (None, "text", SimpleNamespace(choices=[]), SimpleNamespace(choices=[None])):
        assert wrapped.chat.completions.create(messages=ASKED) is plain.answer


def test_calls_of_tools_are_part_of_the_answer(combee: Client, memory: MemoryTransport) -> None:
    plain = Plain()
    call = SimpleNamespace(function=SimpleNamespace(name="look_up", arguments='{"id": 7}'))
    plain.answer = reply("", [call])
    wrap_openai(plain, playbook=NAME, combee=combee).chat.completions.create(messages=ASKED)
    combee.flush()
    assert memory.traces[0].answer == '[{"name": "look_up", "arguments": "{\\"id\\": 7}"}]'


async def test_an_async_client_is_awaited_and_streams(combee: Client, memory: MemoryTransport) -> None:
    plain = Asynchronous()
    wrapped = wrap_openai(plain, playbook=NAME, combee=combee)
    assert await wrapped.chat.completions.create(messages=ASKED) is plain.answer
    stream = await wrapped.chat.completions.create(messages=ASKED, stream=True)
    assert [piece.choices[0].delta.content async for piece in stream] == ["tw", "o", None]
    await asyncio.to_thread(combee.flush)
    assert [one.answer for one in memory.traces] == ["2", "two"]
    assert all("be exact" in one["messages"][0]["content"] for one in plain.seen)


async def test_runs_of_tasks_at_once_do_not_mix(combee: Client, memory: MemoryTransport) -> None:
    wrapped = wrap_openai(Asynchronous(), combee=combee)

    async def one(number: int) -> None:
        async with learning(NAME, client=combee):
            for part in ("a", "b"):
                await wrapped.chat.completions.create(
                    messages=[{"role": "user", "content": f"{number}{part}"}]
                )

    await asyncio.gather(*(one(number) for number in range(5)))
    await asyncio.to_thread(combee.flush)
    found = sorted(one.trajectory for one in memory.traces)
    assert found == [f"user: {n}a\n\nassistant: 2\n\nuser: {n}b\n\nassistant: 2" for n in range(5)]


def test_what_is_no_client_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"chat\.completions\.create"):
        wrap_openai(object())


def test_ways_past_a_client_that_is_not_openais_are_said_once(
    combee: Client, caplog: pytest.LogCaptureFixture
) -> None:
    plain: Any = Plain()
    plain.chat.completions.stream = plain.stream
    plain.with_options = lambda: plain
    wrapped = wrap_openai(plain, playbook=NAME, combee=combee)
    for _ in range(2):
        assert list(wrapped.chat.completions.stream())
        assert wrapped.with_options() is plain
    told = [one.getMessage().partition(":")[0] for one in caplog.records]
    assert told == ["wrap_openai does not cover stream", "wrap_openai does not cover with_options"]


# ---- responses


class Responses:
    """OpenAI's other interface, as it is shaped."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seen: list[dict[str, Any]] = []
        self.fails = fails

    def create(self, **arguments: Any) -> Any:
        self.seen.append(arguments)
        return self._events() if arguments.get("stream") else whole_response()

    def _events(self) -> Iterator[Any]:
        for text in ("tw", "o"):
            yield SimpleNamespace(type="response.output_text.delta", delta=text)
        if not self.fails:
            yield SimpleNamespace(type="response.completed", response=whole_response("two"))


def whole_response(text: str = "2") -> Any:
    call = SimpleNamespace(type="function_call", name="add", arguments="[1, 1]")
    return SimpleNamespace(
        output=[call],
        output_text=text,
        model="m-1",
        status="completed",
        usage=SimpleNamespace(input_tokens=7, output_tokens=3),
    )


def test_a_response_is_shown_the_playbook_as_instructions_and_becomes_a_trace(
    combee: Client, memory: MemoryTransport
) -> None:
    responses = Responses()
    wrapped: Any = wrap_openai(SimpleNamespace(responses=responses), playbook=NAME, combee=combee)
    wrapped.responses.create(model="m", input="what is 1 + 1?", instructions="be brief")
    (seen,) = responses.seen
    assert "be exact" in seen["instructions"]
    assert seen["instructions"].endswith("\n\nbe brief")
    assert seen["input"] == "what is 1 + 1?"
    combee.flush()
    (trace,) = memory.traces
    assert (trace.task, trace.answer) == (
        "what is 1 + 1?",
        '2\n[{"name": "add", "arguments": "[1, 1]"}]',
    )
    assert "be exact" not in trace.trajectory
    assert trace.metadata["gen_ai.usage.input_tokens"] == "7"
    assert trace.metadata["gen_ai.response.finish_reasons"] == "completed"


def test_each_call_is_judged_before_it_is_handed_over(combee: Client, memory: MemoryTransport) -> None:
    wrapped: Any = wrap_openai(
        SimpleNamespace(responses=Responses()),
        playbook=NAME,
        combee=combee,
        on_end=lambda run: run.outcome(success="2" in run.answer),
    )
    wrapped.responses.create(input="what is 1 + 1?")
    combee.flush()
    assert [trace.success for trace in memory.traces] == [True]


def test_items_of_a_conversation_are_recorded_whatever_they_are(
    combee: Client, memory: MemoryTransport
) -> None:
    wrapped: Any = wrap_openai(SimpleNamespace(responses=Responses()), playbook=NAME, combee=combee)
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "add them"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "[1, 1]"},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
    ]
    wrapped.responses.create(input=iter(items))
    combee.flush()
    (trace,) = memory.traces
    assert trace.task == "add them"
    assert (
        'assistant: [{"name": "add", "arguments": "[1, 1]"}]\n\nfunction_call_output: 2' in trace.trajectory
    )


@pytest.mark.parametrize("fails", [False, True])
def test_a_streamed_response_is_passed_on_and_recorded_at_its_end(
    combee: Client, memory: MemoryTransport, *, fails: bool
) -> None:
    wrapped: Any = wrap_openai(
        SimpleNamespace(responses=Responses(fails=fails)), playbook=NAME, combee=combee
    )
    events = list(wrapped.responses.create(input="one and one?", stream=True))
    assert [one.delta for one in events[:2]] == ["tw", "o"]
    combee.flush()
    (trace,) = memory.traces
    assert trace.answer.partition("\n")[0] == "two"


def test_what_cannot_be_recorded_still_answers(combee: Client, memory: MemoryTransport) -> None:
    wrapped: Any = wrap_openai(SimpleNamespace(responses=Responses()), playbook=NAME, combee=combee)
    assert wrapped.responses.create(input=[object()]).output_text == "2"
    combee.flush()
    assert memory.traces == []


@each_row(
    "delta",
    [
        {"content": [{"type": "text", "text": "x"}]},
        {"content": "x", "tool_calls": [SimpleNamespace(index="0", function=None)]},
        {
            "content": "x",
            "tool_calls": [SimpleNamespace(index=0, function=SimpleNamespace(arguments={"x": 1}))],
        },
    ],
)
def test_a_stream_of_another_shape_reaches_the_agent_and_is_not_recorded(delta: dict[str, Any]) -> None:
    choice = SimpleNamespace(index=0, delta=SimpleNamespace(**{"tool_calls": None, **delta}))
    odd = [SimpleNamespace(choices=[choice], model="m", usage=None)]
    done: list[Any] = []
    assert list(RecordedStream(iter([*pieces(), *odd]), StreamedChat(), done.append))[-1:] == odd
    assert done == []


def test_a_server_numbers_no_tool_call_beyond_bounds() -> None:
    streamed = StreamedChat()
    for number in (-1, MAX_TOOL_CALLS, 10**15):
        call = SimpleNamespace(index=number, function=SimpleNamespace(name="f", arguments="{}"))
        delta = SimpleNamespace(content="x", tool_calls=[call])
        streamed.add(SimpleNamespace(choices=[SimpleNamespace(index=0, delta=delta)]))
    assert streamed.choices[0].message.content == "xxx"
    assert streamed.choices[0].message.tool_calls == []
