"""``wrap_openai`` around OpenAI's own library, on a scripted server."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI, RateLimitError

from combee.sdk import AsyncClient, Client, MemoryTransport, learning, wrap_openai
from support.fake_openai import FakeOpenAI, fake_openai, refuses, says, sends

NAME = "support/refunds"
ASKED: Any = [{"role": "user", "content": "what is 1 + 1?"}]


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAI]:
    async with fake_openai() as fake:
        yield fake


@pytest.fixture
def memory() -> MemoryTransport:
    made = MemoryTransport()
    made.put_playbook(NAME, "be exact")
    return made


def streamed(*texts: str) -> bytes:
    chunks = [
        {
            "id": "one",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "fake",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        }
        for text in texts
    ]
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks).encode() + b"data: [DONE]\n\n"


EVENTS = {"content-type": "text/event-stream"}


def plain(server: FakeOpenAI, memory: MemoryTransport) -> None:
    """Work as a program without an event loop does."""
    with (
        Client(transport=lambda: memory) as combee,
        OpenAI(base_url=server.url, api_key="k", max_retries=0) as openai,
    ):
        combee.ready(timeout_s=30)
        wrapped = wrap_openai(openai, playbook=NAME, combee=combee)
        answer = wrapped.chat.completions.create(model="m", messages=ASKED)
        assert answer.choices[0].message.content == "2"
        pieces: Any = wrapped.chat.completions.create(model="m", messages=ASKED, stream=True)
        with pieces as stream:
            assert "".join(one.choices[0].delta.content or "" for one in stream) == "two"
        with pytest.raises(RateLimitError):
            wrapped.chat.completions.create(model="m", messages=ASKED)
        with learning(NAME, client=combee) as run:
            wrapped.chat.completions.create(model="m", messages=ASKED)
            run.outcome(success=True)
    assert [one.answer for one in memory.traces] == ["2", "two", "again 2"]
    assert [one.feedback for one in memory.traces] == ["", "", "The run succeeded."]
    assert {one.shown.version for one in memory.traces if one.shown} == {1}


async def test_a_plain_client_is_shown_the_playbook_and_recorded(
    server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.will(says("2"), sends(streamed("tw", "o"), EVENTS), refuses(429), says("again 2"))
    await asyncio.to_thread(plain, server, memory)
    sent = [exchange.body["messages"] for exchange in server.seen]
    assert all("be exact" in messages[0]["content"] and messages[1:] == ASKED for messages in sent)
    assert len({messages[0]["content"] for messages in sent}) == 1


async def test_an_async_client_is_shown_the_playbook_and_recorded(
    server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.will(says("2"), sends(streamed("tw", "o"), EVENTS))
    async with (
        AsyncClient(transport=lambda: memory) as combee,
        AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as openai,
    ):
        await combee.ready(timeout_s=30)
        wrapped = wrap_openai(openai, playbook=NAME, combee=combee)
        answer = await wrapped.chat.completions.create(model="m", messages=ASKED)
        assert answer.choices[0].message.content == "2"
        pieces: Any = await wrapped.chat.completions.create(model="m", messages=ASKED, stream=True)
        async with pieces as stream:
            assert [one.choices[0].delta.content async for one in stream] == ["tw", "o"]
    assert [one.answer for one in memory.traces] == ["2", "two"]
    assert all("be exact" in exchange.body["messages"][0]["content"] for exchange in server.seen)


def response(text: str) -> dict[str, Any]:
    """Return a whole response as the library reads it."""
    said = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    return {
        "id": "one",
        "object": "response",
        "created_at": 0,
        "model": "fake",
        "status": "completed",
        "output": [message],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "usage": usage,
    }


def response_events(text: str) -> bytes:
    delta = {"type": "response.output_text.delta", "delta": text, "item_id": "m", "sequence_number": 0}
    done = {"type": "response.completed", "response": response(text), "sequence_number": 1}
    told = [delta | {"output_index": 0, "content_index": 0, "logprobs": []}, done]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told).encode()


async def test_responses_are_shown_the_playbook_and_recorded(
    server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.will(sends(json.dumps(response("2")).encode()), sends(response_events("two"), EVENTS))
    async with (
        AsyncClient(transport=lambda: memory) as combee,
        AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as openai,
    ):
        await combee.ready(timeout_s=30)
        wrapped = wrap_openai(openai, playbook=NAME, combee=combee)
        answer = await wrapped.responses.create(model="m", input="what is 1 + 1?")
        assert answer.output_text == "2"
        with_items: Any = ASKED
        async for event in await wrapped.responses.create(model="m", input=with_items, stream=True):
            assert event.type.startswith("response.")
    assert [(one.task, one.answer) for one in memory.traces] == [
        ("what is 1 + 1?", "2"),
        ("what is 1 + 1?", "two"),
    ]
    assert all(one.metadata["gen_ai.usage.output_tokens"] == "3" for one in memory.traces)
    assert all("be exact" in exchange.body["instructions"] for exchange in server.seen)
