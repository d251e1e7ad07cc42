"""Models on Azure, as a stand-in has them that speaks Azure's paths and takes Azure's logins alone."""

import json
import sys
import time
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
import pytest_asyncio
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import aio

from combee.adapters.openai.names import Azure
from combee.adapters.openai.probe import model_trouble
from combee.adapters.ports import ConfigurationError, TransientError
from combee.assembly import backends
from combee.assembly.answerers import evaluation_model
from combee.process.settings.loading import load_settings
from combee.process.settings.model import ModelSettings
from support import fake_openai as fake
from support import model_rig
from support.fake_openai import Exchange, FakeOpenAI, refuses
from support.model_rig import GOOD, KEY, PROMPT, Build

server, build = model_rig.server, model_rig.build

VERSION = "2024-10-21"
DEPLOYMENT = "team-small"
PATHS = {
    f"/openai/deployments/{DEPLOYMENT}/chat/completions?api-version={VERSION}": fake.completion(GOOD),
    f"/openai/deployments/vectors/embeddings?api-version={VERSION}": json.dumps(
        {"data": [{"index": 0, "embedding": [1.0]}]}
    ).encode(),
}
TOKEN = "ey.tok3n"  # noqa: S105 - made up


async def azure(exchange: Exchange) -> None:
    """Answer as Azure does."""
    login = exchange.headers.get("api-key"), exchange.headers.get("authorization")
    if login not in {(KEY, None), (None, f"Bearer {TOKEN}")}:
        await refuses(401, f"wrong login: {login}", code="401")(exchange)
    elif exchange.path not in PATHS:
        await refuses(404, "The API deployment for this resource does not exist", code="DeploymentNotFound")(
            exchange
        )
    else:
        await exchange.send(PATHS[exchange.path], {})


@pytest_asyncio.fixture
async def stand_in(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeOpenAI]:
    server.always = server.lists = azure
    for name in ("COMBEE_MODEL", "OPENAI_BASE_URL", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url.removesuffix("v1"))
    monkeypatch.setenv("OPENAI_API_VERSION", VERSION)
    yield server


def settings() -> ModelSettings:
    return load_settings(model=f"azure/{DEPLOYMENT}", embedding_model="vectors@0.9").model


class LoggedIn:
    """What Azure's own library finds out, without its looking."""

    tokens = 0
    closed = False

    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        self.tokens += 1
        return AccessToken(TOKEN, int(time.time()) + 3600)  # noqa: TID251 - the library compares it with that

    async def close(self) -> None:
        self.closed = True


class LoggedOut(LoggedIn):
    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        raise ClientAuthenticationError("run az login")


async def test_azures_own_variables_are_enough_to_ask_a_model_and_to_embed(
    stand_in: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    model, embedder = backends.language_model(settings()), backends.embedder(settings())
    assert embedder is not None
    try:
        reply = await model.ask(PROMPT)
        assert reply.body == {"items": [1]}
        assert list((await embedder.embed(["a"])).vectors) == [[1.0]]
    finally:
        await embedder.close()
        await model.close()
    assert not any("sk-of-openai" in str(exchange.headers) for exchange in stand_in.seen)


async def test_the_hash_is_of_our_body_which_says_on_azure_the_same_in_the_clients_bytes(
    stand_in: FakeOpenAI, build: Build
) -> None:
    where = Azure(endpoint=stand_in.url.removesuffix("/v1"), version=VERSION, key=KEY)
    model = build(model=f"azure/{DEPLOYMENT}", base_url=None, azure=where)
    reply = await model.ask(PROMPT)
    sent = json.dumps(stand_in.seen[0].body, sort_keys=True, separators=(",", ":")).encode()
    assert reply.request == model.request(PROMPT) == sha256(sent).hexdigest()


async def test_without_a_key_the_token_of_who_is_logged_in_is_sent_and_fetched_once(
    stand_in: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = LoggedIn()
    monkeypatch.setattr(aio, "DefaultAzureCredential", lambda: login)
    model = backends.language_model(settings())
    try:
        assert (await model.ask(PROMPT)).body == (await model.ask(PROMPT)).body == {"items": [1]}
    finally:
        await model.close()
    assert (login.tokens, login.closed) == (1, True)
    assert [exchange.headers["authorization"] for exchange in stand_in.seen] == [f"Bearer {TOKEN}"] * 2


async def test_a_token_in_azures_variable_is_enough_and_goes_before_a_key_as_in_openais_client(
    stand_in: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", TOKEN)
    for key in (None, "wr0ngkey"):
        if key:
            monkeypatch.setenv("AZURE_OPENAI_API_KEY", key)
        model, embedder = backends.language_model(settings()), backends.embedder(settings())
        assert embedder is not None
        try:
            assert (await model.ask(PROMPT)).body == {"items": [1]}
            assert list((await embedder.embed(["a"])).vectors) == [[1.0]]
        finally:
            await embedder.close()
            await model.close()
    assert "wr0ngkey" not in str([exchange.headers for exchange in stand_in.seen])


async def test_a_token_that_expired_is_named_and_not_shown(
    stand_in: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "ey.expired")
    stand_in.lists = refuses(404)
    trouble = str(await model_trouble(*backends.model_address(settings()), timeout_s=5.0))
    assert "AZURE_OPENAI_AD_TOKEN" in trouble
    assert "ey.expired" not in trouble


async def test_the_key_of_whoever_answers_held_out_questions_goes_before_that_of_the_services(
    stand_in: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "ofServices")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "ey.ofServices")
    monkeypatch.setenv("COMBEE_EVAL_API_KEY", KEY)
    model = backends.language_model(evaluation_model(load_settings(model=f"azure/{DEPLOYMENT}")))
    try:
        assert (await model.ask(PROMPT)).body == {"items": [1]}
    finally:
        await model.close()
    assert "ofServices" not in str([exchange.headers for exchange in stand_in.seen])


async def test_a_token_that_cannot_be_had_is_asked_for_again_slowly(
    stand_in: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "DefaultAzureCredential", LoggedOut)
    where = Azure(endpoint=stand_in.url.removesuffix("/v1"), version=VERSION)
    model = build(model=f"azure/{DEPLOYMENT}", base_url=None, azure=where, give_up_after_s=0)
    with pytest.raises(TransientError, match="run az login"):
        await model.ask(PROMPT)
    assert model.refusal
    assert not stand_in.seen


@pytest.mark.usefixtures("stand_in")
async def test_without_a_key_and_without_azures_library_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    model = backends.language_model(settings())
    with pytest.raises(ConfigurationError, match=r"AZURE_OPENAI_API_KEY.*\[azure\]"):
        await model.ask(PROMPT)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("deployment", "key", "remedy"),
    [(DEPLOYMENT, "wr0ngkey", "AZURE_OPENAI_API_KEY"), ("another", KEY, "deployment")],
    ids=["wrong key", "wrong deployment"],
)
async def test_a_wrong_key_and_a_deployment_that_is_not_there_are_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, deployment: str, key: str, remedy: str
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", key)
    chosen = load_settings(model=f"azure/{deployment}").model
    trouble = str(await model_trouble(*backends.model_address(chosen), timeout_s=5.0))
    assert remedy in trouble.partition(";")[2]
    assert "wr0ngkey" not in trouble


async def test_a_login_in_azures_address_is_sent_beside_the_key(server: FakeOpenAI, build: Build) -> None:
    gateway = server.url.removesuffix("v1").replace("://", "://me:word@")
    where = Azure(endpoint=gateway, version=VERSION, key=KEY)
    await build(model=f"azure/{DEPLOYMENT}", base_url=None, azure=where).ask(PROMPT)
    headers = server.seen[0].headers
    assert (headers["api-key"], headers["authorization"]) == (KEY, "Basic bWU6d29yZA==")
