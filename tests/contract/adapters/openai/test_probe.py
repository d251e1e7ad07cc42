"""Which model servers are refused before anything starts, and which are not."""

import json
from typing import Any

import pytest

from combee.adapters.openai.names import Server
from combee.adapters.openai.probe import model_trouble
from support import model_rig
from support.fake_openai import FakeOpenAI, fake_openai, hangs, refuses, says, sends

server = model_rig.server


async def trouble(fake: FakeOpenAI, timeout_s: float = 5.0) -> str | None:
    return await model_trouble("m", Server(url=fake.url), timeout_s=timeout_s)


async def test_a_model_that_is_listed_is_not_asked(server: FakeOpenAI) -> None:
    server.lists = sends(json.dumps({"data": [{"id": "other"}, {"id": "m"}]}).encode())
    server.always = refuses(500)
    assert await trouble(server) is None
    assert server.seen == []


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
async def test_a_server_without_a_list_of_models_is_not_refused(server: FakeOpenAI, status: int) -> None:
    server.lists = refuses(status)
    server.always = says("OK")
    assert await trouble(server) is None


@pytest.mark.parametrize("answer", [refuses(500), refuses(429), refuses(400, "max_tokens"), says("")])
async def test_a_server_that_dislikes_the_question_is_not_refused(server: FakeOpenAI, answer: Any) -> None:
    server.always = answer
    assert await trouble(server) is None


async def test_a_server_that_is_slow_is_not_refused(server: FakeOpenAI) -> None:
    server.always = hangs
    assert await trouble(server, 0.2) is None


async def test_an_unknown_model_and_a_wrong_key_are_told_with_their_remedies(server: FakeOpenAI) -> None:
    server.lists = sends(b'{"data": [{"id": "other"}]}')
    server.always = refuses(404, "model m does not exist", code="model_not_found")
    assert "check the model's name" in str(await trouble(server))
    server.always = refuses(401, "bad key", code="invalid_api_key")
    assert "OPENAI_API_KEY" in str(await trouble(server))


async def test_a_server_that_sends_its_callers_to_another_host_is_told_with_the_remedy(
    server: FakeOpenAI,
) -> None:
    async with fake_openai() as other:
        location = {"location": f"{other.url}/"}
        for listed in (refuses(404), lambda exchange: exchange.send(b"", location, status=307)):
            server.lists = listed
            server.always = lambda exchange: exchange.send(b"", location, status=307)
            assert "make that the base URL" in str(await trouble(server))
    assert other.seen == []
