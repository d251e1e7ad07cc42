import gzip
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from combee.adapters.asking.replies import Answer
from combee.adapters.openai.model import OpenAIModel
from combee.adapters.openai.wire import read_answer
from combee.adapters.ports import PoisonError
from support import fake_openai as fake
from support import model_rig
from support.fake_openai import FakeOpenAI, refuses, says
from support.model_rig import GOOD, PROMPT, Build

MIB = 1 << 20
server, build, model = model_rig.server, model_rig.build, model_rig.model


@pytest.mark.parametrize(
    "bad",
    [
        says("Sorry, no."),
        says('{"items": ['),
        says('{"other": 1}'),
        says('{"items": 3}'),
        says(""),
        says(None),
        fake.sends(b'{"choices": []}'),
        says(GOOD, finish_reason="length"),
    ],
    ids=["prose", "truncated", "key missing", "no list", "empty", "null", "no choices", "length"],
)
async def test_an_unusable_reply_is_asked_again_once_then_it_is_poison(
    server: FakeOpenAI, model: OpenAIModel, bad: fake.Script
) -> None:
    server.will(bad)
    usage = (await model.ask(PROMPT)).usage
    assert (usage.calls, usage.re_asks, usage.retries) == (2, 1, 0)
    server.always = bad
    with pytest.raises(PoisonError, match="unusable") as raised:
        await model.ask(PROMPT)
    assert (raised.value.usage.calls, len(server.seen)) == (2, 4)


async def test_a_re_ask_keeps_the_prefix_shows_the_bad_reply_shortened_and_says_what_was_wrong(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    server.will(says("y" * 90_000, usage=(10, 20)), says(GOOD, usage=(100, 200)))
    usage = (await model.ask(PROMPT)).usage
    first, second = (exchange.body["messages"] for exchange in server.seen)
    assert second[:2] == first
    assert [message["role"] for message in second[2:]] == ["assistant", "user"]
    assert second[2]["content"] == "y" * 2000
    assert "no JSON object" in second[3]["content"]
    assert (usage.tokens_in, usage.tokens_out) == (110, 220)


@pytest.mark.parametrize(
    "second",
    [refuses(400, "your messages are odd"), refuses(400, "too long", code="context_length_exceeded")],
    ids=["refused", "too long with the bad reply in it"],
)
async def test_a_re_ask_that_is_refused_is_poison_that_says_what_the_first_call_cost(
    server: FakeOpenAI, model: OpenAIModel, second: fake.Script
) -> None:
    server.will(says("no", usage=(10, 20)), second)
    with pytest.raises(PoisonError) as raised:
        await model.ask(PROMPT)
    usage = raised.value.usage
    assert (usage.calls, usage.tokens_in, usage.tokens_out) == (1, 10, 20)


@pytest.mark.parametrize(
    "flood",
    [
        fake.floods,
        fake.sends(fake.completion("x" * 10_000_000)),
        fake.zipped(fake.completion("x" * 10_000_000)),
    ],
    ids=["endless", "10 MB", "10 MB zipped"],
)
async def test_a_reply_above_the_cap_is_not_read_whole_and_costs_the_one_re_ask(
    server: FakeOpenAI, build: Build, flood: fake.Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []

    def measured(content: bytes, **known: Any) -> Answer:
        lengths.append(len(content))
        return read_answer(content, **known)

    monkeypatch.setattr("combee.adapters.openai.connection.read_answer", measured)
    server.always = flood
    with pytest.raises(PoisonError, match="far too long"):
        await build(max_reply_bytes=100_000).ask(PROMPT)
    assert len(server.seen) == 2
    assert max(lengths) < 400_000


@pytest.mark.parametrize("status", [200, 307, 401, 503])
@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "by a proxy"])
async def test_whatever_its_status_a_body_is_not_unpacked_beyond_the_cap(
    server: FakeOpenAI,
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    proxied: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bomb = gzip.compress(b" " * 40 * MIB)
    again = {"content-encoding": "gzip", "location": "/v1/chat/completions"}
    server.will(lambda exchange: exchange.send(bomb, again, status=status))
    where = {}
    if proxied:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        where["base_url"] = "http://model.example/v1"
    with most_memory() as memory:
        assert (await build(max_reply_bytes=100_000, **where).ask(PROMPT)).body == {"items": [1]}
    assert len(server.seen) == 2
    assert memory.bytes < 6 * MIB


class Memory:
    bytes = 0


@contextmanager
def most_memory() -> Iterator[Memory]:
    """Measure how much memory is taken at most while the block runs, beside what was taken before."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
        memory.bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_compressed_reply_is_read(server: FakeOpenAI, model: OpenAIModel) -> None:
    server.will(fake.zipped(fake.completion(GOOD)))
    assert (await model.ask(PROMPT)).body == {"items": [1]}
