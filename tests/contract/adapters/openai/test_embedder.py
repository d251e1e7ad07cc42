"""The embedding port on a server: what the stand-in answers, and what goes wrong on the way."""

import json
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from combee.adapters.openai import embedder as module
from combee.adapters.openai.embedder import OpenAIEmbedder
from combee.adapters.openai.names import NO_KEY, Server
from combee.adapters.ports import ModelCall, PoisonError, TransientError
from combee.core.text.similarity.embeddings import near_pairs
from combee_sim.embeddings import EMBEDDING, vector
from combee_sim.family.family import lessons
from combee_sim.family.wordings import all_wordings
from combee_sim.server.server import running
from combee_sim.server.standin import SimOptions
from support import model_rig
from support.fake_openai import FakeOpenAI, fake_openai, refuses, sends

server = model_rig.server
WORDINGS = {
    f"{n} {m}": text for n, one in enumerate(lessons()[:8]) for m, text in enumerate(all_wordings(one))
}
Build = Callable[..., OpenAIEmbedder]


@pytest_asyncio.fixture
async def build(server: FakeOpenAI) -> AsyncIterator[Build]:
    built: list[OpenAIEmbedder] = []

    def build(**settings: object) -> OpenAIEmbedder:
        where = Server(
            url=str(settings.pop("base_url", server.url)), key=str(settings.pop("api_key", NO_KEY))
        )
        given = {"model": "fake", "server": where, "first_wait_s": 0.01, "give_up_after_s": 0.5}
        built.append(OpenAIEmbedder(**(given | settings)))  # type: ignore[arg-type]
        return built[-1]

    yield build
    for embedder in built:
        await embedder.close()


def answers(*vectors: list[float], **more: object) -> bytes:
    data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return json.dumps({"data": data, **more}).encode()


async def test_the_stand_in_puts_wordings_of_a_lesson_together_and_lessons_apart() -> None:
    calls: list[ModelCall] = []
    async with running(SimOptions()) as url:
        embedder = OpenAIEmbedder(model=EMBEDDING, server=Server(url=url), on_call=calls.append)
        try:
            embedded = await embedder.embed(list(WORDINGS.values()))
        finally:
            await embedder.close()
    assert [tuple(each) for each in embedded.vectors] == [vector(text) for text in WORDINGS.values()]
    pairs = near_pairs(dict(zip(WORDINGS, embedded.vectors, strict=True)), 0.85)
    lesson_of = {pair: {name.split()[0] for name in pair} for pair in pairs}
    assert all(len(lesson) == 1 for lesson in lesson_of.values())
    assert len(pairs) == 8 * 15, "every two of six wordings"
    assert (embedded.usage.calls, len(calls)) == (1, 1)
    assert embedded.usage.tokens_in == calls[0].tokens_in > 0


async def test_many_texts_go_in_requests_of_some_and_come_back_in_order(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXTS", 2)
    server.will(sends(answers([1.0], [2.0], usage={"prompt_tokens": 5})), sends(answers([3.0])))
    embedded = await build().embed(["a", "", "c" * 10_000])
    assert list(embedded.vectors) == [[1.0], [2.0], [3.0]]
    assert [exchange.body["input"] for exchange in server.seen] == [["a", " "], ["c" * 8_000]]
    assert server.seen[0].content == b'{"model": "fake", "input": ["a", " "], "encoding_format": "float"}'
    assert embedded.usage.tokens_in == 5 + 2_000
    assert embedded.usage.calls == 2


async def test_order_is_the_servers_index_not_the_place_in_the_body(server: FakeOpenAI, build: Build) -> None:
    swapped = {"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]}
    server.will(sends(json.dumps(swapped).encode()))
    assert list((await build().embed(["a", "b"])).vectors) == [[1.0], [2.0]]


async def test_a_failed_request_is_made_again_and_counted(server: FakeOpenAI, build: Build) -> None:
    calls: list[ModelCall] = []
    server.will(refuses(503), sends(answers([1.0])))
    embedded = await build(on_call=calls.append).embed(["a"])
    assert embedded.usage.retries == 1
    assert [(call.outcome, call.attempt) for call in calls] == [("failed", 1), ("answered", 2)]


@pytest.mark.parametrize(
    "payload",
    [
        b'{"data": []}',
        answers([1.0]),
        answers([1.0], []),
        answers([1.0], [10**400]),
        b'{"data": [{"index": [], "embedding": [1.0]}, {"index": {}, "embedding": [1.0]}]}',
        b"[]",
        b"<html>",
    ],
)
async def test_a_server_without_embeddings_is_given_up_at_once(
    server: FakeOpenAI, build: Build, payload: bytes
) -> None:
    server.always = sends(payload)
    with pytest.raises(TransientError):
        await build(give_up_after_s=60.0).embed(["a", "b"])
    assert len(server.seen) == 1


async def test_tokens_that_no_record_could_hold_are_estimated_instead(
    server: FakeOpenAI, build: Build
) -> None:
    server.will(sends(answers([1.0], usage={"prompt_tokens": 10**30})))
    assert (await build().embed(["a" * 40])).usage.tokens_in == 10


async def test_a_wrong_key_is_not_tried_again_and_not_told(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(401, f"the key {model_rig.KEY} is wrong")
    with pytest.raises(TransientError, match="check the API key") as error:
        await build(api_key=model_rig.KEY, give_up_after_s=60.0).embed(["a"])
    assert model_rig.KEY not in str(error.value)
    assert len(server.seen) == 1


async def test_a_refused_text_is_poison(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(400, "no such input")
    with pytest.raises(PoisonError):
        await build().embed(["a"])


async def test_a_server_that_is_away_is_given_up_after_a_while(build: Build) -> None:
    with pytest.raises(TransientError, match="no answer"):
        await build(base_url="http://127.0.0.1:9/v1", give_up_after_s=0.05).embed(["a"])


async def test_a_redirect_to_another_host_is_refused_before_the_texts_are_there(
    server: FakeOpenAI, build: Build
) -> None:
    async with fake_openai() as other:
        location = {"location": f"{other.url}/embeddings"}
        server.always = lambda exchange: exchange.send(b"", location, status=307)
        with pytest.raises(TransientError, match="COMBEE_EMBEDDING_BASE_URL"):
            await build(give_up_after_s=0.1).embed(["a text"])
    assert other.seen == []
