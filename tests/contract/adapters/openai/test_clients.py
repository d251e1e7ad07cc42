"""Who shares a client of OpenAI's, and how long it lives."""

import asyncio

import pytest
from openai import AsyncOpenAI

from combee.adapters.openai import clients
from combee.adapters.openai.clients import Client
from combee.adapters.openai.embedder import OpenAIEmbedder
from combee.adapters.openai.names import Server
from support import model_rig
from support.fake_openai import FakeOpenAI, says, sends
from support.model_rig import GOOD, KEY, PROMPT, Build

server, build = model_rig.server, model_rig.build


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the keys of the clients that are made."""
    keys: list[str] = []

    def noted(**settings: str) -> AsyncOpenAI:
        keys.append(settings["api_key"])
        return AsyncOpenAI(**settings)  # type: ignore[arg-type]

    monkeypatch.setattr(clients, "AsyncOpenAI", noted)
    return keys


async def test_who_asks_the_same_server_with_the_same_key_shares_a_client_and_the_last_closes_it(
    server: FakeOpenAI, build: Build, made: list[str]
) -> None:
    server.will(says(GOOD), sends(b'{"data": [{"index": 0, "embedding": [1.0]}]}'))
    model, judge = build(), build(api_key="an0ther")
    embedder = OpenAIEmbedder(model="vectors", server=Server(url=server.url, key=KEY))
    await model.ask(PROMPT)
    await embedder.embed(["a"])
    await judge.ask(PROMPT)
    assert made == [KEY, "an0ther"], "a key has its own"
    client = Client.of(Server(url=server.url, key=KEY))
    await embedder.close()
    await client.release()
    await model.ask(PROMPT)
    await model.close()
    assert client.openai.is_closed()
    await model.ask(PROMPT)
    assert len(made) == 3, "who asks after closing asks by a new one"


def test_each_event_loop_has_its_own_client(made: list[str]) -> None:
    async def client() -> Client:
        return Client.of(Server(url="http://127.0.0.1:9/v1"))

    assert asyncio.run(client()) is not asyncio.run(client())
    assert len(made) == 2
