"""A fake server and models that ask it, with waits short enough for tests."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from combee.adapters.openai.model import OpenAIModel
from combee_schemas.model import Prompt
from support.fake_openai import FakeOpenAI, fake_openai, says

SCHEMA = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
PROMPT = Prompt(system="Answer in JSON.", user="What?", reply_name="answer", reply_schema=SCHEMA)
GOOD = '{"items": [1]}'
KEY = "tops3cret"

Build = Callable[..., OpenAIModel]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeOpenAI]:
    async with fake_openai() as running:
        running.always = says(GOOD)
        yield running


@pytest_asyncio.fixture
async def build(server: FakeOpenAI) -> AsyncIterator[Build]:
    built: list[OpenAIModel] = []

    def build(**settings: Any) -> OpenAIModel:
        quick = {"first_wait_s": 0.01, "max_wait_s": 0.02, "permanent_wait_s": 0.03, "timeout_s": 5.0}
        given = {"model": "fake", "base_url": server.url, "api_key": KEY} | quick | settings
        built.append(OpenAIModel(**given))
        return built[-1]

    yield build
    for model in built:
        await model.close()


@pytest.fixture
def model(build: Build) -> OpenAIModel:
    return build()
