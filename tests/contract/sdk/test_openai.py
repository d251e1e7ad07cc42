"""``wrap_openai`` around OpenAI's own library, on a scripted server.

It takes for granted that every helper of that library ends in ``request(cast_to, options)``: here that is held.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI, RateLimitError
from pydantic import BaseModel

from combee.sdk import AsyncClient, Client, MemoryTransport, learning, wrap_openai
from support.fake_openai import Exchange, FakeOpenAI, completion, fake_openai, refuses, says, sends, zipped

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
    at = {"output_index": 0, "item_id": "m"}
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("") | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "content_index": 0, "part": part},
        {"type": "response.output_text.delta", **at, "content_index": 0, "delta": text, "logprobs": []},
        {"type": "response.completed", "response": response(text)},
    ]
    numbered = (one | {"sequence_number": number} for number, one in enumerate(told))
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in numbered).encode()


# ---- every helper of the library


class Sum(BaseModel):
    """What is asked for with ``parse``."""

    sum: int


TWO = '{"sum": 2}'
CALL: Any = {"model": "m", "messages": ASKED}
ASK: Any = {"model": "m", "input": "what is 1 + 1?"}


async def two(exchange: Exchange) -> None:
    """Answer ``TWO`` in the form that was asked for."""
    is_chat, streams = "messages" in exchange.body, exchange.body.get("stream")
    if streams:
        await sends(streamed('{"sum"', ": 2}") if is_chat else response_events(TWO), EVENTS)(exchange)
    else:
        await sends(completion(TWO) if is_chat else json.dumps(response(TWO)).encode())(exchange)


def said(pieces: Any) -> str:
    return "".join(piece.choices[0].delta.content or "" for piece in pieces)


def deltas(events: Any) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def chat_stream(client: Any) -> Any:
    with client.chat.completions.stream(**CALL) as stream:
        return stream.get_final_completion().choices[0].message.content


def chat_stream_left_early(client: Any) -> Any:
    with client.chat.completions.stream(**CALL) as stream:
        for event in stream:
            if event.type == "content.delta" and event.snapshot == TWO:
                return TWO
    return None


def chat_streaming_response(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(**CALL) as raw:
        return raw.parse().choices[0].message.content


def chat_streaming_lines(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(**CALL) as raw:
        return json.loads("".join(raw.iter_lines()))["choices"][0]["message"]["content"]


def chat_streaming_stream(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(**CALL, stream=True) as raw:
        return said(raw.parse())


def response_stream(client: Any) -> Any:
    with client.responses.stream(**ASK) as stream:
        return deltas(stream)


def response_streaming(client: Any) -> Any:
    with client.responses.with_streaming_response.create(**ASK) as raw:
        return raw.parse().output_text


WAYS: dict[str, Callable[[Any], Any]] = {
    "chat.create": lambda c: c.chat.completions.create(**CALL).choices[0].message.content,
    "chat.create stream": lambda c: said(c.chat.completions.create(**CALL, stream=True)),
    "chat.stream": chat_stream,
    "chat.stream left early": chat_stream_left_early,
    "chat.parse": lambda c: (
        c.chat.completions.parse(**CALL, response_format=Sum)
        .choices[0]
        .message.parsed.model_dump_json(indent=None)
        and TWO
    ),
    "chat raw": lambda c: (
        c.chat.completions.with_raw_response.create(**CALL).parse().choices[0].message.content
    ),
    "chat raw text": lambda c: json.loads(c.chat.completions.with_raw_response.create(**CALL).text)[
        "choices"
    ][0]["message"]["content"],
    "chat raw stream": lambda c: said(
        c.chat.completions.with_raw_response.create(**CALL, stream=True).parse()
    ),
    "chat raw parse": lambda c: (
        c.chat.completions.with_raw_response.parse(**CALL, response_format=Sum)
        .parse()
        .choices[0]
        .message.content
    ),
    "chat streaming response": chat_streaming_response,
    "chat streaming response's lines": chat_streaming_lines,
    "chat streaming response's stream": chat_streaming_stream,
    "with_options": lambda c: (
        c.with_options(timeout=5).chat.completions.create(**CALL).choices[0].message.content
    ),
    "with_options stream": lambda c: chat_stream(c.with_options(max_retries=0).with_options(timeout=5)),
    "copy": lambda c: c.copy().chat.completions.create(**CALL).choices[0].message.content,
    "beta.chat stream": lambda c: chat_stream(c.beta),
    "beta.chat raw": lambda c: (
        c.beta.chat.completions.with_raw_response.parse(**CALL, response_format=Sum)
        .parse()
        .choices[0]
        .message.content
    ),
    "responses.create": lambda c: c.responses.create(**ASK).output_text,
    "responses.create stream": lambda c: deltas(c.responses.create(**ASK, stream=True)),
    "responses.stream": response_stream,
    "responses.parse": lambda c: c.responses.parse(**ASK, text_format=Sum).output_text,
    "responses raw": lambda c: c.responses.with_raw_response.create(**ASK).parse().output_text,
    "responses raw parse": lambda c: (
        c.responses.with_raw_response.parse(**ASK, text_format=Sum).parse().output_text
    ),
    "responses streaming": response_streaming,
    "responses of with_options": lambda c: c.with_options(timeout=5).responses.create(**ASK).output_text,
    "beta.responses": lambda c: c.beta.responses.create(**ASK) and TWO,
}


def check(server: FakeOpenAI, memory: MemoryTransport) -> None:
    """Hold that one call was shown the playbook and became one trace."""
    (exchange,) = server.seen
    first = exchange.body.get("instructions") or exchange.body["messages"][0]["content"]
    assert "be exact" in first
    assert [(one.task, one.answer) for one in memory.traces] == [("what is 1 + 1?", TWO)]


@pytest.mark.parametrize("way", WAYS)
async def test_every_helper_of_a_plain_client_is_shown_the_playbook_and_recorded(
    way: str, server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.always = two

    def work() -> None:
        with (
            Client(transport=lambda: memory) as combee,
            OpenAI(base_url=server.url, api_key="k", max_retries=0) as openai,
        ):
            combee.ready(timeout_s=30)
            assert WAYS[way](wrap_openai(openai, playbook=NAME, combee=combee)) == TWO

    await asyncio.to_thread(work)
    check(server, memory)


@asynccontextmanager
async def both(server: FakeOpenAI, memory: MemoryTransport) -> AsyncIterator[tuple[AsyncClient, AsyncOpenAI]]:
    async with (
        AsyncClient(transport=lambda: memory) as combee,
        AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as openai,
    ):
        await combee.ready(timeout_s=30)
        yield combee, openai


async def async_said(pieces: Any) -> str:
    return "".join([piece.choices[0].delta.content or "" async for piece in pieces])


async def async_streamed(client: Any) -> Any:
    return await async_said(await client.chat.completions.create(**CALL, stream=True))


async def async_responses(client: Any) -> Any:
    events = await client.responses.create(model="m", input=ASKED, stream=True)
    return deltas([event async for event in events])


async def async_raw(client: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.create(**CALL)
    return raw.parse().choices[0].message.content


async def async_raw_stream(client: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.create(**CALL, stream=True)
    return await async_said(raw.parse())


async def async_stream(client: Any) -> Any:
    async with client.chat.completions.stream(**CALL) as stream:
        return (await stream.get_final_completion()).choices[0].message.content


async def async_stream_left_early(client: Any) -> Any:
    async with client.chat.completions.stream(**CALL) as stream:
        async for event in stream:
            if event.type == "content.delta" and event.snapshot == TWO:
                return TWO
    return None


async def async_streaming_response(client: Any) -> Any:
    async with client.chat.completions.with_streaming_response.create(**CALL) as raw:
        return (await raw.parse()).choices[0].message.content


async def async_streaming_stream(client: Any) -> Any:
    async with client.chat.completions.with_streaming_response.create(**CALL, stream=True) as raw:
        return await async_said(await raw.parse())


async def async_with_options(client: Any) -> Any:
    reply = await client.with_options(timeout=5).chat.completions.create(**CALL)
    return reply.choices[0].message.content


async def async_parse(client: Any) -> Any:
    reply = await client.chat.completions.parse(**CALL, response_format=Sum)
    return reply.choices[0].message.content


async def async_response_stream(client: Any) -> Any:
    async with client.responses.stream(**ASK) as stream:
        return deltas([event async for event in stream])


async def async_response_raw(client: Any) -> Any:
    return (await client.responses.with_raw_response.create(**ASK)).parse().output_text


ASYNC_WAYS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "chat.create stream": async_streamed,
    "responses.create stream": async_responses,
    "chat raw": async_raw,
    "chat raw stream": async_raw_stream,
    "chat.stream": async_stream,
    "chat.stream left early": async_stream_left_early,
    "chat streaming response": async_streaming_response,
    "chat streaming response's stream": async_streaming_stream,
    "with_options": async_with_options,
    "copy": lambda c: async_with_options(c.copy()),
    "beta.chat stream": lambda c: async_stream(c.beta),
    "chat.parse": async_parse,
    "responses.stream": async_response_stream,
    "responses raw": async_response_raw,
}


@pytest.mark.parametrize("way", ASYNC_WAYS)
async def test_every_helper_of_an_async_client_is_shown_the_playbook_and_recorded(
    way: str, server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.always = two
    async with both(server, memory) as (combee, openai):
        assert await ASYNC_WAYS[way](wrap_openai(openai, playbook=NAME, combee=combee)) == TWO
    check(server, memory)


async def test_azures_clients_are_covered_as_well(server: FakeOpenAI, memory: MemoryTransport) -> None:
    server.always = two
    where: Any = {"azure_endpoint": server.url, "api_key": "k", "api_version": "1", "max_retries": 0}
    async with AsyncClient(transport=lambda: memory) as combee, AsyncAzureOpenAI(**where) as openai:
        await combee.ready(timeout_s=30)
        assert await async_raw(wrap_openai(openai, playbook=NAME, combee=combee)) == TWO
        with AzureOpenAI(**where) as plain_openai:
            wrapped = wrap_openai(plain_openai, playbook=NAME, combee=combee)
            assert await asyncio.to_thread(WAYS["with_options"], wrapped) == TWO
    assert [one.answer for one in memory.traces] == [TWO, TWO]


async def test_a_compressed_answer_is_recorded_as_it_reads(
    server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.always = zipped(completion(TWO))
    async with both(server, memory) as (combee, openai):
        assert await async_streaming_response(wrap_openai(openai, playbook=NAME, combee=combee)) == TWO
    check(server, memory)


async def test_the_client_that_was_wrapped_and_its_parts_stay_as_they_were(
    server: FakeOpenAI, memory: MemoryTransport
) -> None:
    server.always = two
    async with both(server, memory) as (combee, openai):
        before = openai.chat  # made and kept by the client before it is wrapped
        wrapped = wrap_openai(openai, playbook=NAME, combee=combee)
        assert isinstance(wrapped, AsyncOpenAI)
        assert (wrapped.api_key, wrapped.base_url) == (openai.api_key, openai.base_url)
        await before.completions.create(**CALL)
        assert server.seen[0].body["messages"] == ASKED
        again = wrap_openai(wrapped, playbook="another", fallback="be brief", combee=combee)
        await again.chat.completions.create(**CALL)
        (first, *others) = server.seen[1].body["messages"]
        assert ("be brief" in first["content"], others) == (True, ASKED)
    assert [one.playbook for one in memory.traces] == ["another"]


async def test_what_is_not_covered_is_said_once(
    server: FakeOpenAI, memory: MemoryTransport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "combee")
    server.always = sends(json.dumps({"id": "x", "object": "text_completion", "choices": []}).encode())
    async with both(server, memory) as (combee, openai):
        wrapped = wrap_openai(openai, playbook=NAME, combee=combee)
        for _ in range(2):
            await wrapped.completions.create(model="m", prompt="x")
            wrapped.with_options(timeout=5).responses.connect()
            wrapped.realtime.connect(model="m")
        plain_calls = wrap_openai(openai, combee=combee)
        await plain_calls.completions.create(model="m", prompt="x")
    told = [one.getMessage().partition(":")[0] for one in caplog.records]
    assert told == [
        "wrap_openai does not cover POST /completions",
        "wrap_openai does not cover responses.connect",
        "wrap_openai does not cover realtime.connect",
    ]
